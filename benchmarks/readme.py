"""The section "Results" of README.md, from the files of results.

    python -m benchmarks.readme            # writes it into README.md

Few labels: the lines in benchmarks/few-labels, one for each draw and tool. Speed: the lines in
benchmarks/RESULTS.jsonl, one for each turn; of each comparison the latest run that was not beside other work.
"""

from __future__ import annotations

import statistics
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from benchmarks import lines as turn_lines
from benchmarks import machine, results_page
from benchmarks.few_labels import OURS, SIZES, THEIRS, Pair, Results, pairs
from benchmarks.tables import middle, number, paired, ratios, spread

ROOT = Path(__file__).parents[1]
README, LINES = ROOT / "README.md", ROOT / "benchmarks" / "few-labels"
HEADING = "## Results"
NAMES = {"trec": "TREC", "sst5": "SST-5", "cr": "CR", "subj": "SUBJ", "banking77": "Banking77"}
MANY = "banking77"
"""The data set with 77 classes, which is also left out once."""
SPEEDS = {
    "finetune": ("Fine-tune a classifier", ("Trainer", "sentence-transformers")),
    "pairs": ("Train on pairs (InfoNCE)", ("sentence-transformers",)),
    "few-labels": ("Train on 64 texts, the whole command", ("SetFit",)),
    "long-256": ("Fine-tune on long texts (256 tokens)", ("Trainer",)),
    "embed": ("Compute embeddings", ("sentence-transformers",)),
}
"""The comparisons that the README quotes, with their titles and peers."""


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
        f"| Texts per class | Draws | {OURS} | SetFit | Difference (95 % interval) | Draws won, tied, lost | Flags |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for name, inside in rows:
        ours, theirs = (f"{statistics.mean(side):.1f}" for side in accuracies(inside))
        signs = [(pair.difference > 0) - (pair.difference < 0) for pair in inside]
        record = ", ".join(str(signs.count(sign)) for sign in (1, 0, -1))
        flags = f"`--n {name} --names none`" if name.isdecimal() else "`--names none`"
        lines.append(f"| {name} | {len(inside)} | {ours} | {theirs} | {interval(inside)} | {record} | {flags} |")
    [version] = {pair.theirs["version"] for pair in found}
    data = [name for key, name in NAMES.items() if any(pair.case.data == key for pair in found)]
    rest = [pair for pair in found if pair.case.data != MANY]
    opening = (
        f"**Few labels.** Accuracy in percent with MiniLM, {OURS} with its defaults but no class names, and SetFit "
        f"{version} with its defaults, on the same draws of {', '.join(data[:-1])} and {data[-1]}:"
    )
    closing = (
        f"Without Banking77, which has 77 classes, the difference over {len(rest)} draws is {interval(rest)}. "
        f"{processor_time(found)}Where SetFit's defaults would take hours, it has fewer pairs or steps: "
        "[details](benchmarks/STUDIES.md). The command of a row is `python -m benchmarks.few_labels train` with the "
        "flags in the last column; `python -m benchmarks.few_labels_peers` runs SetFit."
    )
    return "\n".join([wrapped(opening), "", *lines, "", wrapped(closing)])


def listed(words: Sequence[str]) -> str:
    """As a sentence lists them.

    >>> listed(["8", "16", "64"])
    '8, 16 and 64'
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def class_names(named: Sequence[Pair], plain: Sequence[Pair]) -> str:
    """What class names add, in the draws that have been trained with them as well."""
    both = {pair.case: pair for pair in plain}
    named = [pair for pair in named if pair.case in both]
    if len(named) < 2:
        return ""
    ours, theirs = accuracies(named)
    before, _ = accuracies([both[pair.case] for pair in named])
    sizes = listed([str(n) for n in sorted({pair.case.n for pair in named})])
    data = [name for key, name in NAMES.items() if any(pair.case.data == key for pair in named)]
    text = (
        f"**Class names.** On {len(named)} of these draws, {sizes} texts per class of {listed(data)}, {OURS} was "
        f"also given the names of the classes (`--names`): accuracy {statistics.mean(ours):.1f}, without names "
        f"{statistics.mean(before):.1f}, SetFit without names {statistics.mean(theirs):.1f}; with names the difference "
        f"to SetFit is {interval(named)}. Command: `python -m benchmarks.few_labels train --names given`. "
        "SetFit gains from names as well, and was ahead where it was given them: [how names are used, and SetFit with "
        "names](docs/why/class-names.md)."
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


def speed(lines: Sequence[turn_lines.Line]) -> str:
    """Training and embedding beside other libraries, as far as the ratios may be stated."""
    latest: dict[str, results_page.Section] = {}
    for section in results_page.sections(lines):
        if section.summarized and not section.first["busy"] and machine.LIMITED not in section.first["processor"]:
            held = latest.setdefault(section.name, section)
            latest[section.name] = max(held, section, key=lambda one: one.first["run"])
    rows: list[str] = []
    places: dict[str, set[str]] = {}
    for name, (title, others) in SPEEDS.items():
        for other in others if name in latest else ():
            if row := speed_row(latest[name], title, other):
                rows.append(row)
                places.setdefault(results_page.processor(latest[name]), set()).add(results_page.day(latest[name]))
    if not rows:
        return wrapped(
            "**Speed.** No ratio has been measured yet by the [rules for stated ratios](benchmarks/RESULTS.md); `make "
            "bench` measures them, and [older measurements](benchmarks/ARCHIVE.md) are kept."
        )
    where = ". ".join(f"{processor}; {', '.join(sorted(days))}" for processor, days in places.items())
    opening = (
        "**Speed and memory.** With MiniLM, medians over rounds. A ratio above 1 means that nearfar is faster, with "
        "its 95 % interval. The best settings of another library are the fastest that were measured, such as bf16 or "
        "batches of similar lengths."
    )
    closing = (
        f'{where}. The command of a row is `make bench BENCH="--only NAME"` with the name in the last column. [All '
        "contenders and rules](benchmarks/RESULTS.md)."
    )
    head = [
        "| | nearfar | Other library | Ratio to its defaults | Ratio to its best settings | Peak MB | `--only` |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    return "\n".join([wrapped(opening), "", *head, *rows, "", wrapped(closing)])


def speed_row(section: results_page.Section, title: str, other: str) -> str:
    """nearfar beside one library: with its defaults, and with the fastest of its other settings."""
    known = section.speed_ratio(other) if {OURS, other} <= section.turns.keys() else None
    if known is None:
        return ""
    found = [section.speed_ratio(name) for name in section.turns if name.startswith(other) and name != other]
    best = min((one for one in found if one is not None), key=lambda one: one.median, default=None)
    if not (known.stated or (best and best.stated)):
        return ""
    unit = section.comparison.unit
    key = "milliseconds" if unit == "ms" else "texts_per_second"
    mine, theirs = (timing(list(section.by_round(name, key).values()), unit) for name in (OURS, other))
    memory = " / ".join(middle(list(section.by_round(name, "peak_rss_mb").values())) for name in (OURS, other))
    label = {"Trainer": "transformers Trainer"}.get(other, other)
    cells = [title, mine, f"{theirs}, {label}", str(known), "-" if best is None else str(best), memory]
    return f"| {' | '.join(cells)} | `{section.name}` |"


def timing(values: Sequence[float | None], unit: str) -> str:
    """A median with its unit; milliseconds above a thousand are seconds.

    >>> timing([12_300.0], "ms"), timing([8.5], "ms"), timing([420.0], "texts/s")
    ('12.3 s', '8.50 ms', '420 texts/s')
    """
    known = spread(values)
    if unit == "ms" and known is not None and known.median >= 1000:
        return f"{number(known.median / 1000)} s"
    return f"{middle(values)} {unit}"


def unnamed(present: Results, older: Results) -> Results:
    """The lines without class names: those of the present default, once they are of all draws that the older ones are.

    The older ones were measured before class names were there.
    """
    return present if older.by_case().keys() <= present.by_case().keys() else older


def section() -> str:
    """What stands below the heading."""
    theirs = Results(LINES / f"{THEIRS}.jsonl")
    found = pairs(unnamed(Results(LINES / f"{OURS}-plain.jsonl"), Results(LINES / f"{OURS}.jsonl")), theirs)
    named = class_names(pairs(Results(LINES / f"{OURS}-names.jsonl"), theirs), found)
    parts = [few_labels(found), named, speed(turn_lines.read(results_page.lines_file(results_page.PAGE)))]
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
