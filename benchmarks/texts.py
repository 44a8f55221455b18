"""The texts that are trained on and embedded: SST-2 from a data folder, or else the sample that nearfar ships."""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
import random
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


class Texts:
    """Rows by what they are for, each list in one shuffled order that everybody gets."""

    FULL = "SST-2"
    """The name where the data folder is there."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.note: str | None = None
        wanted = ("sst2_sentences/train", "sst2_sentences/dev", "sst2/train")
        missing = [name for name in wanted if not (folder / f"{name}.jsonl.gz").is_file()]
        if missing:
            self.note = (
                f"{folder} holds no {missing[0]}.jsonl.gz, so the texts are those of sample:helpdesk, repeated as "
                "often as needed: shorter than SST-2, and not to be compared with other tables. Give --data."
            )

    @property
    def name(self) -> str:
        """What the texts are, for the title of a table."""
        return self.FULL if self.note is None else "sample:helpdesk"

    def training(self) -> Rows:
        """Sentences with their class."""
        return self._shuffled(self._sst("sst2_sentences/train") if self.note is None else self._helpdesk("train"))

    def dev(self) -> Rows:
        """Sentences that nobody trains on."""
        return self._sst("sst2_sentences/dev") if self.note is None else self._helpdesk("test")

    def many(self) -> Rows:
        """A lot of texts, to embed."""
        return self._shuffled(self._sst("sst2/train") if self.note is None else self._helpdesk("train"))

    def mixed(self) -> Rows:
        """Texts of one to five sentences, so that lengths vary a lot."""
        rows = self.training()
        draw = random.Random(self.seed)
        return [
            {"text": " ".join([row["text"], *(other["text"] for other in draw.sample(rows, draw.randrange(5)))]),
             "label": row["label"]}
            for row in rows
        ]  # fmt: skip

    def helpdesk(self) -> Rows:
        """The sample data set: eight classes."""
        return self._helpdesk("train")

    def _shuffled(self, rows: Rows) -> Rows:
        random.Random(self.seed).shuffle(rows)
        return rows

    def _sst(self, name: str) -> Rows:
        with gzip.open(self.folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    @staticmethod
    def _helpdesk(split: str) -> Rows:
        spec = importlib.util.find_spec("nearfar")
        assert spec is not None
        assert spec.origin is not None
        path = Path(spec.origin).parent / "data" / "samples" / "helpdesk" / f"{split}.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def take(rows: Rows, count: int) -> Rows:
    """So many rows, from the front again when there are too few."""
    return list(itertools.islice(itertools.cycle(rows), count))


def balanced(rows: Rows, block: int, seed: int) -> Rows:
    """The same rows in an order in which the lengths of all blocks of so many rows are distributed alike.

    Contenders of different speed time different numbers of blocks, and none of them has the longer texts.
    """
    ordered = sorted(rows, key=lambda row: sum(len(str(value).split()) for value in row.values()))
    blocks = max(1, len(ordered) // block)
    draw, dealt = random.Random(seed), [ordered[start::blocks] for start in range(blocks)]
    for part in dealt:
        draw.shuffle(part)
    return [row for part in dealt for row in part]


def write(path: Path, rows: Rows) -> Path:
    """Rows as JSON Lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
