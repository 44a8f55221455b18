"""What papers have published, table by table, and the study files that do it again.

Each paper is a TOML file beside this one, and its study files are in the folder of the same name::

    name, title, cite, aliases
    [instead]                 files that may take the place of one that is not there
    [settings.NAME]           other settings than the paper's: recipe tables, and those of contenders
    [data.NAME]               what a data set is, its dev file, and what is made of its rows
    [[table]]                 a table that can be run: its studies, and its figures by score, data set and contender
    [[figure]]                a figure over several tables
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from nearfar.errors import SettingError, did_you_mean

FOLDER = Path(__file__).parent
ROMAN = {"i": "1", "ii": "2", "iii": "3", "iv": "4", "v": "5", "vi": "6"}
PUBLISHED = "published"
"""The settings of the paper itself, which the study files have."""

Values: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """What a data set is, and what is made of its rows."""

    about: str
    """What somebody who lacks it has to look for."""
    dev: str | None = None
    """The file that chooses the best weights, which makes a study of its own of this data set."""
    labels: tuple[str, ...] = ()
    """The classes whose rows are kept; none means all."""
    relevant: int | None = None
    """The grade from which a document of a ranking is relevant, and the only grade that is left."""
    positives: bool = False
    """Whether only the two texts of a row are kept: they are positive pairs."""
    consistent: bool = False
    """Whether training pairs that contradict each other are left out."""
    plain: bool = False
    """Whether they are plain texts, which are taken once each."""

    @property
    def changes(self) -> bool:
        """Whether other rows are needed than those of the files."""
        return bool(self.labels) or self.relevant is not None or self.positives or self.consistent


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """A table that studies can run, and its figures."""

    number: str
    title: str
    encoder: str
    """That of the paper, by its name on the hub."""
    baseline: str
    scale: int
    """What a score between 0 and 1 is multiplied by to be what the paper prints."""
    studies: tuple[str, ...]
    """Study files, below the folder of this module."""
    published: dict[str, dict[str, dict[str, float]]]
    """Score, data set and contender to the figure of the paper."""
    needs: dict[str, int] = field(default_factory=dict)
    """Data sets to the rows without which they are not what the paper has."""
    notes: tuple[str, ...] = ()
    """In what the study differs from the paper."""
    square: tuple[str, ...] = ()
    """Contenders with neither of two settings, with one, with the other, and with both, where there are such."""
    vectors: dict[str, float] = field(default_factory=dict)
    """Data set to the published figure of static word vectors, where the table has such a row."""
    tasks: str | None = None
    """A file of contenders that train several tasks at once, in place of studies."""
    test: dict[str, float] = field(default_factory=dict)
    """Score to the figure of the paper on test rows, of its best contender on dev rows."""
    groups: dict[str, list[str]] = field(default_factory=dict)
    """Contenders by their approach."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """The gain of the contenders of several tables against the size of their data sets."""

    number: str
    title: str
    tables: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper with its tables."""

    name: str
    title: str
    cite: str
    aliases: tuple[str, ...] = ()
    tables: tuple[PublishedTable, ...] = ()
    figures: tuple[Figure, ...] = ()
    data: dict[str, DataSpec] = field(default_factory=dict)
    instead: dict[str, tuple[str, ...]] = field(default_factory=dict)
    settings: dict[str, Values] = field(default_factory=dict)


@cache
def papers() -> tuple[Paper, ...]:
    """All papers, by the alphabet."""
    return tuple(_paper(path) for path in sorted(FOLDER.glob("*.toml")))


def find_paper(name: str) -> Paper:
    """A paper by its name or another that it goes by."""
    known = {called: paper for paper in papers() for called in (paper.name, *paper.aliases)}
    if name.lower() not in known:
        listed = ", ".join(paper.name for paper in papers())
        raise SettingError(f"there is no paper {name!r}; there are: {listed}.{did_you_mean(name, list(known))}")
    return known[name.lower()]


def find_table(paper: Paper, number: str | None) -> PublishedTable:
    """A table by its number, arabic or roman, or by its name where the paper has no numbers."""
    ready = {table.number: table for table in paper.tables}
    listed = f"there are: {', '.join(ready)}" if ready else "a study can run none of its tables"
    if number is None:
        raise SettingError(f"name a table of {paper.name} with --table; {listed}. --list says what they are.")
    wanted = ROMAN.get(number.lower(), number.lower())
    if wanted in ready:
        return ready[wanted]
    raise SettingError(f"{paper.name} has no table {number!r}; {listed}.{did_you_mean(wanted, list(ready))}")


def find_figure(paper: Paper, number: str) -> Figure:
    """A figure by its number."""
    ready = {figure.number: figure for figure in paper.figures}
    if number not in ready:
        listed = f"there are: {', '.join(ready)}" if ready else "it has none over several tables"
        raise SettingError(f"{paper.name} has no figure {number!r}; {listed}. --list says what they are.")
    return ready[number]


def study_values(name: str) -> Values:
    """A study file as it was written; each call has values of its own."""
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))


def _paper(path: Path) -> Paper:
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    return Paper(
        name=values["name"],
        title=values["title"],
        cite=values["cite"],
        aliases=tuple(values.get("aliases", ())),
        tables=tuple(PublishedTable(**_tuples(each)) for each in values.get("table", ())),
        figures=tuple(Figure(**_tuples(each)) for each in values.get("figure", ())),
        data={name: DataSpec(**_tuples(each)) for name, each in values.get("data", {}).items()},
        instead=_tuples(values.get("instead", {})),
        settings=values.get("settings", {}),
    )


def _tuples(values: Values) -> Values:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
