"""The data of a published table: the user's folder of it, what to change, and files that are written for a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nearfar.data import Records
from nearfar.data.sources import format_of
from nearfar.errors import DataError, OutputError, Problem, SettingError, counted, did_you_mean
from nearfar.experiments.published import PUBLISHED, Paper, PublishedTable, Values
from nearfar.experiments.rows import write_rows
from nearfar.files import atomic, write_atomic

PAPER_ENCODER = "paper"
"""What stands for the encoder of the paper, whichever it is."""
ROWS = "rows"
"""The folder for rows that are made of those of the data."""


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """What is to be other than in the paper."""

    encoder: str | None = None
    """A name or a folder; ``paper`` is that of the paper, None the default one."""
    seeds: tuple[int, ...] | None = None
    folds: int | None = None
    limit: int | None = None
    """Rows of each data set; all of one that has fewer."""
    settings: str = PUBLISHED
    epochs: int | None = None
    """Of tables with several tasks."""
    sets: tuple[str, ...] | None = None
    """Some of the data sets; None for all that are there."""
    vectors: Path | None = None
    """Static word vectors, for a table that has a row of them."""
    checkpoints: Mapping[str, str] = field(default_factory=dict)
    """Contenders that are not trained, to other encoders than those of the paper."""

    def encoder_of(self, table: PublishedTable) -> str | None:
        """What a study names; a folder by its whole path, for paths in a study file count from its own folder."""
        if self.encoder is None or self.encoder == PAPER_ENCODER:
            return None if self.encoder is None else table.encoder
        return str(Path(self.encoder).absolute()) if Path(self.encoder).is_dir() else self.encoder

    def changes(self, paper: Paper) -> Values:
        """What the chosen settings of a paper change."""
        if self.settings == PUBLISHED:
            return {}
        known = [PUBLISHED, *paper.settings]
        if self.settings not in known:
            raise SettingError(
                f"{paper.name} has no settings {self.settings!r}; there are: {', '.join(known)}."
                f"{did_you_mean(self.settings, known)}"
            )
        return paper.settings[self.settings]

    def differences(self, table: PublishedTable, default: str) -> list[str]:
        """In what a run with these options differs from the paper; ``default`` is the default encoder."""
        used = self.encoder_of(table) or default
        sentences = [f"the encoder is {used}; the paper's is {table.encoder}"] if used != table.encoder else []
        if self.settings != PUBLISHED:
            sentences.append(f"the settings are not the paper's but those called {self.settings}")
        given = {name: getattr(self, name) for name in ("seeds", "folds", "limit", "epochs", "sets")}
        changed = [
            f"--{name} {','.join(map(str, value)) if isinstance(value, tuple) else value}"
            for name, value in given.items()
            if value is not None
        ]
        sentences += [
            f"{name} is {encoder}, not the checkpoint of the paper" for name, encoder in self.checkpoints.items()
        ]
        if changed:
            sentences.append(f"other than in the study file: {', '.join(changed)}")
        return [*sentences, *table.notes]


class DataFolder:
    """The folder of the data, with a folder for each set."""

    def __init__(self, paper: Paper, table: PublishedTable, path: Path) -> None:
        if not path.is_dir():
            remedy = "Name the folder that has one folder for each data set, such as trec/train.jsonl.gz."
            raise DataError([Problem(str(path), "there is no such folder", remedy)])
        self.paper, self.table, self.given, self.path = paper, table, str(path), path.absolute()
        self.notes: list[str] = []

    def find(self, name: str, files: Mapping[str, str], refusal: str, remedy: str) -> dict[str, Path]:
        """The files of a data set by their roles, each in any format, or others that may take their place."""
        paths = {role: self.look_for(file) for role, file in files.items()}
        lacking = [files[role] for role, path in paths.items() if path is None]
        if lacking:
            message = f"{name} {refusal}: there is no {' and no '.join(lacking)}"
            remedy = f"Put it there: {self.paper.data[name].about}. {remedy}"
            raise DataError([Problem(str(self.path), message, remedy)])
        return {role: path for role, path in paths.items() if path is not None}

    def substitutes(self, name: str, files: Mapping[str, str], paths: Mapping[str, Path]) -> list[str]:
        """Notes on files that take the place of others."""
        return [
            f"{name}: {path.relative_to(self.path)} takes the place of {files[role]}"
            for role, path in paths.items()
            if _stem(path) != _stem(Path(files[role]))
        ]

    def check_size(self, name: str, rows: Records, needed: int, refusal: str) -> None:
        """Refuse fewer rows than the table has."""
        if len(rows) < needed:
            message = f"{name} {refusal}: there are {counted(len(rows), 'row')}, and the table has {needed:,}"
            remedy = f"Bring all of it: {self.paper.data[name].about}. Or look at less with --limit."
            raise DataError([Problem(rows.source, message, remedy)])

    def look_for(self, name: str) -> Path | None:
        """A file in any format, or one that may take its place; None where there is none."""
        for each in (name, *self.paper.instead.get(name, ())):
            path = self.path / each
            if path.is_file():
                return path
            for entry in sorted(path.parent.iterdir()) if path.parent.is_dir() else ():
                if entry.is_file() and format_of(entry) and _stem(entry) == _stem(path):
                    return entry
        return None


def store_rows(rows: Records, file: Path) -> dict[str, str]:
    """Write rows, and the folders they need; whoever reads them meanwhile has them whole. Returns their columns."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic(file) as temporary:
            return write_rows(rows, temporary)
    except OSError as cause:
        raise OutputError(f"{file}: the rows cannot be written: {cause.strerror}. Choose another --out.") from cause


def write_text(file: Path, text: str) -> None:
    """Write a file, and the folders it needs."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, text)
    except OSError as cause:
        raise OutputError(f"{file}: this cannot be written: {cause.strerror}. Choose another --out.") from cause


def _stem(path: Path) -> str:
    return path.name.split(".")[0].lower()
