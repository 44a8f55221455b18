"""The page of speeds, RESULTS.md, from the lines of results.

    python -m benchmarks.results_page      # writes benchmarks/RESULTS.md from benchmarks/RESULTS.jsonl

The page shows the latest run of each comparison on each processor. ``python -m benchmarks.compare`` writes it, too.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks import lines as source
from benchmarks.bench import OURS
from benchmarks.comparison import Comparison
from benchmarks.comparisons import COMPARISONS
from benchmarks.lines import Line, of_kind
from benchmarks.ratios import FEWEST, WIDEST, Ratio, ratio
from benchmarks.tables import markdown, middle, number, quality_table, spread
from benchmarks.texts import Texts
from nearfar.files import write_atomic

PAGE = Path(__file__).with_name("RESULTS.md")
HEADING = f"""# Speed

Written by `make bench` from `RESULTS.jsonl`, which has one line for each turn. Older runs are in
[ARCHIVE.md](ARCHIVE.md) and `ARCHIVE.jsonl`; accuracies and scores are in [STUDIES.md](STUDIES.md).

Contenders take turns in a random order, each in a process of its own, and a turn is at least 30 seconds of timed work
after a warm-up, without loading and saving. A turn is repeated if other processes used more than 5 % of the cores, or
the host kept more than 2 % of their time. A ratio is the median over rounds of the ratio within a round, with the 95 %
bootstrap interval of that median. It is not stated if the interval is wider than {WIDEST:.0%} of it, or if there are
fewer than {FEWEST} rounds. Processor time adds up all threads. Memory is the most that the process held; the summary
has it as a share of that of the other library.
"""


def lines_file(page: Path) -> Path:
    """The file of results that a page is written from."""
    return page.with_suffix(".jsonl")


def archive_file(page: Path) -> Path:
    """Where the lines of older runs are."""
    return page.with_name("ARCHIVE.jsonl" if page.stem == "RESULTS" else f"{page.stem}-archive.jsonl")


@dataclass(frozen=True)
class Section:
    """One comparison on one processor: the lines of its latest run."""

    name: str
    lines: Sequence[Line]

    @property
    def comparison(self) -> Comparison:
        """What is compared; one that does not exist any more has only its name."""
        return COMPARISONS.get(self.name) or Comparison(self.name, lambda _bench: iter(()))

    @property
    def first(self) -> Line:
        """Any line: they agree on the run."""
        return self.lines[0]

    @cached_property
    def turns(self) -> dict[str, list[Line]]:
        """Those that count, by contender."""
        kept = [turn for turn in of_kind(self.lines, "turn") if turn["kept"]]
        found = {name: [turn for turn in kept if turn["contender"] == name] for name in self.names}
        return {name: inside for name, inside in found.items() if inside}

    @property
    def names(self) -> list[str]:
        """All contenders, nearfar first, also those without a turn that counts."""
        return next(line["contenders"] for line in of_kind(self.lines, "notes"))

    @property
    def summarized(self) -> bool:
        """Whether its ratios belong into the summary."""
        return not self.first["quick"] and not self.first["threads_asked"]

    def base(self, name: str) -> str | None:
        """Whom a contender is compared with; None for the one that others are compared with."""
        base = self.turns[name][0]["base"]
        alone = {turn["base"] for inside in self.turns.values() for turn in inside} == {None}
        return self.names[0] if base is None and alone and name != self.names[0] else base

    def by_round(self, name: str, key: str) -> dict[int, float | None]:
        """One number of the turns of a contender."""
        return {turn["round"]: turn.get(key) for turn in self.turns.get(name, [])}

    def ratio(self, name: str, key: str = "texts_per_second") -> Ratio | None:
        """How many times as fast the base is, or how many times its share of something a contender takes."""
        base = self.base(name)
        if base is None:
            return None
        mine, theirs = self.by_round(name, key), self.by_round(base, key)
        return ratio(theirs, mine) if key == "texts_per_second" else ratio(mine, theirs)

    def speed_ratio(self, name: str) -> Ratio | None:
        """By wall time: of single requests where these are timed, or else of the rates."""
        return self.ratio(name, "milliseconds") if self.comparison.unit == "ms" else self.ratio(name)

    def memory(self, over: str, under: str) -> str:
        """The memory of one contender as a share of that of another."""
        found = [spread(list(self.by_round(name, "peak_rss_mb").values())) for name in (over, under)]
        return "-" if found[0] is None or found[1] is None else f"{found[0].median / found[1].median:.0%}"

    def quality(self, name: str) -> dict[str, list[float]]:
        """Numbers that are no times, of all turns of a contender."""
        found: dict[str, list[float]] = {}
        extra = [line for line in of_kind(self.lines, "quality") if line["seed"] is None and line["contender"] == name]
        for line in [*self.turns.get(name, []), *extra]:
            for key, value in line["quality"].items():
                found.setdefault(key, []).append(value)
        return found


def sections(lines: Sequence[Line]) -> list[Section]:
    """The latest runs, by processor and then in the order of the comparisons."""
    found = [Section(key[0], inside) for key, inside in source.latest(lines).items() if of_kind(inside, "turn")]
    order = list(COMPARISONS)
    return sorted(
        found, key=lambda one: (one.first["processor"], order.index(one.name) if one.name in order else 99, one.name)
    )  # fmt: skip


def summary_rows(found: Sequence[Section]) -> list[list[str]]:
    """What, against whom, ratio, interval, ratio of processor times, share of memory, processor, date."""
    rows = []
    for section in found:
        for name in section.turns if section.summarized else ():
            known, base, costs = section.speed_ratio(name), section.base(name), section.turns[name][0]["base"]
            if known is None or base is None or (name.startswith(OURS) and costs is None):
                continue
            spent, unit = section.ratio(name, "cpu_ms_per_text"), " x the time" if costs else " x"
            what, against = (name, base) if costs else (section.comparison.about, name)
            memory = section.memory(name, base) if costs else section.memory(base, name)
            rows.append([
                what, against, known.value(unit), known.interval(), "-" if spent is None else spent.value(), memory,
                processor(section), day(section),
            ])  # fmt: skip
    return rows


def summary(found: Sequence[Section]) -> str:
    """The table on top."""
    rows = summary_rows(found)
    if not rows:
        return "Nothing has been measured yet by these rules."
    header = ["what", "against", f"{OURS} is faster by", "95 % interval", "by processor time", "memory", "processor",
              "date"]  # fmt: skip
    return markdown(header, rows)


def processor(section: Section) -> str:
    """Its name, and what matters of its flags."""
    name = section.first["processor"].replace(" cores; ", " cores, ").split(", ")
    return ", ".join(name[:3]) + (", beside other work" if section.first["busy"] else "")


def day(section: Section) -> str:
    """Of the run."""
    return section.first["run"][:10]


def details(section: Section) -> str:
    """The table of one comparison, and what is to be said about it."""
    first, parts = section.first, [f"### {section.name}: {section.comparison.about}"]
    parts.append(circumstances(section))
    table = contender_table(section)
    parts += [table] if table else []
    others = {
        f"{name}: {key}": [turn["details"].get(key) for turn in turns]
        for name, turns in section.turns.items() for key in turns[0].get("details") or {}
    }  # fmt: skip
    if others:
        parts.append(markdown(["what", "value"], [[key, middle(values)] for key, values in others.items()]))
    parts += section.comparison.remarks(section.turns)
    parts += [note for line in of_kind(section.lines, "notes") for note in line["notes"]]
    parts += paired_quality(section)
    parts += [f"Failed: {line['why']}" for line in of_kind(section.lines, "failure")]
    return "\n\n".join(parts) + ("" if not first["quick"] else "\n\nA quick trial, no measurement.")


def circumstances(section: Section) -> str:
    """When, with what, and how the turns went."""
    first, turns = section.first, of_kind(section.lines, "turn")
    repeated = Counter(turn["why"].partition(" of the cores")[0] for turn in turns if not turn["kept"])
    rounds = len({turn["round"] for turn in turns})
    steal = [turn["steal"] for turn in turns if turn["kept"] and turn.get("steal") is not None]
    facts = [
        f"{first['run'][:16].replace('T', ' ')} UTC", f"nearfar commit {first['commit']}",
        *([] if first["texts"] == Texts.FULL else [f"texts of {first['texts']} in place of real data"]),
        f"{first['threads_asked']} threads for everybody" if first["threads_asked"] else "everybody's own threads",
        f"{rounds} round{'s' if rounds > 1 else ''}",
        f"{repeated.total()} turns repeated" if repeated else "no turn repeated",
        *([f"at most {max(steal):.1%} of the time kept by the host"] if steal else []),
        *(["beside other work"] if first["busy"] else []),
        ", ".join(f"{package} {version}" for package, version in first["versions"].items()),
    ]  # fmt: skip
    return f"{'; '.join(facts)}."


def contender_table(section: Section) -> str:
    """Rates, ratios, processor time, memory and quality of all contenders that were timed."""
    unit, names = section.comparison.unit, [name for name, turns in section.turns.items() if timed(turns)]
    if not names:
        return ""
    key = "milliseconds" if unit == "ms" else "texts_per_second"
    qualities = list(dict.fromkeys(key for name in names for key in section.quality(name)))
    rows = []
    for name in names:
        found, spent = section.speed_ratio(name), section.ratio(name, "cpu_ms_per_text")
        row = [name, middle([turn[key] for turn in section.turns[name]])]
        row += [middle([turn["slow_milliseconds"] for turn in section.turns[name]])] if unit == "ms" else []
        row += ["" if found is None else str(found), middle([turn["cpu_ms_per_text"] for turn in section.turns[name]])]
        row += ["" if spent is None else str(spent)]
        row += [middle(list(section.by_round(name, one).values())) for one in ("peak_rss_mb", "threads")]
        row += [number(middle_of(section.quality(name).get(one, []))) for one in qualities]
        rows.append([*row, str(len(section.turns[name]))])
    slow = ["slowest percent"] if unit == "ms" else []
    header = ["contender", unit, *slow, section.comparison.ratio, "processor ms", "by processor time", "peak MB",
              "threads", *qualities, "turns"]  # fmt: skip
    return markdown(header, rows)


def timed(turns: Sequence[Line]) -> bool:
    """Whether a contender has rates at all."""
    return any(turn["texts_per_second"] for turn in turns)


def middle_of(values: Sequence[float]) -> float | None:
    """The median, or nothing."""
    return statistics.median(values) if values else None


def paired_quality(section: Section) -> list[str]:
    """The scores of both tools by seed."""
    about, by_seed = section.comparison.quality, [line for line in of_kind(section.lines, "quality") if line["seed"]]
    if about is None or not by_seed:
        return []
    scores: dict[str, dict[int, float]] = {}
    for line in by_seed:
        scores.setdefault(line["contender"], {})[line["seed"]] = line["quality"][about.metric]
    if len(scores) < 2:
        return []
    (ours, mine), (peer, theirs) = scores.items()
    seeds = sorted(mine.keys() & theirs.keys())
    table = quality_table(seeds, [mine[seed] for seed in seeds], [theirs[seed] for seed in seeds], (ours, peer))
    return [f"{about.about}:", table]


def page(lines: Sequence[Line]) -> str:
    """The whole page."""
    found = sections(lines)
    parts = [HEADING.rstrip("\n"), "## Summary", summary(found)]
    current: Any = None
    for section in found:
        if section.first["processor"] != current:
            current = section.first["processor"]
            memory = section.first["memory_gb"]
            parts.append(f"## {current}{f', {memory} GB' if memory else ''}")
        parts.append(details(section))
    return "\n\n".join(parts) + "\n"


def write(path: Path = PAGE) -> None:
    """The page from its lines."""
    write_atomic(path, page(source.read(lines_file(path))))


def main() -> int:
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
