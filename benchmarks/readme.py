"""The section "Results" of README.md, from the files of results.

    python -m benchmarks.readme            # writes it into README.md

Few labels: the lines in benchmarks/few-labels, one for each draw and tool. Speed: of RESULTS.md the latest section of
each comparison that was not run beside other work.
"""

from __future__ import annotations

import re
import statistics
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.few_labels import OURS, SIZES, THEIRS, Pair, Results, pairs
from benchmarks.tables import number, paired, ratios, spread

ROOT = Path(__file__).parents[1]
README, RESULTS, LINES = ROOT / "README.md", ROOT / "benchmarks" / "RESULTS.md", ROOT / "benchmarks" / "few-labels"
HEADING = "## Results"
NAMES = {"trec": "TREC", "sst5": "SST-5", "cr": "CR", "subj": "SUBJ", "banking77": "Banking77"}
MANY = "banking77"
"""The data set with 77 classes, which is also left out once."""
SPEEDS = (
    ("finetune", "Fine-tune a classifier", "texts/s", ("Trainer", "sentence-transformers")),
    ("pairs", "Train on pairs (InfoNCE)", "pairs/s", ("sentence-transformers",)),
    ("embed", "Compute embeddings", "texts/s", ("sentence-transformers",)),
)


def accuracies(found: Sequence[Pair]) -> tuple[list[float], list[float]]:
    """Of both tools, in percent."""
    return [100 * pair.ours["accuracy"] for pair in found], [100 * pair.theirs["accuracy"] for pair in found]


def interval(found: Sequence[Pair]) -> str:
    """The mean paired difference in accuracy, in points, with its 95 % interval by Student's t over the draws."""
    from scipy.stats import t

    mean, error = paired(*accuracies(found))
    reach = float(t.ppf(0.975, len(found) - 1)) * error
    return f"{mean:+.1f} ({mean - reach:+.1f} to {mean + reach:+.1f})"


def few_labels(found: Sequence[Pair]) -> str:
    """The comparison with SetFit by texts per class."""
    rows = [("all", found)] if len({pair.case.n for pair in found}) > 1 else []
    rows = [(str(n), inside) for n in SIZES if (inside := [pair for pair in found if pair.case.n == n])] + rows
    lines = [
        f"| Texts per class | Draws | {OURS} | SetFit | Difference (95 % interval) | Draws won, tied, lost |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, inside in rows:
        ours, theirs = (f"{statistics.mean(side):.1f}" for side in accuracies(inside))
        signs = [(pair.difference > 0) - (pair.difference < 0) for pair in inside]
        record = ", ".join(str(signs.count(sign)) for sign in (1, 0, -1))
        lines.append(f"| {name} | {len(inside)} | {ours} | {theirs} | {interval(inside)} | {record} |")
    [version] = {pair.theirs["version"] for pair in found}
    data = [name for key, name in NAMES.items() if any(pair.case.data == key for pair in found)]
    rest = [pair for pair in found if pair.case.data != MANY]
    opening = (
        f"**Few labels.** Accuracy in percent with MiniLM, {OURS} without settings and SetFit {version} with its "
        f"defaults, on the same draws of {', '.join(data[:-1])} and {data[-1]}:"
    )
    closing = (
        f"Without Banking77, which has 77 classes, the difference over {len(rest)} draws is {interval(rest)}. "
        f"{processor_time(found)}Where SetFit's defaults would take hours, it has fewer pairs or steps: "
        "[details](benchmarks/RESULTS.md)."
    )
    return "\n".join([wrapped(opening), "", *lines, "", wrapped(closing)])


def class_names(named: Sequence[Pair], plain: Sequence[Pair]) -> str:
    """What class names add, in the draws that have been trained with them as well."""
    both = {pair.case: pair for pair in plain}
    named = [pair for pair in named if pair.case in both]
    if len(named) < 2:
        return ""
    ours, theirs = accuracies(named)
    before, _ = accuracies([both[pair.case] for pair in named])
    sizes = " and ".join(str(n) for n in sorted({pair.case.n for pair in named}))
    data = [name for key, name in NAMES.items() if any(pair.case.data == key for pair in named)]
    text = (
        f"**Class names.** On {len(named)} of these draws, {sizes} texts per class of {', '.join(data)}, {OURS} was "
        f"also given the names of the classes (`--names`): accuracy {statistics.mean(ours):.1f}, without names "
        f"{statistics.mean(before):.1f}, SetFit without names {statistics.mean(theirs):.1f}; with names the difference "
        f"to SetFit is {interval(named)}. [How names are used](docs/why/class-names.md)."
    )
    return wrapped(text)


def processor_time(found: Sequence[Pair]) -> str:
    """How much less of the processor's time a whole run takes, in the draws that both ran on one machine."""
    same = [pair for pair in found if all(pair.ours.get(key) == pair.theirs.get(key) for key in ("threads", "machine"))]
    times = ratios([pair.theirs.get("cpu_seconds") for pair in same], [pair.ours.get("cpu_seconds") for pair in same])
    known = spread(times)
    if known is None:
        return ""
    count, processor = sum(time is not None for time in times), same[0].ours["machine"].partition(",")[0]
    return (
        f"A whole run, without the estimate of its accuracy, takes {number(known.median)} times less processor time "
        f"(median of {count} draws that both ran on one thread of the same {processor}). "
    )


def wrapped(text: str) -> str:
    """A paragraph in lines of the width of the README."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


class Speed(NamedTuple):
    """One section of a comparison of speeds."""

    date: str
    processor: str
    versions: str
    rows: dict[str, list[str]]
    """The cells by contender: rate, and how much faster nearfar is."""


def latest(text: str, name: str) -> Speed:
    """The latest section of a comparison that was not run beside other work."""
    found = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        if f"\n### {name}: " not in section or "beside other work" in section:
            continue
        facts = dict(re.findall(r"^- ([^:\n]+): (.*)$", section, re.MULTILINE))
        cells = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"
        ]
        rows = {row[0]: row[1:3] for row in cells[2:]}
        found.append(Speed(section[:10], facts["processor"], facts["versions"], rows))
    if not found:
        raise SystemExit(f"{RESULTS}: no section of {name!r}; run make bench.")
    return found[-1]


def speed(text: str) -> str:
    """Training and embedding beside other libraries."""
    lines = ["| MiniLM | nearfar | other library | nearfar is faster by |", "|---|--:|--:|--:|"]
    where: dict[tuple[str, str], list[str]] = {}
    for name, title, unit, others in SPEEDS:
        section = latest(text, name)
        where.setdefault((section.processor, section.versions), []).append(section.date)
        for other in others:
            mine, theirs = _median(section.rows[OURS][0]), _median(section.rows[other][0])
            label = {"Trainer": "transformers Trainer"}.get(other, other)
            lines.append(f"| {title} | {mine} {unit} | {theirs} {unit}, {label} | {section.rows[other][1]} |")
    places = [
        f"{processor}; {versions}; {', '.join(sorted(set(dates)))}" for (processor, versions), dates in where.items()
    ]
    opening = "**Speed.** Medians, in brackets the range over repeats:"
    closing = f"{'. '.join(places)}. `make bench` measures again."
    return "\n".join([opening, "", *lines, "", wrapped(closing)])


def _median(cell: str) -> str:
    return cell.partition(" (")[0]


def section() -> str:
    """What stands below the heading."""
    theirs = Results(LINES / f"{THEIRS}.jsonl")
    found = pairs(Results(LINES / f"{OURS}.jsonl"), theirs)
    named = class_names(pairs(Results(LINES / f"{OURS}-names.jsonl"), theirs), found)
    parts = [few_labels(found), named, speed(RESULTS.read_text(encoding="utf-8"))]
    return "\n\n".join(part for part in parts if part)


def with_results(readme: str) -> str:
    """A README whose section of results is up to date."""
    before, heading, rest = readme.partition(f"\n{HEADING}\n")
    if not heading:
        raise SystemExit(f"{README}: there is no heading {HEADING!r}.")
    after = rest[rest.index("\n## ") :]
    return f"{before}{heading}\n{section()}\n{after}"


def main() -> int:
    README.write_text(with_results(README.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
