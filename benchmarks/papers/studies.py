"""Studies of the claims of a paper: what is trained on what, which runs that makes, and which of them are missing.

A study is a TOML file of this folder. The recipe of a run is laid over in this order: ``recipe`` for all, ``sizes`` by
the number of training rows, ``encoders`` by the encoder, ``contenders`` by the contender, and one of the contender's
points of ``search``. All contenders of a study have the same optimizer steps and as many points as each other.

Which point a contender is judged with on a data set is chosen by runs with the seed ``SEARCH`` on the *other* data sets
of the study, so that nothing of the data set that is judged takes part. A run is known by everything that determines
its numbers: a changed study file makes new runs, and lines of former ones do not count.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.few_labels import Results

FOLDER = Path(__file__).parent
LINES = FOLDER / "lines"
SEARCH = 0
"""The seed of the runs that points are chosen by; no run that is judged has it."""
UNTRAINED = "untrained"
"""The key of a contender that is not trained: one run stands for all seeds."""
Values = dict[str, Any]
Line = dict[str, Any]
Scores = dict[str, float]


class Run(NamedTuple):
    """One training and its test."""

    encoder: str
    data: str
    rows: int
    contender: str
    seed: int
    point: int = 0

    def __str__(self) -> str:
        return (
            f"{self.encoder}, {self.data}, {self.rows:,} rows, {self.contender}, point {self.point}, seed {self.seed}"
        )


@dataclass(frozen=True)
class Claim:
    """What a paper says, as a sum of contenders' scores that should be above zero."""

    says: str
    contrast: dict[str, float]
    """Contenders with their factors: 1 for the better one, -1 for the baseline."""
    gain: float
    """What was published; where no figure was, the smallest difference that would count."""
    published: str
    """Where, and which figures."""
    score: str = ""
    """Unset: the score of the study."""
    data: tuple[str, ...] = ()
    """The data sets that it is about; unset: all."""
    decimals: int = 1


@dataclass(frozen=True)
class Study:
    """A file of this folder."""

    name: str
    paper: str
    """The page in docs/papers."""
    title: str
    measure: str
    score: str
    data: tuple[str, ...]
    rows: tuple[int, ...]
    seeds: tuple[int, ...]
    encoders: dict[str, Values]
    contenders: dict[str, Values]
    claims: tuple[Claim, ...]
    recipe: Values
    sizes: dict[str, Values]
    options: Values
    """What the measure needs beside a recipe."""

    def points(self, contender: str) -> int:
        """How many points a contender is chosen from."""
        return max(1, len(self.contenders[contender].get("search", ())))

    def seeds_of(self, contender: str) -> tuple[int, ...]:
        """Of the contenders that matter less, fewer seeds are run."""
        own = self.contenders[contender]
        return (SEARCH,) if own.get(UNTRAINED) else self.seeds[: own.get("seeds", len(self.seeds))]

    def values(self, run: Run) -> Values:
        """The recipe of a run without paths, rows and seed, and whatever else the contender says."""
        own = dict(self.contenders[run.contender])
        own.pop("seeds", None)
        search = own.pop("search", [{}])
        layers = (self.sizes.get(str(run.rows), {}), self.encoders[run.encoder], own, search[run.point])
        values = self.recipe
        for layer in layers:
            values = laid_over(values, layer)
        return values

    def digest(self, run: Run) -> str:
        """Changes with whatever determines the numbers of a run, but for its encoder, rows and seed."""
        text = json.dumps([self.measure, self.options, self.values(run)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Values:
    """Tables laid over each other, key by key; an objective with a name takes the place of another.

    >>> laid_over({"training": {"epochs": 3}}, {"training": {"warmup": 0.1}})
    {'training': {'epochs': 3, 'warmup': 0.1}}
    >>> laid_over({"objective": {"name": "supcon", "views": "none"}}, {"objective": {"name": "triplet"}})
    {'objective': {'name': 'triplet'}}
    """
    values = dict(below)
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(values.get(key), Mapping) and "name" not in value:
            values[key] = laid_over(values[key], value)
        else:
            values[key] = value
    return values


def read_study(path: Path) -> Study:
    """The study of a file."""
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    claims = [
        Claim(**{**claim, "data": tuple(claim.get("data", ()))})
        for claim in values.pop("claims")
    ]  # fmt: skip
    for key in ("data", "rows", "seeds"):
        values[key] = tuple(values[key])
    study = Study(
        name=path.stem, claims=tuple(claims), sizes=values.pop("sizes", {}), options=values.pop("options", {}),
        recipe=values.pop("recipe", {}), **values,
    )  # fmt: skip
    if unknown := {name for claim in claims for name in claim.contrast} - study.contenders.keys():
        raise SystemExit(f"{path}: a claim names unknown contenders: {sorted(unknown)}")
    if SEARCH in study.seeds:
        raise SystemExit(f"{path}: the seed {SEARCH} is that of the search")
    if len(study.data) == 1 and any(study.points(name) > 1 for name in study.contenders):
        raise SystemExit(f"{path}: a search needs other data sets than the one that is judged")
    return study


def all_studies(folder: Path = FOLDER) -> dict[str, Study]:
    """All studies by name."""
    return {path.stem: read_study(path) for path in sorted(folder.glob("*.toml"))}


class Known:
    """The runs of a study that are finished."""

    def __init__(self, study: Study, results: Results) -> None:
        self.study, self.results = study, results
        self.scores: dict[tuple[Run, str], Scores] = {}
        for line in results.lines():
            run = Run(*(line[key] for key in Run._fields))
            self.scores[run._replace(point=0), line["digest"]] = line["scores"]

    def get(self, run: Run) -> Scores | None:
        """The scores of a run; points that are the same are one run."""
        return self.scores.get((run._replace(point=0), self.study.digest(run)))

    def add(self, run: Run, line: Line) -> None:
        """One more."""
        digest = self.study.digest(run)
        self.results.add({**run._asdict(), "digest": digest, **line})
        self.scores[run._replace(point=0), digest] = line["scores"]

    def chosen(self, run: Run) -> int | None:
        """The point that a contender is judged with on a data set; None as long as runs of the search are missing."""
        points = self.study.points(run.contender)
        if points == 1:
            return 0
        means = []
        for point in range(points):
            found = [self.get(run._replace(data=data, seed=SEARCH, point=point)) for data in self.others(run.data)]
            if any(scores is None for scores in found):
                return None
            means.append(statistics.mean(scores[self.study.score] for scores in found if scores is not None))
        return means.index(max(means))

    def others(self, data: str) -> Sequence[str]:
        """The data sets that a search for this one may use."""
        return [name for name in self.study.data if name != data]

    def judged(self, run: Run) -> Scores | None:
        """The scores of a contender with the point that was chosen for it."""
        if self.study.contenders[run.contender].get(UNTRAINED):
            run = run._replace(seed=SEARCH)
        point = self.chosen(run)
        return None if point is None else self.get(run._replace(point=point))


@dataclass(frozen=True, kw_only=True)
class Part:
    """Which runs of a study; unset: all."""

    contenders: Sequence[str] = ()
    encoders: Sequence[str] = ()
    rows: Sequence[int] = ()
    seeds: int | None = None
    """The first so many seeds."""


ALL = Part()


def pending(known: Known, part: Part = ALL) -> Iterator[Run]:
    """The runs that are missing, as far as they are known: for each encoder and size the search, then seed by seed."""
    study = known.study
    names = [name for name in study.contenders if not part.contenders or name in part.contenders]
    encoders = [name for name in study.encoders if not part.encoders or name in part.encoders]
    for encoder, rows in product(encoders, [rows for rows in study.rows if not part.rows or rows in part.rows]):
        for contender, data in product(names, study.data):
            for point in range(study.points(contender) if study.points(contender) > 1 else 0):
                run = Run(encoder, data, rows, contender, SEARCH, point)
                if known.get(run) is None:
                    yield run
        for seed in (SEARCH, *study.seeds[: part.seeds]):
            for data, contender in product(study.data, names):
                if seed not in study.seeds_of(contender):
                    continue
                run = Run(encoder, data, rows, contender, seed)
                point = known.chosen(run)
                if point is not None and known.get(run._replace(point=point)) is None:
                    yield run._replace(point=point)
