"""The benchmark on plain texts: its texts, its runs and its tables, with the toy encoder on made-up data."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest

from benchmarks import geometry, raw_text

WORDS = ["apple", "pear", "hammer", "saw", "horse", "otter", "river", "cloud", "violin", "lantern"]


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shape of the real one."""
    folder = tmp_path_factory.mktemp("data")
    draw = random.Random(1)
    texts = [f"the {draw.choice(WORDS)} and the {draw.choice(WORDS)} {row}" for row in range(40)]
    write(folder / "wiki_plain" / "train.jsonl.gz", [{"text": text} for text in [*texts, texts[0]]])
    for name in ("stsb", "simlex999"):
        pairs = [
            {"text_a": draw.choice(texts), "text_b": draw.choice(texts), "score": float(row % 6)} for row in range(20)
        ]
        write(folder / name / "test.jsonl.gz", pairs)
    return folder


def settings(source: Path, results: Path, *more: str) -> list[str]:
    return [
        "run", "--encoder", "toy", "--corpus", "wiki_plain", "--seed", "2", "--limit", "24", "--rows", "12",
        "--source", str(source), "--results", str(results), *more,
    ]  # fmt: skip


def test_every_contender_runs_once_and_the_tables_hold_them(source, tmp_path, capsys):
    """From the command line to the tables; a second time there is nothing left to do."""
    results = tmp_path / "results.jsonl"
    raw_text.main(settings(source, results))
    written = results.read_text()
    raw_text.main(settings(source, results))
    capsys.readouterr()
    lines = {line["contender"]: line for line in raw_text.lines(results)}

    assert results.read_text() == written
    assert list(lines) == list(raw_text.CONTENDERS)
    assert len({line["sts"] for line in lines.values()} | {lines["before"]["geometry"]["anisotropy"]}) > 2
    assert lines["before"]["geometry"] != lines["mirror"]["geometry"]
    raw_text.main(["table", "--results", str(results)])
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert len(rows) == len(lines)
    assert {row.count("|") for row in rows} == {header.count("|")}
    raw_text.main(["grid", "--results", str(results)])
    *_, row = capsys.readouterr().out.splitlines()
    four = [lines[name]["sts"] for name in ("mirror-neither", "mirror-dropout", "mirror-mask", "mirror")]
    assert f"| {' | '.join(f'{score:.2f}' for score in four)} |" in row
    assert f"{four[3] - four[2] - four[1] + four[0]:+.2f}" in row


def test_texts_are_distinct_and_the_same_for_every_contender_of_a_seed(source, tmp_path):
    chosen = raw_text.parsed(settings(source, tmp_path / "x", "--limit", "30"))
    one = raw_text.drawn("wiki_plain", "simcse", 2, chosen).texts[0]

    assert len(set(one)) == 30
    assert raw_text.drawn("wiki_plain", "mirror", 2, chosen).texts[0] == one
    assert raw_text.drawn("wiki_plain", "mirror", 3, chosen).texts[0] != one
    random_ones = raw_text.drawn("wiki_plain", "mirror-random", 2, chosen).texts[0]
    assert [len(text) for text in random_ones] == [len(text) for text in one]
    assert not set(random_ones) & set(one)


def test_scrambling_keeps_lengths_and_blanks_only():
    found = raw_text.scrambled("Two words.", np.random.default_rng(0))

    assert [len(word) for word in found.split(" ")] == [3, 6]
    assert found.replace(" ", "").isalpha()


def test_triplets_are_for_simcse_alone(source, tmp_path):
    chosen = raw_text.parsed(settings(source, tmp_path / "x", "--corpus", "nli_triplets"))
    found = [job for job in raw_text.jobs(chosen) if job[1] == "nli_triplets"]

    assert found == [("toy", "nli_triplets", "simcse", 2)]


def test_the_control_has_other_weights_and_the_same_tokenizer(tmp_path):
    from nearfar.encoding import load

    base = tmp_path / "models" / "small"
    toy = load("toy")
    toy.model.network.save_pretrained(base)
    toy.tokenizer.save_pretrained(base)
    control = raw_text.open_encoder("small:random", tmp_path / "models", tmp_path / "control")
    texts = ["a text", "another"]

    assert raw_text.open_encoder("small", tmp_path / "models", tmp_path / "x") == str(base)
    assert load(control).tokenizer.get_vocab() == toy.tokenizer.get_vocab()
    assert not np.allclose(load(control).embed(texts), load(base).embed(texts), atol=0.1)


def test_memory_does_not_grow_with_the_vectors(capsys):
    """A line for the report and one for the whitening; 154 MB of vectors, of which a part is held."""
    geometry.main(["--rows", "200000", "--dim", "192"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert [line["what"] for line in found] == ["geometry report", "whitening"]
    assert all(line["own_mb"] < 60 for line in found)
