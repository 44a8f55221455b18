"""The manifest of a folder of shards: what it is computed from, in which parts, and the digests of the results.

``manifest.json`` is written when a run begins and again when it ends; between, ``done/`` has one file for each finished
shard. Shards follow from the input files and the number of rows alone, never from who computes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from nearfar.errors import OutputError, counted
from nearfar.shards.inputs import RowRange
from nearfar.shards.storage import Entry, Storage

FORMAT = 1
NAME = "manifest.json"
DONE = "done"
READERS = 16
"""Records that are read at a time: an object store takes its time for each."""
Kind = Literal["embed", "predict"]
CHANGEABLE = ("invalid",)
"""Settings that may be others when a run is continued: shards that are done do not depend on them."""


@dataclass(frozen=True)
class Shard:
    """Some rows of one input file."""

    input: int
    """The number of the file."""
    rows: RowRange


@dataclass(frozen=True)
class Result:
    """A finished shard."""

    rows: int
    files: Mapping[str, Mapping[str, Any]]
    """By name: their ``bytes`` and ``sha256``."""
    dropped: Sequence[int] = ()
    """The lines of rows that are left out."""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Manifest:
    """What a folder of shards has, or will have."""

    kind: Kind
    version: str
    """Of nearfar."""
    model: Mapping[str, str]
    """The digests of the model."""
    settings: Mapping[str, Any]
    inputs: Sequence[Entry]
    shards: Sequence[Shard]
    results: Sequence[Result] = field(default=())
    """Of all shards, when the run has ended."""

    @property
    def complete(self) -> bool:
        """Whether all shards are done."""
        return bool(self.results)

    @property
    def digest(self) -> str:
        """SHA-256 of all that the results depend on."""
        values = asdict(replace(self, results=()))
        values["settings"] = {key: value for key, value in self.settings.items() if key not in CHANGEABLE}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def stem(self, shard: int) -> str:
        """The name of the files of a shard, without their endings.

        >>> Manifest("embed", "", {}, {}, [], []).stem(7)
        'shard-000007'
        """
        return f"shard-{shard:06}"

    def input_of(self, shard: int) -> Entry:
        """The file that a shard is computed from."""
        return self.inputs[self.shards[shard].input]

    def write(self, place: Storage) -> None:
        """Write it into a folder."""
        values = {"format": FORMAT, **asdict(self)}
        (place / NAME).write((json.dumps(values, ensure_ascii=False) + "\n").encode())

    def check(self, before: Manifest, place: Storage) -> None:
        """Refuse to continue a run that was begun with something else; says what has changed."""
        if before.digest == self.digest:
            return
        raise OutputError(
            f"{place.name}: the run in this folder cannot be continued, because {self._difference(before)}. Undo that, "
            "choose another --out, or start again with --overwrite."
        )

    def _difference(self, before: Manifest) -> str:
        old, new = ({entry.name: entry for entry in each.inputs} for each in (before, self))
        for name in old.keys() - new.keys():
            return f"the input {name} is gone"
        for name in new.keys() - old.keys():
            return f"the input {name} is new"
        for name, entry in new.items():
            if entry.size != old[name].size:
                return f"the input {name} has changed: it had {old[name].size:,} bytes and has {entry.size:,}"
            if entry.modified != old[name].modified:
                return f"the input {name} has been written again since"
        if before.kind != self.kind:
            return f"it is of nearfar {before.kind}"
        if before.model != self.model:
            return "the model is another"
        for name, value in self.settings.items():
            if name not in CHANGEABLE and before.settings.get(name) != value:
                return f"{name.replace('_', ' ')} was {before.settings.get(name)!r} and is {value!r}"
        return f"it was begun by nearfar {before.version}, and this is {self.version}"


def read_manifest(place: Storage) -> Manifest | None:
    """The manifest of a folder; None where there is none; raises DataError where it cannot be read."""
    file = place / NAME
    if file.entry() is None:
        return None
    try:
        values = json.loads(file.read())
        if values["format"] != FORMAT:
            message = f"the manifest has format {values['format']}, and this version reads {FORMAT}"
            raise place.problem(message, "Compute the folder again in another --out.")
        return Manifest(
            values["kind"],
            values["version"],
            values["model"],
            values["settings"],
            [Entry(**entry) for entry in values["inputs"]],
            [Shard(shard["input"], RowRange(**shard["rows"])) for shard in values["shards"]],
            [Result(**result) for result in values["results"]],
        )
    except (ValueError, KeyError, TypeError) as cause:
        raise place.problem(f"{NAME} is damaged", "Delete the folder and compute it again.") from cause


def record(place: Storage, stem: str, result: Result) -> None:
    """Write down that a shard is done; its files are there already."""
    (place / DONE / f"{stem}.json").write((json.dumps(asdict(result), ensure_ascii=False) + "\n").encode())


def finished(place: Storage, manifest: Manifest, before: Sequence[Result] = ()) -> dict[int, Result]:
    """The shards that are done and whose files are there with the size they had.

    Args:
        place: the folder.
        manifest: that of the run.
        before: the results of the run, if it had ended already.
    """
    sizes, recorded = place.listing(), (place / DONE).listing()

    def result_of(number: int) -> Result | None:
        stem = manifest.stem(number)
        if f"{stem}.json" not in recorded:
            return before[number] if before else None
        try:
            return Result(**json.loads((place / DONE / f"{stem}.json").read()))
        except (ValueError, TypeError):  # cut off by a crash of the machine
            return None

    with ThreadPoolExecutor(READERS) as pool:
        results = enumerate(pool.map(result_of, range(len(manifest.shards))))
        return {
            number: result
            for number, result in results
            if result is not None and all(sizes.get(name) == file["bytes"] for name, file in result.files.items())
        }


def summary(results: Sequence[Result]) -> str:
    """How many rows there are, in words."""
    dropped = sum(len(result.dropped) for result in results)
    more = f" ({counted(dropped, 'row')} dropped)" if dropped else ""
    return f"{counted(sum(result.rows for result in results), 'row')} in {counted(len(results), 'shard')}{more}"
