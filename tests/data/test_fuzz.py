"""Malformed files by the hundred: records that hold, or a refusal that says where; never a crash."""

from __future__ import annotations

import gzip
import io
import json
import math
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearfar.data import (
    Layout,
    Records,
    Stream,
    examine,
    pair_targets,
    read,
    target_problems,
    unit_scores,
    without_contradictions,
)
from nearfar.errors import DataError, Problem

WITHOUT_LINE = (  # faults of the file as a whole
    *("the file is empty", "only a header line", "there are no rows", "the list is empty", "no rows are left"),
    *("no column is recognized", "it is not clear which column", "there is no column"),
    *("no scores", "are single texts"),
    *("not a Parquet file", "occur more than once", "more problems are not listed", "the one class"),
)
SHAPES: dict[str, tuple[str, ...]] = {
    "texts": ("text", "label"),
    "pairs": ("text_a", "text_b", "score"),
    "triplets": ("anchor", "positive", "negative"),
    "ranking": ("query_id", "query", "doc_id", "doc", "relevance"),
    "corpus": ("doc_id", "doc"),
}
LINED = ("a.csv", "a.tsv", "a.jsonl", "a.json", "a.txt", "a.csv.gz", "a.jsonl.gz")
CASES_PER_FAULT = 6


def sound(name: str, chance: random.Random, shape: str = "texts") -> bytes:
    """A sound file of this kind and shape, of random size and content."""
    words = ["plain", "with, comma", 'with "quotes"', "tab\there", "line\nbreak", "日本語", "😀", "é", "x" * 300]

    def value(column: str, number: int) -> str:
        if column.endswith("_id"):
            return f"{column}-{number // 2 if column == 'query_id' else number}"
        if column in ("score", "relevance"):
            return chance.choice(["0", "1", "2.5"])
        if column == "label":
            return chance.choice(["a", "b", "3"])
        return (
            f"question {number // 2}" if column == "query" else " ".join(chance.choices(words, k=chance.randint(1, 4)))
        )

    columns = SHAPES[shape]
    rows = [{column: value(column, number) for column in columns} for number in range(chance.randint(2, 30))]
    kind = name.removesuffix(".gz").rpartition(".")[2]
    if kind == "csv":
        quoted = ('"{}"'.format(each.replace('"', '""')) for row in rows for each in row.values())
        body = "".join(",".join(next(quoted) for _ in columns) + "\n" for _ in rows)
        content = (",".join(columns) + "\n" + body).encode()
    elif kind == "tsv":
        body = "".join("\t".join(" ".join(each.split()) for each in row.values()) + "\n" for row in rows)
        content = ("\t".join(columns) + "\n" + body).encode()
    elif kind == "jsonl":
        content = "".join(json.dumps(row, ensure_ascii=chance.random() < 0.5) + "\n" for row in rows).encode()
    elif kind == "json":
        content = json.dumps(rows, indent=chance.choice([None, 2])).encode()
    elif kind == "txt":
        content = "".join(" ".join(row[columns[0]].split()) + "\n" for row in rows).encode()
    else:
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), sink)
        content = sink.getvalue()
    return gzip.compress(content, mtime=0) if name.endswith(".gz") else content


def flip(content: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def insert(*pieces: bytes) -> Callable[[bytes, random.Random], bytes]:
    def inserted(content: bytes, chance: random.Random) -> bytes:
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(content) + 1)
            content = content[:place] + chance.choice(pieces) + content[place:]
        return content

    return inserted


def remove(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content))
    return content[:start] + content[start + chance.randint(1, 20) :]


def noise(content: bytes, chance: random.Random) -> bytes:
    return chance.randbytes(chance.randint(1, 400))


def letters(content: bytes, chance: random.Random) -> bytes:
    """Random characters of all planes, line ends and quotes among them."""
    codes = [chance.choice([chance.randrange(0x20), chance.randrange(0x110000), 10, 34, 44, 9]) for _ in range(200)]
    return "".join(map(chr, codes)).encode("utf-8", "replace")


def shuffle_lines(content: bytes, chance: random.Random) -> bytes:
    lines = content.split(b"\n")
    chance.shuffle(lines)
    return b"\n".join(lines)


def values(content: bytes, chance: random.Random) -> bytes:
    """JSON of any shape, one value a line or all in one list."""

    def value(depth: int) -> object:
        kind = chance.randrange(9 if depth else 7)
        if kind == 7:
            return [value(depth - 1) for _ in range(chance.randint(0, 3))]
        if kind == 8:
            return {chance.choice(["text", "label", "x"]): value(depth - 1) for _ in range(chance.randint(0, 3))}
        return [None, True, 10 ** chance.randint(0, 400), 1.5, math.nan, "", "\ud800 text"][kind]

    columns = SHAPES[chance.choice(list(SHAPES))]
    rows = [{name: value(1) for name in columns} if chance.random() < 0.7 else value(3) for _ in range(10)]
    return (json.dumps(rows) if chance.random() < 0.5 else "\n".join(map(json.dumps, rows))).encode()


FAULTS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "none": lambda content, chance: content,
    "flip": flip,
    "cut": cut,
    "nul": insert(b"\0", b"\0\0\0"),
    "encoding": insert(b"\xff", b"\xe9", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),
    "ragged": insert(b",", b"\t", b"\n", b'"', b"\r", b";", b"\n,\n"),
    "brackets": insert(b"[", b"{", b"}", b"]", b'{"text": 1}\n', b"[" * 5_000, b"NaN"),
    "remove": remove,
    "noise": noise,
    "letters": letters,
    "lines": shuffle_lines,
    "values": values,
    "mark": lambda content, chance: chance.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b"]) + content,
    "wide": lambda content, chance: content.decode("utf-8", "replace").encode(chance.choice(["utf-16", "utf-16-le"])),
}


def cases() -> list[tuple[str, str, int]]:
    names = [*LINED, "a.parquet"]
    return [(name, fault, number) for name in names for fault in FAULTS for number in range(CASES_PER_FAULT)]


def build(name: str, fault: str, number: int, shape: str = "texts") -> bytes:
    chance = random.Random(f"{name} {fault} {number} {shape}")
    content = sound(name, chance, shape)
    packed = name.endswith(".gz") and number % 2 == 0  # damage inside the archive, or to the archive
    if packed:
        return gzip.compress(FAULTS[fault](gzip.decompress(content), chance), mtime=0)
    content = FAULTS[fault](content, chance)
    if number == CASES_PER_FAULT - 1 and fault == "none":  # the wrong ending: another kind of content
        other = chance.choice([each for each in LINED if each != name])
        content = sound(other, chance)
    return content


def check_problems(problems: tuple[Problem, ...], source: str, content: bytes | None) -> None:
    assert problems
    for problem in problems:
        assert problem.where == source
        assert problem.message
        assert problem.remedy.endswith((".", "?"))
        assert source in str(problem)
        if problem.line is None:
            assert any(part in problem.message for part in WITHOUT_LINE), problem
        else:
            assert problem.line >= 1
            if content is not None and not source.endswith((".gz", ".parquet")):
                assert problem.line <= content.count(b"\n") + 1, problem


def check_records(records: Records) -> None:
    assert len(records) >= 1
    beside = (records.labels, records.scores, records.queries, records.documents)
    columns = [*records.texts, records.lines, *(column for column in beside if column is not None)]
    assert {len(column) for column in columns} == {len(records)}
    assert all(text.strip() and text.encode() for column in records.texts for text in column)
    assert all(label == label.strip() != "" and label.encode() for label in records.labels or ())
    assert all(map(math.isfinite, records.scores or ()))
    assert all(
        each == each.strip() != "" and each.encode() for each in (*(records.queries or ()), *(records.documents or ()))
    )
    if records.shape == "ranking":
        assert records.documents is not None
        assert min(records.scores or [0]) >= 0
        under = {
            (query, text) for query, (text, _) in zip(records.queries or (), records.normalized_texts(), strict=True)
        }
        assert len(under) == len({query for query, _ in under})
    target_problems(records)
    if contradicting := without_contradictions(records, invalid="refuse")[1]:
        check_problems(tuple(contradicting), records.source, None)
    for targets in (pair_targets, unit_scores):
        try:
            targets(records)
        except DataError as error:
            check_problems(error.problems, records.source, None)
    assert all(earlier < later for earlier, later in zip(records.lines, records.lines[1:], strict=False)) or (
        records.source.endswith(".json")  # several objects may stand on one line
    )
    assert len(records.fingerprint()) == 64
    assert records.take(range(len(records))) == records


@pytest.mark.parametrize("invalid", ["refuse", "drop"])
def test_malformed_files(tmp_path: Path, invalid: str) -> None:
    """Every case ends in sound records or in a refusal by name and line, and examine agrees."""
    outcomes: Counter[str] = Counter()
    by_fault: dict[str, set[str]] = {}
    for name, fault, number in cases():
        content = build(name, fault, number)
        (tmp_path / name).write_bytes(content)
        layout = Layout(columns=("text", "label")) if number == 3 else Layout()
        found = examine(name, layout, tmp_path)
        json.dumps(found.to_dict())
        try:
            records = read(name, layout, base=tmp_path, invalid=invalid)  # type: ignore[arg-type]
        except DataError as error:
            outcomes["refused"] += 1
            by_fault.setdefault(fault, set()).add("refused")
            check_problems(error.problems, name, content)
            assert found.problems
        else:
            outcomes["read"] += 1
            by_fault.setdefault(fault, set()).add("read")
            check_records(records)
            assert found.usable == len(records)
            assert not found.structural
            assert invalid == "drop" or not found.problems
        if found.problems:
            check_problems(found.problems, name, content)
    assert sum(outcomes.values()) == len(cases()) == 8 * len(FAULTS) * CASES_PER_FAULT >= 600
    assert outcomes["read"] >= 100
    assert outcomes["refused"] >= 300
    assert all("refused" in seen for fault, seen in by_fault.items()), by_fault


OTHERS = [shape for shape in SHAPES if shape != "texts"]


@pytest.mark.parametrize("invalid", ["refuse", "drop"])
@pytest.mark.parametrize("shape", OTHERS)
def test_malformed_files_of_other_shapes(tmp_path: Path, shape: str, invalid: str) -> None:
    """Pairs, triplets, rankings and corpora end in sound records or in a refusal, too, and a stream agrees."""
    outcomes: Counter[str] = Counter()
    for name in ("a.csv", "a.tsv", "a.jsonl", "a.json", "a.jsonl.gz"):
        for fault in FAULTS:
            for number in range(2):
                content = build(name, fault, number, shape)
                (tmp_path / name).write_bytes(content)
                found = examine(name, Layout(), tmp_path)
                json.dumps(found.to_dict())
                try:
                    records = read(name, base=tmp_path, invalid=invalid)  # type: ignore[arg-type]
                except DataError as error:
                    outcomes["refused"] += 1
                    check_problems(error.problems, name, content)
                    assert found.problems
                else:
                    outcomes[records.shape] += 1
                    check_records(records)
                    assert found.usable == len(records)
                stream = Stream(name, size=3, base=tmp_path, invalid=invalid)  # type: ignore[arg-type]
                lines = [line for window in stream for line in window.lines]
                try:
                    whole = read(name, base=tmp_path, need="text", invalid=invalid)  # type: ignore[arg-type]
                except DataError as error:
                    with pytest.raises(DataError) as caught:
                        stream.finish()
                    assert caught.value.problems == error.problems  # noqa: PT017  # the two refusals are compared
                else:
                    assert (lines, stream.finish()) == (whole.lines, whole.notes)
    assert sum(outcomes.values()) == 5 * 2 * len(FAULTS)
    assert outcomes["refused"] >= 40
    assert outcomes["texts" if shape == "corpus" else shape] >= 20


def test_sound_files_are_read(tmp_path: Path) -> None:
    """What the damage starts from is read without a fault, so refusals are due to the damage."""
    for shape in SHAPES:
        for name in [*LINED, "a.parquet"]:
            (tmp_path / name).write_bytes(sound(name, random.Random(name), shape))
            records = read(name, base=tmp_path)
            assert len(records) >= 2
            assert records.shape == ("texts" if shape == "corpus" or name == "a.txt" else shape)
