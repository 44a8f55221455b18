"""Print the page of what the source papers describe: python docs/generate_papers.py > docs/reference/papers.md"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

ROWS = Path(__file__).parent / "papers.toml"
STATUSES = {
    "works": "run and checked",
    "exists": "there, read or planned only",
    "partial": "some of it",
    "differs": "does something else than the paper says",
    "missing": "not there",
    "n/a": "nothing to implement",
}
INTRO = """# Papers, row by row

What the source papers describe, where they describe it, and the recipe key or command that does it. Generated from
`docs/papers.toml` by `make pages`; a test checks that every key, command and table named here exists.

The keys are those of a [recipe](recipe.md) or of a [recipe with tasks](task-recipe.md); `[study]`, `[[data]]` and
`[[contender]]` are tables of a [study](../how-to/studies.md). `KEY of NAME` is a key of one objective.
[Reproduce a paper](../how-to/reproduce.md) explains the commands. In the first paper, A is the FedCSIS paper and B the
earlier submission.
"""


def read() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The papers and the rows."""
    values = tomllib.loads(ROWS.read_text(encoding="utf-8"))
    return values["paper"], values["row"]


def render() -> str:
    """The page."""
    papers, rows = read()
    lines = [INTRO]
    lines += ["| Paper | Rows | " + " | ".join(STATUSES) + " |", "|---|--:|" + "--:|" * len(STATUSES)]
    for paper in [*papers, None]:
        own = [row for row in rows if paper is None or row["id"][0] == paper["letter"]]
        counts = Counter(row["status"] for row in own)
        title = "All" if paper is None else paper["title"]
        lines.append(f"| {title} | {len(own)} | {' | '.join(str(counts[status]) for status in STATUSES)} |")
    lines += ["", "; ".join(f"**{status}**: {meaning}" for status, meaning in STATUSES.items()) + "."]
    for paper in papers:
        lines += ["", f"## {paper['title']}", "", "| | Place | What | Key or command | Status | Remark |"]
        lines.append("|---|---|---|---|---|---|")
        for row in rows:
            if row["id"][0] == paper["letter"]:
                use = ", ".join(f"`{each}`" for each in row.get("use", ()))
                cells = (row["id"], row["place"], row.get("what", ""), row["status"], row.get("remark", ""))
                name, place, what, status, remark = (_escaped(cell) for cell in cells)
                lines.append(f"| {name} | {place} | {what} | {use} | {status} | {remark} |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """A text as a cell of a table, in which no sign is markup."""
    for sign in "\\`*_[]|<>":
        text = text.replace(sign, f"\\{sign}")
    return text


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.write(render())
