"""Print the page of all objectives, from their own tables: python docs/generate_objectives.py"""

from __future__ import annotations

import inspect
import re
import sys

from nearfar.recipe import OBJECTIVES
from nearfar.recipe.reference import LABELS

GROUPS = {
    "Texts with classes": ("classes",),
    "Texts with scores": ("text-scores",),
    "Pairs, triplets and rankings": ("pairs",),
    "Plain texts": ("views",),
    "Chosen or combined": ("any", "mixed"),
}
INTRO = """# Which objective for which data

Which objectives can be used depends on the rows of the data: labeled texts, pairs, triplets or plain texts. Without
`--objective`, the default for these rows is used, and a note states which one it is. `nearfar objectives NAME` prints
the description of an objective with its formula and settings, from which `make pages` generates this page. [Choose an
objective](../how-to/choose-an-objective.md) has advice, and [Contrastive losses](contrastive-losses.md) explains the
ideas behind them.
"""


def described(table: type) -> dict[str, str]:
    """The summary of a table's docstring, and its parts by their labels, each on one line."""
    text = inspect.getdoc(table) or ""
    pieces = re.split(rf"^({'|'.join(LABELS)}):\s+", text, flags=re.MULTILINE)
    parts = {"Summary": pieces[0], **dict(zip(pieces[1::2], pieces[2::2], strict=True))}
    return {label: " ".join(part.split()).replace("|", "\\|") for label, part in parts.items()}


def page() -> str:
    """The page in Markdown."""
    lines = [INTRO]
    for title, kinds in GROUPS.items():
        rows = []
        for name, table in OBJECTIVES.items():
            if table().does.reads in kinds:
                parts = described(table)
                cells = (parts.get(label, "") for label in ("Summary", "Reads", "Batches", "Related", "Paper"))
                rows.append(f"| `{name}` | {' | '.join(cells)} |")
        lines += [
            f"## {title}",
            "",
            "| Objective | What it does | Reads | Batches | Related | Paper |",
            "|---|---|---|---|---|---|",
        ]
        lines += [*rows, ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.write(page())
