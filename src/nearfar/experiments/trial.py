"""A trial: one contender on one part of a data set, with one seed; and the trials of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nearfar.data import Records
from nearfar.experiments.records import Cell, Plan, Record, cell_name, find_record
from nearfar.experiments.study_schema import Mined, Search, Values

Invalid = Literal["refuse", "drop"]
TASKS = "tasks"
"""The kind of a trial that trains several tasks."""
MEAN = "mean"
"""Of several tasks the score that chooses the weights, beside that of each task under its name."""
Rows: TypeAlias = tuple[Records, Records | None]
"""All rows of a data set, and those of its official test set or its scored pairs."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the rows of a trial come from."""

    name: str
    file: str
    """Where it is."""
    given: str
    """As the study file has it, which is what records and messages say."""
    test: str | None = None
    layout: Values = field(default_factory=dict)
    invalid: Invalid = "refuse"
    pairs: dict[str, str] | None = None
    """Files of scored pairs to test on, by the names of their sets, in place of ``test``."""
    pairs_limit: int | None = None
    """How many pairs of each file; None for all."""
    corpus: str | None = None
    """What to search for the right text of each pair; None for the right texts of the test rows."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """All that a trial needs."""

    id: str
    source: Source
    limit: int | None
    contender: str
    values: Values
    """The recipe without data and seed."""
    seed: int
    fold: int
    folds: int
    metric: str
    kind: str
    digest: str
    """Of the rows, which must be those that the study was planned with."""
    search: Search | None = None
    keeps_map: bool = False
    untrained: str | None = None
    """What is tested in place of a training; None trains."""
    random_letters: bool = False
    mined: Mined | None = None
    """How negatives are mined for the training pairs; None: they train as they are."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Trial:
        """The trial that :meth:`to_json` took apart."""
        search, mined = values["search"], values["mined"]
        return cls(
            **{
                **values,
                "source": Source(**values["source"]),
                "search": None if search is None else Search.from_json(search),
                "mined": None if mined is None else Mined(**mined),
            }
        )

    def to_json(self) -> Values:
        """The trial as JSON has it."""
        return asdict(self)

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.contender} on {cell_name(self.source.name, self.limit)}, seed {self.seed}, fold {self.fold}"

    @property
    def cell(self) -> Cell:
        """The place that it fills in the table of a study."""
        return Cell(
            id=self.id,
            data=self.source.name,
            limit=self.limit,
            contender=self.contender,
            seed=self.seed,
            fold=self.fold,
        )

    def done(self) -> Record:
        """The record of a trial that has finished, with nothing in it yet."""
        return Record(**asdict(self.cell), metric=self.metric, kind=self.kind, status="done")

    def failed(self, reason: str) -> Record:
        """The record of a trial that came to nothing."""
        return replace(self.done(), status="failed", reason=reason)


@dataclass(frozen=True)
class Planned:
    """Trials that can begin."""

    plan: Plan
    trials: dict[str, Trial]
    """Each trial once, in the order in which they run: contenders on the same fold one after the other."""
    rows: dict[str, Rows]
    """Those of each data set."""
    notes: tuple[str, ...] = ()
    """What should be known about the rows."""

    def states(self, folder: Path) -> TrialStates:
        """Which trials have a record in a folder, finished or failed."""
        states = TrialStates([], [], [])
        for name in self.trials:
            record = find_record(folder, name)
            (states.waiting if record is None else states.done if record.done else states.failed).append(name)
        return states


@dataclass(frozen=True)
class TrialStates:
    """The names of the trials of a plan, by what has become of them."""

    done: list[str]
    failed: list[str]
    """Trials with a reason in place of scores; they run again only when asked for."""
    waiting: list[str]

    def to_run(self, *, retry_failed: bool) -> list[str]:
        """Those that a run is about."""
        return [*self.waiting, *(self.failed if retry_failed else ())]
