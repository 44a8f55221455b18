"""A stream gives what reading at once gives, a window at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nearfar.data import Layout, Records, Stream, read, table
from nearfar.data import readers as stream_module
from nearfar.errors import DataError

SIZE = 4


def put(folder: Path, *lines: str) -> None:
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")


def joined(windows: list[Records]) -> tuple[list[list[str]], list[int]]:
    columns = [[text for window in windows for text in window.texts[place]] for place in range(len(windows[0].texts))]
    return columns, [line for window in windows for line in window.lines]


SOUND = {
    "texts": {"text": "t"},
    "pairs": {"text_a": "a", "text_b": "b"},
    "triplets": {"anchor": "a", "positive": "p", "negative": "n"},
    "ranking": {"query_id": 1, "query": "q", "doc_id": None, "doc": "d", "relevance": "x"},
}


@pytest.mark.parametrize("shape", SOUND)
@pytest.mark.parametrize("rows", [1, SIZE - 1, SIZE, SIZE + 1, 3 * SIZE])
def test_windows_are_what_reading_gives(tmp_path: Path, shape: str, rows: int) -> None:
    """The same texts and lines, in windows that are full but for the last; as often as one likes."""
    put(tmp_path, *(json.dumps({**SOUND[shape], "n": n}) for n in range(rows)))
    whole = read("a.jsonl", base=tmp_path, need="text")
    stream = Stream("a.jsonl", size=SIZE, base=tmp_path)
    for _ in range(2):
        windows = list(stream)
        assert [len(window) for window in windows] == [SIZE] * (rows // SIZE) + [rows % SIZE] * (rows % SIZE > 0)
        assert joined(windows) == (list(whole.texts), whole.lines)
        assert {window.shape for window in windows} == {whole.shape} == {"pairs" if shape == "ranking" else shape}
        assert stream.finish() == whole.notes == ()


FAULTY = ['{"text": "a"}', '{"text": ""}', "", "{]", '{"text": 1}', *['{"text": "b"}'] * 9, '{"text": null}']


def test_what_is_wrong_is_told_at_the_end(tmp_path: Path) -> None:
    """All at once, as reading tells it, of the last time through only."""
    put(tmp_path, *FAULTY)
    with pytest.raises(DataError) as whole:
        read("a.jsonl", base=tmp_path, need="text")
    stream = Stream("a.jsonl", size=SIZE, base=tmp_path)
    for _ in range(2):
        assert sum(map(len, stream)) == 10
        with pytest.raises(DataError) as parts:
            stream.finish()
        assert parts.value.problems == whole.value.problems
    assert len(whole.value.problems) == 4


def test_dropped_rows_are_counted_over_all_windows(tmp_path: Path) -> None:
    """With the first line of each reason; windows of none but bad rows are empty."""
    put(tmp_path, *['{"text": ""}'] * (2 * SIZE), '{"text": "a"}', '{"text": ""}')
    stream = Stream("a.jsonl", size=SIZE, base=tmp_path, invalid="drop")
    assert [len(window) for window in stream] == [0, 0, 1]
    assert stream.finish() == read("a.jsonl", base=tmp_path, need="text", invalid="drop").notes
    assert stream.finish() == (f"{2 * SIZE + 1} rows dropped because the text is empty (first on line 1)",)
    put(tmp_path, '{"text": ""}')
    assert sum(map(len, stream)) == 0
    with pytest.raises(DataError, match="no rows are left"):
        stream.finish()


def test_a_late_column_and_unknown_columns_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns are decided by the first rows; one that would have decided otherwise is refused by line."""
    monkeypatch.setattr(table, "PEEK", SIZE)
    put(tmp_path, *['{"sentence": "a"}'] * 10, '{"sentence": "a", "text": "b"}')
    stream = Stream("a.jsonl", size=SIZE, base=tmp_path)
    list(stream)
    with pytest.raises(DataError, match=r"a\.jsonl:11: a column 'text' appears first here, but the 10 rows before"):
        stream.finish()
    put(tmp_path, '{"foo": "a"}')
    assert list(stream) == []
    with pytest.raises(DataError, match="no column is recognized as the text"):
        stream.finish()
    named = Stream("a.jsonl", Layout("foo"), size=SIZE, base=tmp_path)
    assert joined(list(named)) == ([["a"]], [1])


def test_only_a_window_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a window comes, no row beyond it has been read."""
    monkeypatch.setattr(table, "PEEK", SIZE)
    put(tmp_path, *(f'{{"text": "{n}"}}' for n in range(5 * SIZE)))
    taken = 0
    rows_of = stream_module.rows_of  # type: ignore[attr-defined]

    def counting(*arguments: object) -> object:
        nonlocal taken
        for row in rows_of(*arguments):  # type: ignore[arg-type]
            taken += 1
            yield row

    monkeypatch.setattr(stream_module, "rows_of", counting)
    seen = []
    for _ in Stream("a.jsonl", size=SIZE, base=tmp_path):
        seen.append(taken)
    assert seen == [SIZE * n for n in range(1, 6)]


def test_no_such_source(tmp_path: Path) -> None:
    """Is reported when the reading begins."""
    with pytest.raises(DataError, match="there is no such file"):
        next(iter(Stream("none.csv", size=1, base=tmp_path)))
