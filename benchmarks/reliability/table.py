"""The outcomes of a campaign, kept while it runs, and the page with its table."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import cores, cpu

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "benchmarks" / "RELIABILITY.md"
GOOD = ("identical", "accepted", "refused", "answered", "same numbers", "not hit")
"""Verdicts that keep the promise; a run that ended before its fault came is not counted."""
ABOUT = {
    "kills": "runs stopped 1 to 3 times (SIGKILL, SIGTERM, Ctrl-C) and resumed",
    "disk": "runs with a full disk, resumed with room",
    "processes": "one of two processes killed, run resumed",
    "stops": "runs killed at single file operations and resumed",
    "damaged": "damaged files in model folders",
    "malicious": "malicious model folders",
    "inputs": "malformed data files, recipes and flags",
    "bombs": "data bombs",
}
PROMISES = {
    "kills": "the same bytes as without interruption",
    "disk": "a message, then the same bytes",
    "processes": "the other ends within 20 s with a message, then the same bytes",
    "stops": "the same bytes, no leftovers",
    "damaged": "refused, or the same numbers",
    "malicious": "opened or refused within 20 s and 2 GB, no traceback",
    "inputs": "accepted or refused within 20 s and 2 GB, no traceback",
    "bombs": "read or refused within 20 s and 2 GB, no traceback",
}


@dataclass
class Results:
    """Outcomes by part and case, one a line in a file; a campaign that is started again goes on after them."""

    path: Path

    def __post_init__(self) -> None:
        self.known: dict[str, dict[str, tuple[str, str]]] = {}
        self.commits: dict[str, dict[str, None]] = {}
        self.commit = commit()
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self.known.setdefault(entry["part"], {})[entry["case"]] = entry["verdict"], entry["details"]
                self.commits.setdefault(entry["part"], {})[entry.get("commit", "unknown")] = None

    def add(self, part: str, case: str, verdict: str, details: str = "") -> None:
        """Keep an outcome."""
        self.known.setdefault(part, {})[case] = verdict, details
        self.commits.setdefault(part, {})[self.commit] = None
        entry = {"part": part, "case": case, "verdict": verdict, "details": details, "commit": self.commit}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def counts(self, part: str) -> Counter[str]:
        """How many cases of a part had each verdict."""
        return Counter(verdict for verdict, _ in self.known.get(part, {}).values())

    def hits(self, part: str) -> int:
        """How many cases of a part there are, without those that ended before their fault came."""
        return sum(count for verdict, count in self.counts(part).items() if verdict != "not hit")

    def broken(self) -> Iterable[tuple[str, str, str, str]]:
        """Part, case, verdict and details of every broken promise."""
        for part, outcomes in self.known.items():
            for case, (verdict, details) in outcomes.items():
                if verdict not in GOOD:
                    yield part, case, verdict, details


def rows(results: Results) -> list[str]:
    """The table, as lines of Markdown."""
    lines = ["| Tried | Cases | Promise | Kept | Broken | Commit |", "|---|--:|---|--:|---|---|"]
    for part, about in ABOUT.items():
        counts = results.counts(part)
        number = results.hits(part)
        if not number:
            continue
        kept = number - sum(count for verdict, count in counts.items() if verdict not in GOOD)
        broken = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()) if verdict not in GOOD)
        commits = ", ".join(results.commits[part])
        lines.append(f"| {about} | {number:,} | {PROMISES[part]} | {kept:,} | {broken or 'none'} | {commits} |")
    return lines


def commit() -> str:
    """The commit that is tried."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def page(results: Results) -> str:
    """The page ``benchmarks/RELIABILITY.md``."""
    return "\n".join([
        "# Reliability", "",
        "What `make torture` tried, and whether nearfar kept what it promises. All runs use the toy encoder, through",
        "the command line or the loader that users call.", "",
        *rows(results), "",
        "Commands that are stopped are processes of their own: nine in ten are forked from a process that has imported",
        "all packages and computed nothing, one in ten is a new interpreter; both call the `main` of the command line.",
        "Random moments are drawn over the whole run with the estimate at its end. Kills at file operations are spread",
        "over all of them: files opened to write, renamed, removed, cut; folders made and removed.", "",
        "Seconds are processor time. For two processes they are time on the clock, times the factor by which other",
        "work slows the machine down at that moment.", "",
        f"Measured on {time.strftime('%Y-%m-%d')}; {cpu()[0]}, {cores()} cores.", "",
        "`make torture TORTURE=\"--minutes 60\"` repeats it; [SECURITY.md](../SECURITY.md) has the promises.", "",
    ])  # fmt: skip
