"""The tables of docs/papers: every claim with its difference, interval and verdict, and the means behind them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean

from benchmarks.few_labels import Results
from benchmarks.papers.studies import FOLDER, LINES, Claim, Known, Run, Study, all_studies
from benchmarks.papers.verdicts import NOT_RUN, Judged, judge

PAPERS = ("triple-entropy", "batch-softmax", "multi-task", "mirror-bert-and-simcse", "label-aware")
"""The pages, by the names of their files."""
NO_ROWS = "all"


def known_studies(paper: str, folder: Path = FOLDER, lines: Path = LINES) -> list[Known]:
    """The studies of a page with what is finished of them."""
    found = [study for study in all_studies(folder).values() if study.paper == paper]
    return [Known(study, Results(lines / f"{study.name}.jsonl")) for study in found]


def tables(paper: str, folder: Path = FOLDER, lines: Path = LINES) -> str:
    """What stands between the marks of a page."""
    studies = known_studies(paper, folder, lines)
    parts = [verdicts(judge(studies))]
    parts += [
        f"{known.study.title} (`python -m benchmarks.papers run {known.study.name}`):\n\n{means}"
        for known in studies
        if (means := means_table(known))
    ]
    return "\n\n".join(parts)


def verdicts(judged: list[Judged]) -> str:
    """A table of the claims that were run, one row for each encoder and size, and a list of the others."""
    header = ["Claim", "Encoder, rows", "Units", "Difference (95 % interval)", "p", "Published", "Verdict"]
    rows = [row(one) for one in judged if one.verdict != NOT_RUN]
    parts = [markdown(header, rows, text=(0, 1, 5, 6))] if rows else []
    return "\n\n".join([*parts, *not_run(judged)])


def not_run(judged: list[Judged]) -> Iterator[str]:
    """Lists of claims, each below the encoders and sizes that it was not run with."""
    missing: dict[str, tuple[Claim, list[Judged]]] = {}
    for one in judged:
        if one.verdict == NOT_RUN:
            missing.setdefault(one.claim.says, (one.claim, []))[1].append(one)
    claims: dict[str, list[Claim]] = {}
    for claim, ones in missing.values():
        claims.setdefault(places(ones), []).append(claim)
    for where, those in claims.items():
        yield f"Not run with {where} (published difference in brackets):"
        yield "\n".join(f"- {claim.says} ({published(claim)})" for claim in those)


def places(ones: list[Judged]) -> str:
    """Encoders with their numbers of rows; encoders of the same numbers share them."""
    rows: dict[str, list[str]] = {}
    for one in ones:
        rows.setdefault(one.encoder, []).append(f"{one.rows:,}" if one.rows else NO_ROWS)
    encoders: dict[str, list[str]] = {}
    for encoder, numbers in rows.items():
        encoders.setdefault(" and ".join(numbers), []).append(f"`{encoder}`")
    return "; ".join(f"{', '.join(names)}, {numbers} rows" for numbers, names in encoders.items())


def row(one: Judged) -> list[str]:
    digits = one.claim.decimals
    interval = "" if one.interval is None else f" ({' to '.join(f'{end:+.{digits}f}' for end in one.interval)})"
    p = "" if one.control else "< 0.001" if one.p < 0.001 else f"{one.p:.3f}"
    difference = f"{one.mean:+.{digits}f}{interval}"
    return [one.claim.says, place(one), str(len(one.units)), difference, p, published(one.claim), one.verdict]


def published(claim: Claim) -> str:
    return f"{claim.gain:+.{claim.decimals}f}, {claim.published}"


def place(one: Judged) -> str:
    return f"{one.encoder}, {one.rows:,}" if one.rows else f"{one.encoder}, {NO_ROWS}"


def means_table(known: Known) -> str:
    """The mean score of every contender on every data set, over the seeds that it has; empty without any run."""
    study = known.study
    header = ["Encoder, rows, data", "Seeds", *study.contenders]
    rows = list(means_rows(known, study))
    return markdown(header, rows, text=(0,)) if rows else ""


def means_rows(known: Known, study: Study) -> Iterator[list[str]]:
    for encoder, rows, data in product(study.encoders, study.rows, study.data):
        cells, seeds = list[str](), list[int]()
        for contender in study.contenders:
            found = [
                scores[study.score]
                for seed in study.seeds_of(contender)
                if (scores := known.judged(Run(encoder, data, rows, contender, seed))) is not None
            ]
            seeds.append(len(found))
            cells.append(f"{fmean(found):.1f}" if found else "")
        if any(seeds):
            yield [f"{encoder}, {rows:,}, {data}" if rows else f"{encoder}, {NO_ROWS}, {data}", str(max(seeds)), *cells]


def markdown(header: list[str], rows: list[list[str]], *, text: tuple[int, ...]) -> str:
    """A table without padding; the columns of numbers are set to the right."""
    rule = ["---" if number in text else "--:" for number in range(len(header))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, rule, *rows])
