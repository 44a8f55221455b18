"""How sure we are: paired statistics over folds and seeds, and what they allow to be said."""

from nearfar.experiments.comparisons import (
    Comparison,
    ComparisonSettings,
    Family,
    compare,
    compare_all,
    overall,
    verdict,
)
from nearfar.experiments.statistics import (
    Interval,
    Summary,
    TTest,
    bootstrap_interval,
    corrected_t_test,
    holm,
    summarize,
    wilcoxon_p,
)

__all__ = [
    "Comparison",
    "ComparisonSettings",
    "Family",
    "Interval",
    "Summary",
    "TTest",
    "bootstrap_interval",
    "compare",
    "compare_all",
    "corrected_t_test",
    "holm",
    "overall",
    "summarize",
    "verdict",
    "wilcoxon_p",
]
