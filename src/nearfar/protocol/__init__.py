"""How sure we are: paired statistics over folds and seeds, and what they allow to be said."""

from nearfar.protocol.statistics import (
    Comparison,
    Family,
    Interval,
    Summary,
    TTest,
    bootstrap_interval,
    compare,
    compare_all,
    corrected_t_test,
    holm,
    summarize,
    wilcoxon_p,
)
from nearfar.protocol.wording import overall, verdict

__all__ = [
    "Comparison", "Family", "Interval", "Summary", "TTest", "bootstrap_interval", "compare", "compare_all",
    "corrected_t_test", "holm", "overall", "summarize", "verdict", "wilcoxon_p",
]  # fmt: skip
