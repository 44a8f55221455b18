"""Published tables, done again: their files, the data they need, and ours beside the published figures."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from nearfar.data import RowType, read
from nearfar.errors import DataError, SettingError
from nearfar.experiments.plan import plan_study
from nearfar.experiments.published import FOLDER, PublishedTable, find_figure, find_paper, find_table, papers
from nearfar.experiments.published.comparison import HEAD, Line, as_markdown, averages, beside, conclusion, verdicts
from nearfar.experiments.published.table_data import DataFolder, TableOptions, store_rows
from nearfar.experiments.records import Cell, DataSet, Plan, Record, plan_text, read_records, write_record
from nearfar.experiments.reproduce import prepare
from nearfar.experiments.search import number_of_points
from nearfar.experiments.study import read_study
from nearfar.recipe.class_objectives import TripleEntropy
from nearfar.recipe.objectives import Blend
from tests.experiments.studies import in_process

TABLES = [(paper, table) for paper in papers() for table in paper.tables if table.tasks is None]
STUDIES = [(paper, table, name) for paper, table in TABLES for name in table.studies]


def put(folder: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows where a data set is looked for."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def texts(number: int, labels: Sequence[str] = ("0", "1")) -> list[dict[str, Any]]:
    return [{"text": f"{labels[n % len(labels)]} is what number {n} has", "label": labels[n % len(labels)]}
            for n in range(number)]  # fmt: skip


def pairs(number: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"text_a": f"thing {n} is here", "text_b": f"thing {n + n % 2} is there", "label": 1 - n % 2}
            for n in range(start, start + number)]  # fmt: skip


def scored(number: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"text_a": f"thing {n} is here", "text_b": f"thing {n + n % 5} is there", "score": float(5 - n % 5)}
            for n in range(start, start + number)]  # fmt: skip


def ranking(queries: int, start: int = 0, grades: Sequence[int] = (2, 1, 0)) -> list[dict[str, Any]]:
    return [{"query_id": f"q{q}", "query": f"where is thing {q}", "doc_id": f"q{q}d{n}",
             "doc": f"thing {q + n} is in place {n}", "relevance": grade}
            for q in range(start, start + queries) for n, grade in enumerate(grades)]  # fmt: skip


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def command(*words: str | Path) -> tuple[int, str, str]:
    """Run ``nearfar reproduce`` in this process: exit status, standard output, standard error."""
    return in_process("reproduce", *words)


# What is shipped


def test_every_study_file_belongs_to_a_table_and_the_other_way_round():
    """No file is forgotten, none is missing, and there are as many tables as there should be."""
    there = {str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/*.toml")}
    together = {table.tasks for paper in papers() for table in paper.tables if table.tasks is not None}
    assert there == {name for _, _, name in STUDIES} | together
    assert len(there) == 28
    assert {paper.name: len(paper.tables) for paper in papers()} == {
        "batch-softmax": 5, "label-aware": 4, "mirror": 6, "multi-task": 2, "simcse": 2,
        "triple-entropy": 5,
    }  # fmt: skip
    assert {paper.name: [figure.tables for figure in paper.figures] for paper in papers() if paper.figures} == {
        "triple-entropy": [("2", "3", "4", "5")],
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for _, _, name in STUDIES])
def test_every_study_file_is_a_good_study(name):
    """Its recipes are checked, as those of any study."""
    study = read_study(FOLDER / name)
    assert len(study.contenders) >= 2
    assert len(study.settings.seeds) * (1 if study.data[0].test else study.settings.folds) >= 5, "too few for a verdict"


@pytest.mark.parametrize(("paper", "table"), TABLES, ids=lambda each: getattr(each, "name", None) or each.number)
def test_figures_are_of_data_sets_and_contenders_that_are_run(paper, table):
    """Every published figure has its place in a study; the baseline is one of the contenders everywhere."""
    read = [read_study(FOLDER / name) for name in table.studies]
    ran = {(data.name, contender.name) for study in read for data in study.data for contender in study.contenders}
    told = {(data, name) for rows in table.published.values() for data, row in rows.items() for name in row}
    assert told <= ran
    assert {data for data, _ in ran} <= paper.data.keys()
    assert all(study.baseline == table.baseline for study in read)
    assert {study.settings.metric for study in read} == {next(iter(table.published))}
    assert all(table.baseline in row for rows in table.published.values() for row in rows.values())
    assert set(table.needs) <= {data for data, _ in told}
    ceiling = {100: (20, 100), 1: (0, 1)}[table.scale]
    assert all(ceiling[0] < value <= ceiling[1] for rows in table.published.values() for row in rows.values()
               for value in row.values())  # fmt: skip


@pytest.mark.parametrize(
    ("number", "baseline", "contender"),
    [("2", 85.91, 86.62), ("3", 90.86, 91.72), ("4", 90.95, 91.15), ("5", 91.00, 91.04), ("6", 87.52, 88.00)],
)
def test_figures_of_triple_entropy_have_the_means_that_the_paper_prints(number, baseline, contender):
    """A digit that was copied wrongly would move a mean."""
    rows = find_table(find_paper("triple-entropy"), number).published["f1_weighted"].values()
    assert fmean(row["cross-entropy"] for row in rows) == pytest.approx(baseline, abs=0.0051)
    assert fmean(row["triple-entropy"] for row in rows) == pytest.approx(contender, abs=0.0051)


def test_the_settings_are_those_of_the_papers():
    """Spot checks: SoftTriple as published, and what the appendix of the batch-softmax paper has for each data set."""
    study = read_study(FOLDER / "triple-entropy/table-2.toml")
    recipe = study.recipe(study.contenders[1])
    assert isinstance(recipe.objective, TripleEntropy)
    assert (recipe.objective.preset, recipe.objective.beta, recipe.objective.scale) == ("as-published", 0.9, 3.3)
    assert (recipe.training.learning_rate, recipe.batches.size, recipe.training.warmup) == (1e-5, 64, 0.06)
    assert {data.limit for data in study.data} == {1000}

    stated = {  # size, group, rate, epochs, temperature, weight of batch-softmax
        "table-2-cqa-a": (30, 8, 2e-5, 5, 0.055, 0.1), "table-2-cqa-b": (30, 5, 3e-5, 7, 0.07, 0.9),
        "table-4-mrpc": (30, 4, 2e-5, 6, 0.1, 0.1), "table-4-qqp": (50, 8, 2e-5, 6, 1.2, 0.1),
        "table-5": (30, 8, 2e-5, 5, 0.1, 0.1), "table-1": (50, 8, 2e-5, 5, 0.1, 0.9),
    }  # fmt: skip
    for name, values in stated.items():
        study = read_study(FOLDER / f"batch-softmax/{name}.toml")
        recipe = study.recipe(next(each for each in study.contenders if each.name == "combo"))
        assert isinstance(recipe.objective, Blend)
        found: Any = recipe.objective.parts["bsc"]
        weights = recipe.objective.weights
        assert (recipe.batches.size, recipe.batches.group, recipe.training.learning_rate, recipe.training.epochs,
                found.temperature, weights["bsc"]) == values  # fmt: skip
        assert weights["bsc"] + weights["mse"] == pytest.approx(1)
        assert recipe.encoder.max_length == 90


def test_papers_and_tables_go_by_several_names():
    assert find_paper("BSC") is find_paper("batch-softmax")
    paper = find_paper("triple-entropy")
    assert find_table(paper, "II") is find_table(paper, "2")
    with pytest.raises(SettingError, match=r"there is no paper 'tripel-entropy'.*Did you mean 'triple-entropy'"):
        find_paper("tripel-entropy")
    with pytest.raises(SettingError, match="no table '9'; there are: 2, 3, 4, 5, 6"):
        find_table(paper, "9")
    with pytest.raises(SettingError, match="name a table of triple-entropy with --table; there are: 2, 3"):
        find_table(paper, None)
    with pytest.raises(SettingError, match="triple-entropy has no figure '3'; there are: 2"):
        find_figure(paper, "3")
    with pytest.raises(SettingError, match="mirror has no figure '2'; it has none over several tables"):
        find_figure(find_paper("mirror"), "2")
    with pytest.raises(SettingError, match="there are: words, masking-dropout, negatives"):
        find_table(find_paper("mirror-bert"), None)


# Study files for the data that is there


def test_data_sets_that_are_there_are_run_and_the_others_named(tmp_path):
    """What is needed is said with the file that is looked for."""
    put(tmp_path / "data", "cr/all.jsonl.gz", texts(3_700))
    paper = find_paper("triple-entropy")
    prepared = prepare(DataFolder(paper, find_table(paper, "3"), tmp_path / "data"), tmp_path / "out")
    (ready,) = prepared.studies
    assert ready.file == tmp_path / "out" / "table-3.toml"
    assert ready.folder == tmp_path / "out" / "table-3"
    study = read_study(ready.file)
    assert [(data.name, data.file) for data in study.data] == [("cr", str(tmp_path / "data/cr/all.jsonl.gz"))]
    assert [contender.name for contender in study.contenders] == ["cross-entropy", "triple-entropy"]
    assert study.recipe(study.contenders[0]).encoder.name == "minilm"
    told = [str(problem) for problem in prepared.missing]
    assert len(told) == 2
    assert "mrpc is not run: there is no mrpc/train.jsonl.gz. Put it there: MRPC, pairs of sentences" in told[0]
    assert "trec is not run: there is no trec/train.jsonl.gz" in told[1]


def test_a_file_that_says_the_same_as_the_shipped_one_gives_the_same_recipes(tmp_path):
    """Nothing is lost or changed on the way through TOML, but that the untrained encoder may not win."""
    put(tmp_path, "stsb/train.jsonl.gz", scored(30))
    for split in ("dev", "test"):
        put(tmp_path, f"stsb/{split}.jsonl.gz", scored(10, 40))
    paper = find_paper("bsc")
    prepared = prepare(DataFolder(paper, find_table(paper, "5"), tmp_path), tmp_path / "out")
    (ready,) = prepared.studies
    ours, shipped = read_study(ready.file), read_study(FOLDER / "batch-softmax/table-5.toml")
    assert ours.settings == shipped.settings
    trained = [each for each in shipped.contenders if each.untrained is None]
    assert [each.name for each in ours.contenders] == [each.name for each in trained]
    (note,) = [note for note in prepared.notes if note.startswith("not run: SimCSE")]
    assert "sup-simcse-bert-base-uncased is not on this machine; name a folder with --checkpoint SimCSE=" in note
    for one, other in zip(ours.contenders, trained, strict=True):
        left, right = ours.recipe(one), shipped.recipe(other)
        assert (left.objective, left.stage, left.batches, left.training, left.encoder) == (
            right.objective, right.stage, right.batches, replace(right.training, keep_untrained=False), right.encoder,
        )  # fmt: skip
        assert left.data.dev == str(tmp_path / "out/rows/stsb-dev.jsonl")


def test_options_change_the_study_file_and_are_told(tmp_path):
    for name in ("cr/all", "trec/train"):
        put(tmp_path, f"{name}.jsonl.gz", texts(40))
    (tmp_path / "mine").mkdir()
    paper = find_paper("triple-entropy")
    table = find_table(paper, "2")
    options = TableOptions(encoder=str(tmp_path / "mine"), seeds=(7, 8), folds=3, limit=24, settings="trained")
    (ready,) = prepare(DataFolder(paper, table, tmp_path), tmp_path / "out", options).studies
    study = read_study(ready.file)
    assert (study.settings.seeds, study.settings.folds, study.settings.rare) == ((7, 8), 3, "keep")
    assert {data.limit for data in study.data} == {24}
    plain, triple = (study.recipe(contender) for contender in study.contenders)
    assert plain.encoder.name == str(tmp_path / "mine")
    assert plain.encoder.pooling == "first"
    assert (plain.training.learning_rate, plain.training.epochs, plain.batches.size) == (5e-5, 8, 32)
    assert isinstance(triple.objective, TripleEntropy)
    assert (triple.objective.preset, triple.objective.centers) == ("none", 100)
    told = options.differences(table, "minilm")
    assert told[0] == f"the encoder is {tmp_path / 'mine'}; the paper's is roberta-base"
    assert told[1:3] == [
        "the settings are not the paper's but those called trained",
        "other than in the study file: --seeds 7,8, --folds 3, --limit 24",
    ]
    assert told[3:] == list(table.notes)


def test_some_sets_of_a_table_are_run_with_the_mean_of_the_tokens(tmp_path):
    for name in ("cr/all", "trec/train"):
        put(tmp_path, f"{name}.jsonl.gz", texts(40))
    paper = find_paper("triple-entropy")
    table = find_table(paper, "2")
    options = TableOptions(limit=24, settings="mean", sets=("trec",))
    prepared = prepare(DataFolder(paper, table, tmp_path), tmp_path / "out", options)
    study = read_study(prepared.studies[0].file)
    assert [data.name for data in study.data] == ["trec"]
    assert not prepared.missing
    plain, triple = (study.recipe(contender) for contender in study.contenders)
    assert (plain.encoder.pooling, plain.encoder.max_length) == ("mean", 64)
    assert (plain.training.epochs, plain.training.learning_rate, plain.batches.size) == (2, 1e-4, 16)
    assert isinstance(triple.objective, TripleEntropy)
    assert (triple.objective.beta, triple.objective.scale, triple.objective.centers) == (0.7, 3.3, 10)
    assert "other than in the study file: --limit 24, --sets trec" in options.differences(table, "minilm")


def test_the_encoder_of_the_paper_goes_by_that_word(tmp_path):
    put(tmp_path, "cr/all.jsonl.gz", texts(1_000))
    paper = find_paper("triple-entropy")
    table = find_table(paper, "6")
    (ready,) = prepare(DataFolder(paper, table, tmp_path), tmp_path / "out", TableOptions(encoder="paper")).studies
    study = read_study(ready.file)
    assert study.recipe(study.contenders[0]).encoder.name == "roberta-large"
    assert TableOptions(encoder="paper").differences(table, "minilm") == list(table.notes)
    assert "the encoder is minilm" in TableOptions().differences(table, "minilm")[0]


def test_data_sets_that_are_too_small_are_named_unless_less_is_asked_for(tmp_path):
    """A part of a data set is not the data set of the paper; with a limit all of a small one is taken."""
    put(tmp_path, "imdb/train_sample5k.jsonl.gz", texts(30))
    put(tmp_path, "cr/all.jsonl.gz", texts(3_700))
    paper = find_paper("triple-entropy")
    prepared = prepare(DataFolder(paper, find_table(paper, "2"), tmp_path), tmp_path / "out")
    (told,) = [str(problem) for problem in prepared.missing if "imdb" in problem.message]
    assert "imdb is not run: there are 30 rows, and the table has 1,000" in told
    assert "--limit" in told
    assert not prepared.notes, "of what is not run nothing else is told"
    prepared = prepare(DataFolder(paper, find_table(paper, "5"), tmp_path), tmp_path / "out", TableOptions(limit=50))
    (ready,) = prepared.studies
    assert [(data.name, data.limit) for data in read_study(ready.file).data] == [("imdb", 30)]
    assert prepared.notes == ("imdb: imdb/train_sample5k.jsonl.gz takes the place of imdb/all.jsonl.gz",)
    with pytest.raises(DataError, match="imdb is not run: there are 30 rows, and the table has 50,000"):
        prepare(DataFolder(paper, find_table(paper, "5"), tmp_path), tmp_path / "out")


def test_a_limit_that_leaves_a_class_to_one_fold_leaves_out_that_data_set_only(tmp_path):
    """Seven rows of six classes have one row of most, which is in one fold; of two classes they have enough."""
    data, table = tmp_path / "data", find_table(find_paper("triple-entropy"), "3")
    put(data, "cr/all.jsonl.gz", texts(40))
    put(data, "trec/train.jsonl.gz", texts(40, ("a", "b", "c", "d", "e", "f")))
    ready = prepare(DataFolder(find_paper("triple-entropy"), table, data), tmp_path / "out", TableOptions(limit=7))
    assert [one.name for one in read_study(ready.studies[0].file).data] == ["cr"]
    told = [str(problem) for problem in ready.missing if "trec" in str(problem)]
    assert len(told) == 1
    assert "trec is not run with --limit 7: a class with all its rows in one fold" in told[0]
    assert told[0].endswith("Give a larger --limit, or fewer --folds.")
    assert plan_study(read_study(ready.studies[0].file)).trials


def test_other_formats_are_found_and_bad_files_named(tmp_path):
    (tmp_path / "cr").mkdir()
    (tmp_path / "cr" / "all.csv").write_text("text,label\n" + "".join(f"row {n},{n % 2}\n" for n in range(1_000)))
    (tmp_path / "mr").mkdir()
    (tmp_path / "mr" / "all.csv").write_text("text,label\n,1\nb,0\n,1\n")
    paper = find_paper("triple-entropy")
    prepared = prepare(DataFolder(paper, find_table(paper, "2"), tmp_path), tmp_path / "out")
    assert [Path(data.file).name for data in read_study(prepared.studies[0].file).data] == ["all.csv"]
    assert prepared.notes == ()
    (told,) = [problem for problem in prepared.missing if "mr is not run" in problem.message]
    assert told.where.endswith("all.csv")
    assert told.line == 2
    assert "1 other problem" in told.message


def test_a_data_set_with_a_dev_file_is_a_study_of_its_own(tmp_path):
    """Its rows go by the columns that trials write, whatever its own are called."""
    for split, number in (("train", 20), ("dev", 6), ("test", 6)):
        (tmp_path / "sst5").mkdir(exist_ok=True)
        rows = "".join(f"row {n} of {split}\t{n % 5}\n" for n in range(number))
        (tmp_path / "sst5" / f"{split}.tsv").write_text(f"sentence\tlabel\n{rows}")
        put(tmp_path, f"sst2_sentences/{split}.jsonl.gz", texts(number))
    paper = find_paper("lcl")
    prepared = prepare(DataFolder(paper, find_table(paper, "sentiment"), tmp_path), tmp_path / "out")
    assert [ready.folder.name for ready in prepared.studies] == ["sentiment-sst5", "sentiment-sst2"]
    assert not prepared.missing
    first = read_study(prepared.studies[0].file)
    assert [data.name for data in first.data] == ["sst5"]
    dev = Path(str(first.recipe(first.contenders[0]).data.dev))
    assert written(dev)[3] == {"text": "row 3 of dev", "label": "3"}
    assert len(plan_study(first).trials) == 5 * 3
    (tmp_path / "sst5" / "dev.tsv").unlink()
    prepared = prepare(DataFolder(paper, find_table(paper, "sentiment"), tmp_path), tmp_path / "out")
    assert [ready.folder.name for ready in prepared.studies] == ["sentiment-sst2"]
    assert "sst5 is not run: there is no sst5/dev.jsonl.gz" in str(prepared.missing[0])


def test_rows_are_made_of_rows_where_a_table_has_others(tmp_path):
    """Four classes of many; grades that count; pairs without grades; no pairs that contradict each other."""
    emotions = ("anticipating", "excited", "hopeful", "guilty", "angry", "ashamed", "furious")
    for split in ("train", "dev", "test"):
        put(tmp_path, f"empathetic_dialogues/{split}.jsonl.gz", texts(42, emotions))
        put(tmp_path, f"mrpc/{split}.jsonl.gz", [*pairs(8), {**pairs(1)[0], "label": 0}])
        put(tmp_path, f"semeval_cqa_a/{split}.jsonl.gz", ranking(6))
    put(tmp_path, "known_lie_snopes/pairs.jsonl.gz", ranking(12, grades=(1,)))

    paper, out = find_paper("lcl"), tmp_path / "lcl"
    prepared = prepare(DataFolder(paper, find_table(paper, "hard-labels"), tmp_path), out)
    assert [ready.folder.name for ready in prepared.studies] == [
        "hard-labels-anticipating-excited-hopeful-guilty", "hard-labels-angry-ashamed-furious-guilty",
    ]  # fmt: skip
    assert "no row has the label 'devastated'" in str(prepared.missing[0])
    for role in ("file", "test", "dev"):
        rows = written(out / "rows" / f"angry-ashamed-furious-guilty-{role}.jsonl")
        assert {row["label"] for row in rows} == {"angry", "ashamed", "furious", "guilty"}
        assert len(rows) == 24

    paper, out = find_paper("bsc"), tmp_path / "bsc"
    (ready,) = prepare(DataFolder(paper, find_table(paper, "2"), tmp_path), out).studies
    for role in ("file", "test", "dev"):
        rows = written(out / "rows" / f"cqa-a-{role}.jsonl")
        assert [row["score"] for row in rows[:3]] == [1.0, 0.0, 0.0]
        assert (rows[0]["query_id"], rows[0]["doc_id"]) == ("q0", "q0d0")
    (data,) = read_study(ready.file).data
    assert (data.text, data.pair, data.score, data.query_id, data.doc_id) == (
        "text_a", "text_b", "score", "query_id", "doc_id",
    )  # fmt: skip
    assert plan_study(read_study(ready.file)).plan.data[0].kind == "ranking"

    claims = [{"doc_id": f"v{n}", "doc": f"thing {n} is in place 0"} for n in range(30)]
    put(tmp_path, "known_lie_snopes/corpus.jsonl.gz", claims)
    (ready,) = prepare(DataFolder(paper, find_table(paper, "3"), tmp_path), out).studies
    assert read_study(ready.file).data[0].corpus == str(tmp_path / "known_lie_snopes/corpus.jsonl.gz")
    assert written(out / "rows/pfcc-s-file.jsonl")[0] == {
        "text_a": "where is thing 0",
        "text_b": "thing 0 is in place 0",
    }
    assert plan_study(read_study(ready.file)).plan.data[0].kind == "positives"

    prepared = prepare(DataFolder(paper, find_table(paper, "4"), tmp_path), out)
    (ready,) = prepared.studies
    (note,) = prepared.notes
    assert note.startswith("mrpc: 2 rows dropped because ")
    assert len(written(out / "rows/mrpc-file.jsonl")) == 7, "both rows of the pair are gone"
    assert len(written(out / "rows/mrpc-test.jsonl")) == 9, "what is tested on stays as it is"
    assert plan_study(read_study(ready.file)).plan.data[0].kind == "pairs"


def test_rows_are_replaced_whole_under_whoever_reads_them(tmp_path):
    """Trials of a study that runs read the file while the same command is given once more."""
    file = tmp_path / "rows" / "cr-file.jsonl"
    put(tmp_path, "a.jsonl.gz", texts(4))
    records = read(str(tmp_path / "a.jsonl.gz"))
    assert store_rows(records, file) == {"text": "text", "label": "label"}
    with file.open() as reader:
        store_rows(records.take(range(2)), file)
        assert len(reader.readlines()) == 4
    assert len(written(file)) == 2
    assert [path.name for path in file.parent.iterdir()] == ["cr-file.jsonl"]


def test_nothing_at_all_is_an_error_that_names_everything(tmp_path):
    paper = find_paper("triple-entropy")
    with pytest.raises(DataError) as raised:
        prepare(DataFolder(paper, find_table(paper, "6"), tmp_path), tmp_path / "out")
    assert len(raised.value.problems) == 6
    assert not (tmp_path / "out").exists()
    with pytest.raises(DataError, match="there is no such folder"):
        prepare(DataFolder(paper, find_table(paper, "6"), tmp_path / "nowhere"), tmp_path / "out")
    with pytest.raises(
        SettingError, match=r"no settings 'traind'; there are: published, trained, mean, grid\. Did you mean 'trained'"
    ):
        prepare(DataFolder(paper, find_table(paper, "6"), tmp_path), tmp_path / "out", TableOptions(settings="traind"))


def test_scores_of_the_tables_are_scores_that_trials_have():
    """Each is one of the study's own, one more that rankings come with, or that of a set of scored pairs."""
    from nearfar.evaluation.ranking_metrics import MEASURES
    from nearfar.evaluation.suites import SENTENCES, WORDS

    known = {name for row_type in RowType for name in row_type.metrics} | set(MEASURES)
    known |= {f"{name}/spearman" for name in (*SENTENCES, *WORDS)}
    assert {metric for _, table in TABLES for metric in table.published} <= known


# Ours beside theirs

TABLE = PublishedTable(
    number="7", title="invented", encoder="e", baseline="plain", scale=100, studies=(),
    published={
        "accuracy": {"x": {"plain": 80.0, "new": 81.5, "other": 80.0}, "y": {"plain": 70.0, "new": 69.0},
                     "z": {"plain": 60.0, "new": 61.0}},
    },
)  # fmt: skip


def study_of(folder: Path, data: str, scores: dict[str, list[float]]) -> Path:
    """A finished study of one data set: each contender with its accuracy on each fold of seed 2."""
    cells = [Cell(id=f"{data}{name}{fold}", data=data, limit=None, contender=name, seed=2, fold=fold)
             for name, values in scores.items() for fold in range(len(values))]  # fmt: skip
    sets = DataSet(name=data, file="f", limits=(None,), digest="d", rows=10, kind="classes")
    plan = Plan(name=data, metric="accuracy", baseline="plain", seeds=(2,), folds=5, data=(sets,),
                contenders={name: {} for name in scores}, cells=tuple(cells))  # fmt: skip
    folder.mkdir()
    (folder / "study.json").write_text(plan_text(plan))
    for cell in cells:
        write_record(folder, Record(
            id=cell.id, data=data, limit=None, contender=cell.contender, seed=2, fold=cell.fold, status="done",
            metric="accuracy", scores={"accuracy": scores[cell.contender][cell.fold], "f1_macro": 0.0},
        ), {})  # fmt: skip
    return folder


@pytest.fixture
def lines(tmp_path) -> list[Line]:
    plain = [0.80, 0.81, 0.82, 0.83, 0.84]
    first = study_of(tmp_path / "x", "x", {
        "plain": plain, "new": [score + 0.02 + 0.001 * place for place, score in enumerate(plain)], "other": plain,
    })  # fmt: skip
    second = study_of(tmp_path / "y", "y", {"plain": plain, "new": [0.81, 0.80, 0.83, 0.84, 0.85], "extra": plain})
    return beside(TABLE, [first, second, tmp_path / "not-there"])


def test_ours_stand_beside_the_published_figures(lines):
    """Means and differences by hand; what was not run is told so."""
    found = {(line.data, line.contender): line for line in lines}
    assert list(found) == [("x", "new"), ("x", "other"), ("y", "new"), ("y", "extra"), ("z", "new")]
    line = found["x", "new"]
    assert line.ours == pytest.approx((82.0, 84.2))
    assert line.difference == pytest.approx(2.2)
    assert line.published_difference == pytest.approx(1.5)
    assert line.agrees is True
    assert line.cells() == [
        "x",
        "accuracy",
        "new",
        "82.00",
        "84.20",
        "+2.20",
        "80.00",
        "81.50",
        "+1.50",
        "yes",
        "better",
    ]
    assert found["x", "other"].agrees is None, "no difference has no sign"
    assert replace(line, published=(80.0, 80.0)).agrees is None, "nor has a published one"
    assert found["y", "new"].cells()[5:] == ["+0.60", "70.00", "69.00", "-1.00", "no", "no significant difference"]
    assert found["y", "extra"].cells()[6:] == ["–", "–", "–", "–", "no significant difference"]
    assert found["z", "new"].cells()[3:] == ["–", "–", "–", "60.00", "61.00", "+1.00", "–", "not run"]
    assert all(len(line.cells()) == len(HEAD) for line in lines)


def test_what_the_table_comes_to(lines):
    """One of two signs agrees, one difference is significant; the correction is over both data sets."""
    assert conclusion(lines) == [
        "The sign agrees in 1 of 2 differences that both have; 1 of ours is significant.",
        "Mean difference of new in accuracy over 2 data sets: +1.40; published: +0.25.",
    ]
    assert conclusion([line for line in lines if line.data == "z"]) == []
    said = verdicts(lines)
    assert len(said) == 4
    assert "accuracy: new is better than plain on x by 2.2" in said[0]
    assert "Holm over 2 data sets" in said[0]
    text = as_markdown(find_paper("bsc"), TABLE, lines, ["the encoder is another"])
    assert "| x | accuracy | new | 82.00 | 84.20 | +2.20 | 80.00 | 81.50 | +1.50 | yes | better |" in text
    assert text.endswith("How this differs from the paper:\n\n- the encoder is another\n")
    assert "- The sign agrees in 1 of 2" in text


def test_means_over_the_data_sets_stand_beside_the_published_ones(lines):
    """Of each side: over the two data sets that were run, and the published ones over all three."""
    assert averages(lines) == [
        ["mean of 2", "accuracy", "new", "82.00", "83.40", "+1.40", "75.00", "75.25", "+0.25", "yes", "–"],
        ["mean of 3", "accuracy", "new", "–", "–", "–", "70.00", "70.50", "+0.50", "–", "–"],
    ]
    assert "| mean of 2 | accuracy | new | 82.00 | 83.40 |" in as_markdown(find_paper("bsc"), TABLE, lines, [])
    assert averages([line for line in lines if line.data == "x"]) == []


def test_the_grid_of_triple_entropy_is_that_of_the_paper(tmp_path):
    """4,900 points of TripleEntropy in every trial; the baseline has nothing to search."""
    put(tmp_path, "trec/train.jsonl.gz", texts(60))
    paper = find_paper("triple-entropy")
    data = DataFolder(paper, find_table(paper, "2"), tmp_path)
    prepared = prepare(data, tmp_path / "out", TableOptions(settings="grid", limit=40, folds=2))
    baseline, contender = read_study(prepared.studies[0].file).contenders
    assert baseline.search is None
    assert contender.search is not None
    assert (contender.search.method, number_of_points(contender.search)) == ("grid", 4 * 5 * 7 * 7 * 5)
    assert contender.search.space["objective.centers"] == (10, 100, 1000, 2000)


def test_a_flagged_contender_is_told_in_the_table(lines):
    line = replace(lines[0], doubts=("new: flat loss",))
    assert line.cells()[-1] == "better (flagged)"
    assert verdicts([line])[0].startswith("accuracy: flagged (new: flat loss): new is better than plain")


def test_a_score_that_no_trial_has_is_told_as_not_run(tmp_path):
    """The others of the table stand beside their figures all the same."""
    folder = study_of(tmp_path / "x", "x", {"plain": [0.8] * 5, "new": [0.9, 0.91, 0.9, 0.91, 0.9]})
    table = replace(TABLE, published={**TABLE.published, "mrr": {"x": {"plain": 50.0, "new": 60.0}}})
    told = {(line.metric, line.data): line.word for line in beside(table, [folder]) if line.contender == "new"}
    assert told == {("accuracy", "x"): "better", ("accuracy", "y"): "not run", ("accuracy", "z"): "not run",
                    ("mrr", "x"): "not run"}  # fmt: skip


def test_runs_that_are_missing_are_counted(tmp_path):
    """A study that was stopped has a table, too, with a reservation."""
    folder = study_of(tmp_path / "x", "x", {"plain": [0.8] * 6, "new": [0.9] * 6})
    for path in (folder / "trials" / "xnew5").iterdir():
        path.unlink()
    (folder / "trials" / "xnew5").rmdir()
    (line, _, *_) = beside(TABLE, [folder])
    assert line.comparison is not None
    assert line.comparison.n == 5
    assert "1 of 6 pairs of runs missing" in verdicts([line])[0]


# The command


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[int, str, str]]:
    """Table 3 of TripleEntropy on one small data set, with the toy encoder, two folds and one seed."""
    place = tmp_path_factory.mktemp("reproduced")
    put(place / "data", "cr/all.jsonl.gz", texts(24))
    return place, command(*words_of(place))


def words_of(place: Path) -> list[str | Path]:
    return ["triple-entropy", "--table", "III", "--data", place / "data", "--out", place / "out", "--encoder", "toy",
            "--seeds", "2", "--folds", "2", "--limit", "100", "--workers", "1"]  # fmt: skip


def test_a_table_is_run_and_printed_beside_the_published_figures(done):
    place, (status, out, err) = done
    assert status == 0, err
    records = read_records(place / "out" / "table-3")
    assert [record.done for record in records] == [True] * 4
    assert {record.recipe["encoder"]["name"] for record in records} == {"toy"}
    scores = {name: 100 * fmean(record.score for record in records if record.contender == name)
              for name in ("cross-entropy", "triple-entropy")}  # fmt: skip
    row = next(line for line in out.splitlines() if "cr " in line and "+0.30" in line)
    assert f"{scores['cross-entropy']:.2f}" in row
    assert f"{scores['triple-entropy']:.2f}" in row
    assert "93.28" in row
    assert "too few runs" in row
    assert sum("not run" in line for line in out.splitlines()) == 2
    assert "mrpc is not run: there is no mrpc/train.jsonl.gz" in err
    assert "note: the encoder is toy; the paper's is roberta-base" in err
    text = (place / "out" / "published.md").read_text()
    assert "Table 3: weighted F1, about 4,000 texts" in text
    assert "mrpc is not run" in text
    assert f"| {scores['cross-entropy']:.2f} | {scores['triple-entropy']:.2f} |" in text


def test_a_figure_joins_its_tables(done, tmp_path):
    """The tables that can be run are, each in its own folder; the others are named with what is missing."""
    place, _ = done
    words = ("triple-entropy", "--figure", "2", "--data", place / "data", "--out", tmp_path, "--encoder", "toy",
             "--seeds", "2", "--folds", "2", "--limit", "24", "--workers", "1")  # fmt: skip
    status, out, err = command(*words, "--dry-run")
    assert status == 0, err
    assert not list(tmp_path.iterdir())
    status, out, err = command(*words, "--sets", "cr")  # which is in two of the tables
    assert status == 0, err
    status, _, err = command(*words, "--sets", "cx")
    assert (status != 0, "no table of figure 2 has 'cx'; they have sst2" in err) == (True, True)
    status, out, err = command(*words)
    assert status == 0, err
    assert "Mean gain of triple-entropy in table 2:" in out
    assert "Mean gain of triple-entropy in table 5: not run; published: +0.04." in out
    assert "table 5: " in err
    page = (tmp_path / "triple-entropy-figure-2.html").read_text()
    assert "difference to the baseline against the number of training texts" in page
    text = (tmp_path / "triple-entropy-figure-2.md").read_text()
    assert "| 2 | cr | 12 | triple-entropy |" in text
    assert "| 4 | sst2 | – | triple-entropy | – | +0.16 | not run |" in text
    for wrong, told in (
        (("triple-entropy", "--figure", "2", "--table", "3", "--data", place / "data"), "give --table or --figure"),
        (("triple-entropy", "--figure", "7", "--data", place / "data"), "has no figure '7'; there are: 2"),
        (("triple-entropy", "--figure", "2", "--data", tmp_path), "no table of figure 2 can be run"),
        (("triple-entropy", "--table", "2", "--data", place / "data", "--vectors", "x"), "--vectors is for a table"),
    ):
        status, _, err = command(*wrong)
        assert status
        assert told in err


def test_the_same_command_runs_nothing_again(done):
    place, (_, before, _) = done
    status, out, err = command(*words_of(place))
    assert status == 0
    assert "nothing ran" in err
    assert out == before


def test_a_dry_run_plans_and_writes_nothing(done, tmp_path):
    place, _ = done
    status, out, err = command(*words_of(place), "--dry-run")
    assert status == 0, err
    assert "4 trials: 4 there, 0 to run" in out
    words = words_of(place)
    words[words.index("--out") + 1] = tmp_path / "new"
    status, out, err = command(*words, "--dry-run")
    assert status == 0, err
    assert "4 trials: 0 there, 4 to run" in out
    assert not (tmp_path / "new").exists()


def test_the_list_has_every_table_and_figure():
    status, out, _ = command("--list")
    assert status == 0
    for paper, table in TABLES:
        assert f"{paper.name}: {paper.title}" in out
        assert f"  --table {table.number}: {table.title}" in out
    assert "  --table 3: accuracy of SST and Quora, Pearson of STS and their mean" in out
    assert "  --figure 2: gain of TripleEntropy against the size of the data set" in out
    status, out, _ = command("lcl", "--list")
    assert out.splitlines()[0].startswith("label-aware: ")
    assert "triple" not in out


def test_bad_input_gives_one_clear_message(tmp_path, monkeypatch):
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    here = ("triple-entropy", "--table", "2", "--data", tmp_path)
    for words, told in (
        ((), "name a paper; 'nearfar reproduce --list'"),
        (("nonsense",), "there is no paper 'nonsense'"),
        (("triple-entropy",), "name a table of triple-entropy with --table"),
        (("mirror", "--table", "word"), "Did you mean 'words'"),
        (("triple-entropy", "--table", "2"), "Name its folder with --data"),
        ((*here, "--seeds", "2,x"), "--seeds is whole numbers"),
        ((*here, "--seeds", "2,02"), "--seeds is whole numbers"),
        ((*here, "--sets", "trec,,cr"), "--sets is names with commas"),
        ((*here, "--sets", "trec,trek"), "table 2 has no data set 'trek'; it has sst2, imdb, subj"),
        (("multi-task", "--table", "3", "--data", tmp_path, "--sets", "sst"), "--sets is for tables of one task"),
        (here, "8 problems in all"),
        ((*here, "--sets", "trec,cr"), "2 problems in all"),
        (("triple-entropy", "--table", "2", "--data", tmp_path / "none"), "there is no such folder"),
    ):
        status, _, err = command(*words)
        assert status == 1, words
        assert told in err
        assert "Traceback" not in err


def test_the_folder_of_the_data_may_be_named_by_a_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path))
    status, _, err = command("triple-entropy", "--table", "2")
    assert status == 1
    assert f"{tmp_path}: sst2 is not run" in err


def test_a_study_that_cannot_begin_does_not_stop_the_others(tmp_path):
    """Of two studies of a table one has rows without labels."""
    for split, number in (("train", 20), ("dev", 6), ("test", 6)):
        put(tmp_path, f"sst5/{split}.jsonl.gz", [{"text": f"only {n} of {split}"} for n in range(number)])
        put(tmp_path, f"sst2_sentences/{split}.jsonl.gz", texts(number))
    words: list[str | Path] = ["lcl", "--table", "sentiment", "--data", tmp_path, "--out", tmp_path / "out",
                               "--encoder", "toy", "--seeds", "2", "--workers", "1"]  # fmt: skip
    status, out, err = command(*words)
    assert status == 0, err
    assert "note: not run: " in err
    assert "the file has no label column" in err
    (row,) = [line for line in out.splitlines() if "sst2" in line and "label-aware" in line and "94.40" in line]
    assert "too few runs" in row
    assert "the file has no label column" in (tmp_path / "out" / "published.md").read_text()
    for split in ("train", "dev", "test"):
        (tmp_path / "sst2_sentences" / f"{split}.jsonl.gz").unlink()
    status, _, err = command(*words)
    assert status == 1
    assert "the file has no label column" in err


RUNS: dict[tuple[str, str], dict[str, Callable[..., Any]]] = {
    ("bsc", "1"): {"wikiqa/{}": lambda n, start: ranking(n // 3, start, (1, 0, 0))},
    ("bsc", "2"): {"semeval_cqa_a/{}": lambda n, start: ranking(n // 3, start),
                   "semeval_cqa_b/{}": lambda n, start: ranking(n // 3, start)},
    ("bsc", "3"): {"known_lie_snopes/pairs": lambda n, start: ranking(30, 0, (1,))},
    ("bsc", "4"): {"mrpc/{}": pairs, "qqp/{}": pairs},
    ("bsc", "5"): {"stsb/{}": scored},
    ("lcl", "emotions"): {"goemotions/{}": lambda n, start: texts(n, ("joy", "anger", "fear"))},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "number"), list(RUNS))
def test_every_contender_of_every_kind_of_table_runs(paper, number, tmp_path):
    """On a few made-up rows with the toy encoder: no trial fails, and each has the scores of the paper."""
    for name, rows in RUNS[paper, number].items():
        for place, split in enumerate(("train", "dev", "test")):
            put(tmp_path, f"{name.format(split)}.jsonl.gz", rows(30 if split == "train" else 12, 100 * place))
    put(
        tmp_path,
        "known_lie_snopes/corpus.jsonl.gz",
        [{"doc_id": f"v{n}", "doc": f"thing {n} is in place 0"} for n in range(140)],
    )
    status, _, err = command(
        paper, "--table", number, "--data", tmp_path, "--out", tmp_path / "out", "--encoder", "toy", "--seeds", "2",
        "--folds", "2", "--limit", "30", "--workers", "1", "--checkpoint", "SimCSE=toy",
    )  # fmt: skip
    assert status == 0, err
    assert "failed" not in err
    table = find_table(find_paper(paper), number)
    folders = [path.parent for path in (tmp_path / "out").glob("*/study.json")]
    records = [record for folder in folders for record in read_records(folder)]
    assert len(folders) == len(RUNS[paper, number])
    contenders = {name for rows in table.published.values() for row in rows.values() for name in row}
    assert {record.contender for record in records} == contenders
    assert all(record.done and set(table.published) <= set(record.scores) for record in records)
