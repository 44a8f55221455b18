"""The studies of Mirror-BERT and SimCSE, done again: their files, the data they need, synergy, and ours beside the figures."""

from __future__ import annotations

import gzip
import json
import tomllib
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr, ttest_1samp

from nearfar.data import read
from nearfar.errors import DataError
from nearfar.evaluation.suites import SENTENCES
from nearfar.experiments.plan import plan_study
from nearfar.experiments.published import FOLDER, find_paper, find_table
from nearfar.experiments.published.comparison import as_markdown, beside, beyond
from nearfar.experiments.published.table_data import DataFolder, TableOptions
from nearfar.experiments.published.word_vectors import read_word_vectors, vector_rows
from nearfar.experiments.records import Cell, DataSet, Plan, Record, plan_text, write_record
from nearfar.experiments.reproduce import prepare
from nearfar.experiments.study import read_study
from tests.experiments.studies import in_process

PAPER = find_paper("mirror")
SIMCSE = find_paper("simcse")
CORPORA = {
    "words": "en_words_10k/train.jsonl.gz", "phrases": "hpo_synonyms/all.jsonl.gz",
    "sentences": "wiki_plain/train.jsonl.gz",
}  # fmt: skip


def put(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """All corpora, with texts that come twice, and three sets of scored pairs."""
    folder = tmp_path / "data"
    for file in CORPORA.values():
        put(folder, file, [{"text": f"thing {n % 30} and thing {n % 30 + 1}"} for n in range(36)])
    for name in ("simlex999", "stsb", "sts12"):
        rows = [{"text_a": f"thing {n}", "text_b": f"thing {n + n % 4} again", "score": 4.0 - n % 4} for n in range(14)]
        put(folder, f"{name}/test.jsonl.gz", rows)
    return folder


@pytest.mark.parametrize("number", [table.number for table in PAPER.tables])
def test_every_study_can_be_planned_on_the_data_that_is_there(data, tmp_path, number):
    """All contenders, by five seeds or one trial where nothing is drawn; a limit also holds for the pairs."""
    table = find_table(PAPER, number)
    ready = prepare(DataFolder(PAPER, table, data), tmp_path / "out", TableOptions(encoder="toy", limit=32))
    assert not ready.missing
    assert len(ready.studies) == len(table.studies)
    for one in ready.studies:
        planned = plan_study(read_study(one.file))
        assert planned.plan.metric == "spearman"
        assert planned.plan.baseline == table.baseline
        [found] = planned.plan.data
        assert (found.rows, found.limits) == (30, (30,)), "each text once, and not more than there are"
        _, pairs = planned.rows[found.name]
        sets = {"simlex999"} if "words" in (found.name, number) else {"simlex999", "sts12", "stsb"}
        assert set(pairs.labels) == sets
        assert tomllib.loads(one.file.read_text())["data"][0]["test_limit"] == 32


def test_a_set_that_is_too_small_or_not_there_is_named(data, tmp_path):
    """The table has 10,000 texts."""
    table = find_table(PAPER, "granularity")
    (data / CORPORA["phrases"]).unlink()
    for name in ("words", "sentences"):
        put(data, CORPORA[name], [{"text": f"thing {n}"} for n in range(10_000 if name == "words" else 9_999)])
    ready = prepare(DataFolder(PAPER, table, data), tmp_path / "out")
    assert [one.file.stem for one in ready.studies] == ["granularity-words"]
    told = [str(problem) for problem in ready.missing]
    assert any("phrases is not run: there is no hpo_synonyms/all.jsonl.gz" in one for one in told)
    assert any("sentences is not run: there are 9,999 rows, and the table has 10,000" in one for one in told)


def test_the_settings_are_those_of_the_slides():
    """Spot checks: what is masked and dropped in the square, the rate of random strings, texts of each granularity."""
    square = read_study(FOLDER / "mirror/masking-dropout.toml")
    recipes = {one.name: square.recipe(one) for one in square.contenders}
    told = {name: (recipe.objective.masked, recipe.encoder.dropout) for name, recipe in recipes.items()}  # type: ignore[attr-defined]
    assert told == {"neither": (0, 0.0), "dropout": (0, None), "mask": (None, 0.0), "both": (None, None)}
    words = read_study(FOLDER / "mirror/words.toml")
    strings = words.contenders[2]
    assert (strings.random_letters, words.recipe(strings).training.learning_rate) == (True, 5e-5)
    for name, length in (("words", 25), ("phrases", 50), ("sentences", 50)):
        study = read_study(FOLDER / f"mirror/granularity-{name}.toml")
        recipe = study.recipe(study.contenders[1])
        assert (recipe.objective.granularity, recipe.encoder.max_length) == (name, length)  # type: ignore[attr-defined]
        assert recipe.encoder.pooling == ("mean" if name == "sentences" else "first")
        assert recipe.batches.size == 200


def test_other_settings_read_all_tokens(data, tmp_path):
    """For encoders whose first token was never trained to mean anything."""
    options = TableOptions(encoder="toy", limit=20, settings="mean")
    [ready] = prepare(DataFolder(PAPER, find_table(PAPER, "words"), data), tmp_path / "out", options).studies
    study = read_study(ready.file)
    assert {study.recipe(one).encoder.pooling for one in study.contenders} == {"mean"}


def write_study(folder: Path, scores: dict[str, list[float]], geometry: dict[str, Any]) -> None:
    """A finished study of some contenders, one trial a seed."""
    cells = [Cell(id=f"{name}-{seed}", data="sentences", limit=None, contender=name, seed=seed, fold=0)
             for name, values in scores.items() for seed in range(len(values))]  # fmt: skip
    plan = Plan(
        name="square", metric="spearman", baseline="neither", seeds=tuple(range(5)), folds=1, cells=tuple(cells),
        contenders={name: {} for name in scores},
        data=(DataSet(name="sentences", file="f", limits=(None,), digest="d", rows=9, kind="plain", test="."),),
    )  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "study.json").write_text(plan_text(plan))
    for cell in cells:
        record = Record(
            id=cell.id, data=cell.data, limit=None, contender=cell.contender, seed=cell.seed, fold=0, status="done",
            metric="spearman", scores={"spearman": scores[cell.contender][cell.seed]}, geometry=geometry,
            space={"after": {"layers": []}},
        )  # fmt: skip
        write_record(folder, record, {})


def test_the_synergy_is_what_both_bring_beyond_the_sum_of_each(tmp_path):
    """Seed by seed, with the interval of scipy's t-test; only over seeds that all four have."""
    table = find_table(PAPER, "masking-dropout")
    scores = {
        "neither": [0.50, 0.52, 0.51, 0.49, 0.50], "dropout": [0.55, 0.56, 0.57, 0.53, 0.54],
        "mask": [0.53, 0.52, 0.55, 0.50, 0.52], "both": [0.66, 0.64, 0.68, 0.63],
    }  # fmt: skip
    space = {"before": {"anisotropy": 0.4, "uniformity": -1.0}, "after": {"anisotropy": 0.1, "uniformity": -2.0}}
    write_study(tmp_path / "s", scores, space)
    extra = [
        100 * (scores["both"][n] - scores["dropout"][n] - scores["mask"][n] + scores["neither"][n]) for n in range(4)
    ]
    low, high = ttest_1samp(extra, 0).confidence_interval()
    first, *others = beyond(table, [tmp_path / "s", tmp_path / "none"])
    assert first == (
        f"Synergy on sentences: dropout and mask together bring {fmean(extra):+.2f} (95 % interval {low:+.2f} to "
        f"{high:+.2f}) beyond the sum of each alone, over 4 seeds."
    )
    assert len(others) == 4
    assert others[0] == (
        "Space of neither on sentences: uniformity -1.000 before, -2.000 after; anisotropy 0.400 before, 0.100 after."
    )
    lines = beside(table, [tmp_path / "s"])
    assert [line.contender for line in lines] == ["dropout", "mask", "both"]
    assert first in as_markdown(PAPER, table, lines, [], [first])


def test_the_table_of_words_is_printed_beside_its_figures(data, tmp_path):
    """From the command to published.md, on the toy encoder; the same command goes on, and finds nothing to do."""
    words = ("reproduce", "mirror", "--table", "words", "--data", data, "--encoder", "toy", "--limit", "20", "--seeds",
             "2", "--workers", "1", "--out", tmp_path / "out")  # fmt: skip
    status, out, err = in_process(*words)
    assert status == 0, err
    told = (tmp_path / "out" / "published.md").read_text()
    for said in ("0.267", "0.556", "+0.289", "0.481", "+0.214", "too few runs"):
        assert said in out
        assert said in told
    assert "Space of mirror on words: alignment" in told
    assert "note: the encoder is toy; the paper's is bert-base-uncased" in err
    status, _, err = in_process(*words)
    assert (status, "nothing ran" in err) == (0, True)


# SimCSE


@pytest.mark.parametrize(("number", "mean"), [("unsupervised", 76.25), ("supervised", 81.57)])
def test_figures_of_simcse_have_the_means_that_the_paper_prints(number, mean):
    """A digit that was copied wrongly would move a mean; the baseline is the same in both tables."""
    published = find_table(SIMCSE, number).published
    rows = [row for name, data in published.items() if name != "spearman" for row in data.values()]
    assert [name for name in published if name != "spearman"] == [f"{name}/spearman" for name in SENTENCES]
    assert fmean(row["before"] for row in rows) == pytest.approx(56.70, abs=0.0051)
    assert fmean(row["simcse"] for row in rows) == pytest.approx(mean, abs=0.0051)


def test_the_settings_are_those_of_simcse():
    """Batches, rates and epochs as its authors state them; the first token, or the pooler that stays."""
    for name, values in (("unsupervised", (64, 3e-5, 1, "first")), ("supervised", (512, 5e-5, 3, "pooler"))):
        study = read_study(FOLDER / f"simcse/{name}.toml")
        recipe = study.recipe(study.contenders[1])
        found = (recipe.batches.size, recipe.training.learning_rate, recipe.training.epochs, recipe.encoder.pooling)
        assert found == values
        assert (recipe.objective.temperature, recipe.encoder.max_length) == (0.05, 32)  # type: ignore[attr-defined]


@pytest.mark.parametrize("number", [pytest.param("unsupervised", marks=pytest.mark.slow), "supervised"])
def test_each_set_of_simcse_is_printed_beside_its_figure(data, tmp_path, number):
    """Those that are not in the folder count as not run."""
    rows = [{"anchor": f"thing {n}", "positive": f"a thing {n}", "negative": f"no thing {n + 1}"} for n in range(24)]
    put(data, "nli_triplets/train.jsonl.gz", rows)
    status, out, err = in_process(
        "reproduce", "simcse", "--table", number, "--data", data, "--encoder", "toy", "--limit", "20", "--seeds", "2",
        "--workers", "1", "--out", tmp_path / "out",
    )  # fmt: skip
    assert status == 0, err
    lines = beside(find_table(SIMCSE, number), [tmp_path / "out" / number])
    ran = {line.metric for line in lines if line.comparison is not None}
    assert ran == {"spearman", "sts12/spearman", "stsb/spearman"}
    assert {line.word for line in lines} == {"too few runs", "not run"}
    for line in lines:
        assert line.published is None or f"{line.published[1]:.2f}" in out


# What cannot be run


def test_an_encoder_that_is_none_is_refused_before_any_trial(data, tmp_path):
    (tmp_path / "nothing").mkdir()
    for encoder, words in ((tmp_path / "nothing", "so it is no encoder"), ("./nowhere", "there is no such folder")):
        status, _, err = in_process(
            "reproduce", "mirror", "--table", "words", "--data", data, "--encoder", encoder, "--out", tmp_path / "out"
        )
        assert (status, err.count(words)) == (1, 1), err
    assert not (tmp_path / "out").exists()


def test_a_table_of_which_nothing_finished_is_an_error_and_no_table(data, tmp_path):
    """All trials failed before, and stay so."""
    folder = tmp_path / "out" / "words"
    options = TableOptions(encoder="toy", limit=20, seeds=(2,))
    [ready] = prepare(DataFolder(PAPER, find_table(PAPER, "words"), data), tmp_path / "out", options).studies
    planned = plan_study(read_study(ready.file))
    folder.mkdir()
    (folder / "study.json").write_text(plan_text(planned.plan))
    for cell in planned.plan.cells:
        record = Record(id=cell.id, data=cell.data, limit=cell.limit, contender=cell.contender, seed=cell.seed,
                        fold=0, status="failed", metric="spearman", reason="out of memory")  # fmt: skip
        write_record(folder, record, {})
    status, out, err = in_process(
        "reproduce", "mirror", "--table", "words", "--data", data, "--encoder", "toy", "--limit", "20", "--seeds", "2",
        "--workers", "1", "--out", tmp_path / "out",
    )  # fmt: skip
    assert status == 1
    assert "there is nothing to compare" in err
    assert "--retry-failed" in err
    assert "published baseline" not in out
    assert not (tmp_path / "out" / "published.md").exists()


def test_word_vectors_are_one_more_row_of_the_table_of_words(data, tmp_path):
    """By the cosines of the file; words without a vector count with 0, and how many is told."""
    rows = [{"text_a": f"w{n % 9}", "text_b": f"w{n % 7 + 2}", "score": n % 5} for n in range(24)]
    put(data, "simlex999/test.jsonl.gz", rows)
    table = find_table(PAPER, "words")
    folder = DataFolder(PAPER, table, data)
    pairs = read(str(folder.find("words", {"test": "simlex999/test.jsonl.gz"}, "", "")["test"]))
    left, right = pairs.texts[:2]
    words = sorted({*left, *right})
    draw = np.random.default_rng(0)
    vectors = {word: draw.normal(size=3) for word in words[1:]}
    file = tmp_path / "v.vec"
    lines = [f"{word} {' '.join(map(str, vector))}\n" for word, vector in vectors.items()]
    file.write_text(f"{len(vectors)} 3\n{''.join(lines)}")
    (row,), (note,) = vector_rows(table, folder, file, [])
    cosines = []
    for one, other in zip(left, right, strict=True):
        if one in vectors and other in vectors:
            x, y = vectors[one], vectors[other]
            cosines.append(float(x @ y / np.sqrt((x @ x) * (y @ y))))
        else:
            cosines.append(0.0)
    assert row[:5] == ["words", "spearman", "word vectors", "–", f"{spearmanr(pairs.scores, cosines).statistic:.3f}"]
    assert row[6:8] == ["0.267", "0.434"]
    known = sum(one in vectors and other in vectors for one, other in zip(left, right, strict=True))
    assert f"both words of {known} of {len(pairs)} pairs" in note


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "there is no such file"),
        (b"\xff\xfe\x00", "no text file of word vectors"),
        (b"zebra 1 2 3\n", "none of the words"),
        (b"a 1 2 3\nb 1 2\n", "a word has 2 numbers, the first one 3"),
        (b"a 1 x 3\n", "what is no number"),
    ],
)
def test_vectors_that_cannot_be_read_are_refused(tmp_path, content, told):
    if content is not None:
        (tmp_path / "v.vec").write_bytes(content)
    with pytest.raises(DataError, match=told):
        read_word_vectors(tmp_path / "v.vec", ["a", "b"])
