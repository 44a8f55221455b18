"""Malformed data files, recipes, study files and flags, made at random, for the commands of nearfar.

Every one must be accepted or refused with a message: no traceback, no crash, no hang, no use of much memory.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import random
import string
import zipfile
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.digest_cases import Case, as_toml, cases
from benchmarks.reliability.commands import Job

Change = Callable[[bytes, random.Random], bytes]
SHAPES = (
    ("text", "label"), ("text_a", "text_b", "score"), ("anchor", "positive", "negative"), ("text", "labels"),
    ("query_id", "query", "doc_id", "doc", "relevance"), ("doc_id", "doc"), ("text", "score"),
)  # fmt: skip
FORMATS = ("csv", "tsv", "jsonl", "json", "txt", "csv.gz", "jsonl.gz", "parquet", "xlsx")
ODD = (
    None, True, False, 0, -1, 10**400, 1.5, -0.0, math.nan, math.inf, "", " ", "\ud800", "\udfff text", "\0", "é",
    "x" * 5_000, "\u202e\u200b", "a\nb", "=1+1", "'", '"', "1e400", "nan", "true", [], [[]], {}, {"a": {"b": []}},
    ["a", None, 3], [["deep"]], "a,b;c\td", "\ufeff", "-", "hub:none", "sample:helpdesk", "../../etc/passwd", "~",
)  # fmt: skip
"""Values that a careless reader takes for something else."""


def job(place: Path, model: Path, number: int, seed: int) -> Job:
    """The malformed input of a number: files in a folder of its own, and the command that reads them."""
    chance = random.Random(f"{seed} {number}")
    folder = place / "input"
    kind = chance.choices(("data", "use", "recipe", "study", "flags", "stdin"), (50, 16, 18, 6, 7, 3))[0]
    if kind == "recipe":
        (folder / "recipe.toml").write_bytes(recipe(chance))
        return Job(("train", "recipe.toml", "--dry-run"), folder)
    if kind == "study":
        (folder / "study.toml").write_bytes(recipe(chance, "study/"))
        return Job(("study", "run", "study.toml", "--dry-run", "--out", "out"), folder)
    if kind == "flags":
        return Job(flags(folder, chance, model), folder)
    if kind == "stdin":
        (folder / "stdin").write_bytes(data_file(chance, chance.choice(("jsonl", "txt"))))
        return Job(use(chance, model, "-"), folder, stdin=folder / "stdin")
    name = f"rows.{chance.choice(FORMATS)}"
    (folder / name).write_bytes(data_file(chance, name.partition(".")[2]))
    if kind == "use":
        return Job(use(chance, model, name), folder)
    words = chance.choice((("check", name, "--encoder", "none"), ("check", name, "--json", "--encoder", "none"),
                           ("train", name, "--dry-run", "--encoder", "toy"),
                           ("train", name, "--dry-run", "--encoder", "toy", "--invalid", "drop")))  # fmt: skip
    return Job(words, folder)


def use(chance: random.Random, model: Path, name: str) -> tuple[str, ...]:
    """A command that uses a model on a file."""
    own, toy = str(model), "toy"
    drop = ("--invalid", "drop") if chance.random() < 0.5 else ()
    ending = chance.choice(("csv", "jsonl", "tsv", "parquet", "xlsx"))
    return chance.choice((
        ("predict", own, name, "--out", f"out.{ending}", *drop),
        ("predict", own, name, *drop),
        ("evaluate", own, name, *drop),
        ("embed", own, name, "--out", "out.npy", *drop),
        ("score", toy, name, *drop),
        ("search", toy, name, name, *drop),
        ("mine", toy, name, "--out", "mined.jsonl", *drop),
        ("whiten", toy, name, "--out", "whitened", *drop),
        ("geometry", toy, name, *drop),
        ("report", own, "--data", name, "--out", "page.html"),
    ))  # fmt: skip


def flags(folder: Path, chance: random.Random, model: Path) -> tuple[str, ...]:
    """A command with flags whose values do not fit."""
    (folder / "rows.csv").write_text("text,label\na cat,x\na dog,y\nan ox,x\na cow,y\n", encoding="utf-8")

    def value() -> str:
        return (
            chance.choice((*map(str, ODD), "-5", "0", "1", "3", "99999999999999999999", "0.5", "rows.csv"))
            .replace("\0", "")
            .encode("utf-8", "replace")
            .decode()
        )

    keys = ("training.epochs", "training.learning_rate", "batches.size", "encoder.max_length", "objective.name", "seed",
            "data.limit", "head.kind", "training.precision", "data.max_chars", "data.scale", "stage", "nothing.here",
            "encoder.name", "training.warmup", "batches.chunk", "data.columns", "objective.temperature")  # fmt: skip
    given: list[str] = []
    for _ in range(chance.randint(1, 4)):
        given += chance.choice((
            ["--set", f"{chance.choice(keys)}={value()}"],
            [chance.choice(("--epochs", "--batch-size", "--learning-rate", "--max-length", "--seed")), value()],
            [chance.choice(("--text", "--label", "--pair", "--score", "--encoding", "--dev", "--test")), value()],
            [chance.choice(("--objective", "--encoder", "--pooling", "--precision", "--invalid")), value()],
        ))  # fmt: skip
    words = ("train", "rows.csv", "--dry-run", "--encoder", "toy", *given)
    other = ("predict", str(model), "rows.csv", *chance.choice((("--top", value()), ("--min-probability", value()),
                                                                ("--text", value()), ("--out", value()))))  # fmt: skip
    return words if chance.random() < 0.8 else other


# Data files


def data_file(chance: random.Random, form: str) -> bytes:
    """A file of rows, damaged in one or two ways, or with values that do not fit."""
    columns = chance.choice(SHAPES)
    odd = chance.random() < 0.5
    rows = [
        {name: _value(name, number, chance, odd=odd) for name in columns} for number in range(chance.randint(1, 25))
    ]
    if chance.random() < 0.15:  # rows that do not all have the same columns
        for row in chance.sample(rows, max(1, len(rows) // 3)):
            row.pop(chance.choice(columns), None)
            row[chance.choice((*columns, "other", "TEXT", " text", ""))] = chance.choice(ODD)
    content = _written(rows, columns, form)
    inside = form.endswith(".gz") and chance.random() < 0.6
    content = gzip.decompress(content) if inside else content
    for _ in range(chance.choice((0, 1, 1, 1, 2)) if not odd else chance.choice((0, 0, 1))):
        content = chance.choice(CHANGES)(content, chance)
    return gzip.compress(content, mtime=0) if inside else content


def _value(column: str, number: int, chance: random.Random, *, odd: bool) -> Any:
    if odd and chance.random() < 0.3:
        return chance.choice(ODD)
    if column.endswith("_id"):
        return f"{column}-{number // 2}"
    if column in ("score", "relevance"):
        return chance.choice((0, 1, 2.5, "3"))
    if column in ("label", "labels"):
        return chance.choice(("a", "b", 3))
    return " ".join(chance.choices(("cat", "dog", "Straße", "日本語", "it's", "10,000", "😀"), k=chance.randint(1, 6)))


def _written(rows: list[dict[str, Any]], columns: tuple[str, ...], form: str) -> bytes:
    form, packed = form.removesuffix(".gz"), form.endswith(".gz")
    cell = lambda value: str(value).encode("utf-8", "surrogatepass")  # noqa: E731
    if form == "csv":
        quoted = [[b'"' + cell(row.get(name)).replace(b'"', b'""') + b'"' for name in columns] for row in rows]
        content = b"\n".join([",".join(columns).encode(), *map(b",".join, quoted)]) + b"\n"
    elif form == "tsv":
        content = b"\n".join(
            ["\t".join(columns).encode(), *(b"\t".join(cell(row.get(n)) for n in columns) for row in rows)]
        )
    elif form == "jsonl":
        content = b"\n".join(json.dumps(row).encode() for row in rows)
    elif form == "json":
        content = json.dumps(rows).encode()
    elif form == "txt":
        content = b"\n".join(cell(row.get(columns[0])) for row in rows)
    else:
        content = _table(rows, columns, form)
    return gzip.compress(content, mtime=0) if packed else content


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...], form: str) -> bytes:
    plain = [[_plain(row.get(name)) for name in columns] for row in rows]
    sink = io.BytesIO()
    if form == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = {name: [None if row[place] is None else str(row[place]) for row in plain]
                 for place, name in enumerate(columns)}  # fmt: skip
        pq.write_table(pa.table(table), sink)
    else:
        import openpyxl
        from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

        book = openpyxl.Workbook(write_only=True)
        sheet = book.create_sheet("rows")
        for row in [list(columns), *plain]:
            sheet.append([ILLEGAL_CHARACTERS_RE.sub("", each) if isinstance(each, str) else each for each in row])
        book.save(sink)
    return sink.getvalue()


def _plain(value: Any) -> Any:
    """A value that the libraries can write: not every one is valid in their formats."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()[:30_000]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if abs(value) < 1e15 else None  # also for nan
    return value if value is None or isinstance(value, bool) else str(value)


# Changes


def _flip(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.randint(1, 10)):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def _remove(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content) + 1)
    return content[:start] + content[start + chance.randint(1, 40) :]


PIECES = (
    b"\0", b"\xff", b"\xe9", b"\xed\xa0\x80", b",", b"\t", b"\n", b'"', b"\r", b";", b"[" * 5_000, b'{"a":' * 2_000,
    b"NaN", b'{"text": 1}\n', b"\xef\xbb\xbf", b"\xff\xfe", b"PK\x03\x04", b"\x1f\x8b", b"1" * 6_000, b"\\ud800",
    b"\n" * 3_000, b"," * 3_000, b"x" * 300_000, b'"' * 999, b"\xe2\x80\xa8", b"\x85", b"\x1c",
)  # fmt: skip


def _insert(content: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(content) + 1)
        content = content[:place] + chance.choice(PIECES) + content[place:]
    return content


def _noise(content: bytes, chance: random.Random) -> bytes:
    del content
    return chance.randbytes(chance.randint(0, 2_000))


def _lines(content: bytes, chance: random.Random) -> bytes:
    lines = content.split(b"\n")
    chance.shuffle(lines)
    return b"\n".join(lines * chance.choice((1, 1, 50)))


def _wide(content: bytes, chance: random.Random) -> bytes:
    text = content.decode("utf-8", "replace")
    return text.encode(chance.choice(("utf-16", "utf-32", "utf-16-be", "cp1252", "shift_jis", "utf-7")), "replace")


CHANGES: tuple[Change, ...] = (_flip, _cut, _remove, _insert, _insert, _noise, _lines, _wide)


# Recipes


def recipe(chance: random.Random, kind: str = "") -> bytes:
    """A recipe or study file with keys and values that do not fit, or damaged as text."""
    values = json.loads(json.dumps(chance.choice(_recipes(kind)).values))
    for _ in range(chance.randint(0, 3)):
        table = _some_table(values, chance)
        key = chance.choice((*table, _word(chance), "name", "train", "epochs", "weights", "stage", "task"))
        if chance.random() < 0.2:
            table.pop(key, None)
        else:
            odd = chance.choice((*(each for each in ODD if each is not None), _word(chance), 3, 0.1, "toy"))
            table[key] = deepcopy(odd)  # it may be changed in turn
    try:
        text = as_toml(values)
    except (TypeError, ValueError, AttributeError, AssertionError):
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    content = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.4:
        content = chance.choice((_flip, _cut, _remove, _insert, _lines, _wide))(content, chance)
    return content


@cache
def _recipes(kind: str) -> list[Case]:
    return [case for case in cases() if case.values and case.name.startswith("study/") == bool(kind)]


def _some_table(values: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    tables, waiting = [values], [values]
    while waiting:
        for value in waiting.pop().values():
            found = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
            inner = [each for each in found if isinstance(each, dict)]
            tables += inner
            waiting += inner
    return chance.choice(tables)


def _word(chance: random.Random) -> str:
    return "".join(chance.choices(string.ascii_lowercase + "_-. é\ud800\"'", k=chance.randint(1, 12)))


# Bombs


def bombs(folder: Path) -> dict[str, tuple[str, ...]]:
    """Small files with huge content, and huge lines: the words of the command that reads each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made: dict[str, tuple[str, ...]] = {}

    def add(name: str, content: bytes | None, *words: str) -> None:
        if content is not None:
            (folder / name).write_bytes(content)
        made[name] = words or ("check", name, "--encoder", "none")

    packed = gzip.compress(b"a word\n" * 2**20)
    add("lines.txt.gz", packed * 400)  # 3 GB
    add("line.txt.gz", gzip.compress(b"a word " * 2**20) * 400)
    add("rows.csv.gz", gzip.compress(b"text,label\n") + gzip.compress(b"a word,b\n" * 2**20) * 300)
    add("list.json.gz", gzip.compress(b"[" + b'{"text":"a"},' * 2**20) * 200)
    add("deep.json", b"[" * 3_000_000)
    add("line.jsonl", b'{"text": "' + b"word " * 5_000_000 + b'"}\n')
    add("line.csv", b"text,label\n" + b"word " * 5_000_000 + b",a\n")
    add("quote.csv", b'text,label\n"open' + b"a word, a word\n" * 2_000_000)
    add("long.txt", (b"word " * 1_900_000 + b"\n") * 3, "embed", "toy", "long.txt", "--out", "out.npy")
    add("letters.txt", (b"x" * 9_000_000 + b"\n") * 2, "embed", "toy", "letters.txt", "--out", "out.npy")
    add("columns.csv", b",".join(b"c%d" % number for number in range(400_000)) + b"\n1\n")
    add("keys.jsonl", b"\n".join(b'{"text": "a", "k%d": 1}' % number for number in range(100_000)))
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000, pa.int32()), ["word " * 200_000])  # 2 GB
    pq.write_table(pa.table({"text": repeated}), folder / "dictionary.parquet", store_schema=False)
    add("dictionary.parquet", None)
    pq.write_table(pa.table({"text": ["word " * 2_000] * 20_000}), folder / "plain.parquet", use_dictionary=False,
                   compression="zstd")  # fmt: skip
    add("plain.parquet", None)
    with (
        zipfile.ZipFile(folder / "zip.xlsx", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("xl/workbook.xml", "w", force_zip64=True) as entry,
    ):
        for _ in range(60):
            entry.write(b" " * 2**22)
    add("zip.xlsx", None)
    return made
