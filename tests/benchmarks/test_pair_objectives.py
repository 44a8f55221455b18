"""The comparison of pair objectives: its rows, its recipes, its restarts and its tables, on made-up data."""

from __future__ import annotations

import gzip
import json
import random
from itertools import combinations

import pytest
from benchmarks.pair_data import FIXED, Sizes, write_files
from benchmarks.pair_objectives import OURS, TASKS, UNTRAINED

from benchmarks import pair_data, pair_objectives, pair_objectives_peers
from nearfar.data import read
from nearfar.recipe import build_recipe

THINGS = ["apple", "hammer", "horse", "river", "violin", "lantern", "cloud", "otter"]
FEW = ["--encoder", "toy", "--limit", "24", "--dev", "20", "--test", "20", "--corpus", "150", "--steps", "2"]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def pairs(number, seed, target):
    draw = random.Random(seed)
    for row in range(number):
        one, other = draw.choice(THINGS), draw.choice(THINGS)
        value = {"score": 5.0 * (one == other) - 0.2 * (row % 3) * (one == other), "label": int(one == other)}[target]
        yield {"text_a": f"{seed} the {one} number {row}", "text_b": f"number {row} about a {other}", target: value}


def ranking(queries, seed, grades):
    """Five documents a query; every third query has none that is relevant."""
    for query in range(queries):
        for place in range(5):
            relevant = query % 3 != 0 and place in (1, 3)
            yield {"query_id": f"{seed}q{query}", "query": f"{seed} the {THINGS[query % 8]} {query}",
                   "doc_id": f"{seed}q{query}d{place}", "doc": f"{query} {place} {seed} of a {THINGS[place]}",
                   "relevance": grades[(query + place) % len(grades)] if relevant else 0}  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The data sets in small, in the folders and columns of the real ones."""
    folder = tmp_path_factory.mktemp("source")
    for name, target in (("stsb", "score"), ("mrpc", "label"), ("qqp", "label")):
        for part, number in (("train", 1_200 if name == "qqp" else 400), ("dev", 40), ("test", 40)):
            write(folder / name / f"{part}.jsonl.gz", pairs(number, f"{name} {part}", target))
    for name, parts in (("semeval_cqa_a", ("train_part2", "dev", "test2016")),
                        ("semeval_cqa_b", ("train", "dev", "test2016")), ("wikiqa", ("train", "dev", "test"))):  # fmt: skip
        for part in parts:
            write(folder / name / f"{part}.jsonl.gz", ranking(20, part, [1] if name == "wikiqa" else [1, 2]))
    claims = [f"checked claim {number} about a {THINGS[number % 8]}" for number in range(420)]
    write(folder / "known_lie_snopes/corpus.jsonl.gz",
          ({"doc_id": f"v{n}", "doc": text, "title": "t"} for n, text in enumerate(claims)))  # fmt: skip
    write(folder / "known_lie_snopes/pairs.jsonl.gz",
          ({"query_id": f"q{n}", "query": f"did the {THINGS[n % 8]} do {n}?", "doc_id": f"v{n % 100}",
            "doc": claims[n % 100], "relevance": 1} for n in range(310)))  # fmt: skip
    return folder


def settings(source, *more):
    return pair_objectives.parsed(["run", "--source", str(source), *FEW, *more])


def files(data, source, folder, *, seed=1, form="rows", sizes=None):
    folder.mkdir(exist_ok=True)
    return write_files(data, form, source, folder, seed=seed, sizes=sizes or Sizes(24, 20, 20, 150),
                       embed=pair_objectives.remembered("toy"))  # fmt: skip


@pytest.mark.parametrize("data", TASKS)
def test_runs_of_two_seeds_share_dev_and_test_rows_and_differ_in_training_rows(data, source, tmp_path):
    one, other = (files(data, source, tmp_path / str(seed), seed=seed) for seed in (1, 2))
    assert one.dev.read_bytes() == other.dev.read_bytes()
    assert one.test.read_bytes() == other.test.read_bytes()
    assert one.train.read_bytes() != other.train.read_bytes()
    assert one.rows["train"] == len(one.train.read_text().splitlines()) > 10


@pytest.mark.parametrize("data", TASKS)
def test_no_row_is_in_two_parts(data, source, tmp_path):
    found = files(data, source, tmp_path, sizes=Sizes(0, 0, 0, 150))
    sides = [set(read(str(path)).texts[0]) for path in (found.train, found.dev, found.test)]
    assert all(sides)
    assert all(one.isdisjoint(other) for one, other in combinations(sides, 2))


@pytest.mark.parametrize(
    ("data", "shape", "targets"),
    [("stsb", "pairs", "score"), ("stsb_positives", "pairs", None), ("mrpc", "pairs", "label"),
     ("cqa_a", "ranking", "score"), ("wikiqa", "ranking", "score"), ("snopes", "pairs", None)],
)  # fmt: skip
def test_training_rows_are_of_the_kind_that_the_contenders_read(data, shape, targets, source, tmp_path):
    records = read(str(files(data, source, tmp_path).train))
    assert (records.shape, records.target) == (shape, targets)


def test_positives_of_stsb_are_the_pairs_of_a_high_score(source, tmp_path):
    everything = read(str(source / "stsb/train.jsonl.gz"))
    high = {text for text, score in zip(everything.texts[0], everything.scores, strict=True) if score >= 4}
    found = read(str(files("stsb_positives", source, tmp_path, sizes=Sizes(0, 0, 0)).train))
    assert set(found.texts[0]) == high
    assert 0 < len(high) < len(everything)


def test_only_good_answers_are_relevant_in_cqa_a_and_both_grades_in_cqa_b(source, tmp_path):
    grades = {}
    for data in ("cqa_a", "cqa_b"):
        grades[data] = read(str(files(data, source, tmp_path / data, sizes=Sizes(0, 0, 0)).test)).scores
    assert set(grades["cqa_a"]) == {0.0, 1.0}
    assert set(grades["cqa_b"]) == {0.0, 1.0, 2.0}
    assert [grade == 2 for grade in grades["cqa_b"]] == [grade == 1 for grade in grades["cqa_a"]]


def test_wikiqa_has_questions_with_an_answer_and_few_other_sentences_to_train_on(source, tmp_path):
    found = files("wikiqa", source, tmp_path, sizes=Sizes(0, 0, 0))
    train, test = read(str(found.train)), read(str(found.test))
    assert len(train) == 13 * 4  # 13 questions with two answers, and two of three others
    assert len(test) == 13 * 5
    for query in set(train.queries):
        grades = [grade for name, grade in zip(train.queries, train.scores, strict=True) if name == query]
        assert sorted(grades) == [0, 0, 1, 1]


def test_the_corpus_has_all_right_claims_and_as_many_as_were_asked_for(source, tmp_path):
    found = files("snopes", source, tmp_path)
    corpus = {json.loads(line)["text"] for line in found.corpus.read_text().splitlines()}
    assert len(corpus) == found.rows["corpus"] == 150
    assert {f"checked claim {number} about a {THINGS[number % 8]}" for number in range(100)} < corpus


def test_every_dev_claim_is_compared_with_the_same_documents_and_has_one_that_is_right(source, tmp_path):
    dev = read(str(files("snopes", source, tmp_path).dev))
    of = {query: [] for query in dev.queries}
    for query, document, grade in zip(dev.queries, dev.documents, dev.scores, strict=True):
        of[query].append((document, grade))
    first, *others = ([document for document, _ in rows] for rows in of.values())
    assert len(of) == 20
    assert all(documents == first for documents in others)
    assert all(sum(grade for _, grade in rows) == 1 for rows in of.values())
    assert len(first) > 20


def test_mined_pairs_are_balanced_and_no_negative_is_right(source, tmp_path):
    right = {(row["query"], row["doc"]) for row in ranked(source)}
    labeled = read(str(files("snopes", source, tmp_path / "pairs", form="pairs").train))
    assert labeled.labels.count("1") == labeled.labels.count("0") > 24
    for left, text, label in zip(*labeled.texts, labeled.labels, strict=True):
        assert ((left, text) in right) == (label == "1")
    triplets = read(str(files("snopes", source, tmp_path / "triplets", form="triplets").train))
    assert triplets.shape == "triplets"
    assert all((left, positive) in right and (left, negative) not in right
               for left, positive, negative in zip(*triplets.texts, strict=True))  # fmt: skip


def ranked(source):
    with gzip.open(source / "known_lie_snopes/pairs.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


CONTENDERS = [(data, name) for data, task in TASKS.items() for name in task.contenders]


@pytest.mark.parametrize(("data", "name"), CONTENDERS)
def test_every_contender_is_a_recipe_of_the_same_steps(data, name, tmp_path):
    task = TASKS[data]
    values = {key: value for key, value in task.contenders[name].items() if key != "form"}
    rows = pair_data.Files(tmp_path / "a", tmp_path / "b", tmp_path / "c", {"train": 500})
    recipe = build_recipe(
        pair_objectives.recipe_values(values, rows, 3, task, pair_objectives.parsed(["run"])), [], where="test"
    )
    stages = max(1, len(recipe.stage))
    assert recipe.training.max_steps * stages == task.steps
    assert recipe.training.epochs * -(-500 // task.batch) >= recipe.training.max_steps
    assert recipe.batches.size == task.batch
    assert recipe.seed == 3
    assert all(stage.epochs is None and stage.batch_size is None for stage in recipe.stage)
    assert recipe.batches.group <= task.batch


def test_published_figures_are_of_contenders_and_in_percent():
    assert sum(len(task.published) for task in TASKS.values()) == 32
    for task in TASKS.values():
        assert set(task.published) <= set(task.contenders)
        for values in task.published.values():
            assert len(values) <= len(task.scores)
            assert all(value != value or 1 < value < 100 for value in values)


@pytest.mark.parametrize(
    ("data", "name"),
    [("stsb", "bsc-then-mse"), ("stsb", UNTRAINED), ("stsb_positives", "mnrl"), ("mrpc", "combo"), ("qqp", "bsc"),
     ("qqp", UNTRAINED), ("snopes", "mse"), ("snopes", "triplet"), ("snopes", "bsc-none"), ("snopes", UNTRAINED),
     ("cqa_a", "bsc-clusters"), ("cqa_b", "bsc-file-order"), ("wikiqa", "bsc")],
)  # fmt: skip
def test_a_run_goes_from_the_rows_to_the_score(data, name, source):
    line = pair_objectives.run_one(data, name, 1, settings(source))
    assert set(line["scores"]) == set(TASKS[data].scores) == set(line["dev_scores"])
    assert all(-1 <= score <= 1 for score in line["scores"].values())
    assert line["cpu_seconds"] > 0
    assert line["peak_mb"] > 50
    assert (line["corpus"] == 150) == (data == "snopes")
    assert line["best_step"] in (0, 1, 2)
    assert json.loads(json.dumps(line)) == line


def test_what_is_there_is_not_run_again_and_two_processes_share_the_rest(source, tmp_path, monkeypatch, capsys):
    class Here:
        """A pool that runs everything in this process."""

        def __init__(self, *_arguments, **_settings): ...
        def __enter__(self):
            return self

        def __exit__(self, *_error): ...
        def submit(self, task, *arguments):
            result = task(*arguments)
            return type("Done", (), {"result": lambda _self: result})()

    asked = []

    def measure(data, name, seed, given):
        asked.append((data, name, seed))
        return {"tool": OURS, "data": data, "contender": name, "seed": seed,
                "asked": pair_objectives.asked(data, given), "steps": 2, "rate": given.rate, "encoder": "toy"}  # fmt: skip

    monkeypatch.setattr(pair_objectives, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(pair_objectives, "run_one", measure)
    results = ["run", "--results", str(tmp_path / "r.jsonl"), "--source", str(source), *FEW, "--data", "mrpc"]
    pair_objectives.main([*results, "--share", "0/2"])
    first = list(asked)
    pair_objectives.main([*results, "--share", "1/2"])
    everything = [("mrpc", name, seed) for seed in (1, 2, 3) for name in ("mse", "bsc", "combo")]
    assert sorted(asked) == sorted([*everything, ("mrpc", UNTRAINED, 1)])
    assert len(first) == 5
    pair_objectives.main(results)
    assert len(asked) == 10
    pair_objectives.main([*results, "--dev", "19", "--contender", "mse", "--seed", "1"])
    assert asked[10:] == [("mrpc", "mse", 1)]
    assert "24 training rows by seed, dev 20, test 20; 2 steps of 32" in capsys.readouterr().out


def line(name, seed, score, *, tool=OURS, data="stsb", cpu=10.0):
    scores = dict.fromkeys(TASKS[data].scores, score)
    return {"data": data, "contender": name, "seed": seed, "train": 1_000, "dev": 400, "test": 1_379, "corpus": 0,
            "steps": 62, "batch": 32, "rate": 5e-5, "encoder": "minilm", "max_length": 64, "tool": tool,
            "scores": scores, "cpu_seconds": cpu, "peak_mb": 900.0}  # fmt: skip


def cells(table):
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines() if row.startswith("|")]


def test_the_table_has_means_paired_differences_and_what_was_published():
    found = [line("mse", seed, 0.8 + seed / 100) for seed in (1, 2, 3)]
    found += [line("bsc", seed, 0.79 + seed / 100) for seed in (2, 3)]
    table = cells(pair_objectives.table([*found, line(UNTRAINED, 1, 0.75)]))
    assert table[0][:5] == ["contender", "seeds", "spearman", "pearson", "spearman, difference"]
    assert table[2] == ["untrained", "1", "75.00", "75.00", "-6.00", "10", "900", ""]
    assert table[3] == ["mse", "3", "82.00 ± 1.00", "82.00 ± 1.00", "", "10", "900", "84.8"]
    assert table[4] == ["bsc", "2", "81.50 ± 0.71", "81.50 ± 0.71", "-1.00 ± 0.00", "10", "900", "83.26"]


def test_the_order_is_counted_over_pairs_of_contenders():
    """Published: bsc below combo below mse. Here bsc is clearly below both, which are in the other order, barely."""
    found = [line("mse", seed, value) for seed, value in enumerate([0.80, 0.84, 0.80])]
    found += [line("combo", seed, value) for seed, value in enumerate([0.83, 0.82, 0.80])]
    found += [line("bsc", seed, value - 0.1) for seed, value in enumerate([0.80, 0.82, 0.80])]
    told = pair_objectives.table(found).splitlines()[-1]
    assert told == (
        "By spearman, 2 of 3 pairs of contenders are in the published order; of the 2 that differ by more than two "
        "standard errors here, 2."
    )


def test_the_order_is_by_the_first_score_that_was_published():
    found = [line(name, seed, value, data="wikiqa") for seed in (1, 2) for name, value in (("bsc", 0.7), ("mse", 0.6))]
    assert "By mrr, 1 of 1 pairs" in pair_objectives.table(found)


def test_runs_of_other_sizes_are_not_mixed():
    other = {**line("bsc", 1, 0.5), "steps": 10}
    assert pair_objectives.table([line("mse", 1, 0.8), other]).count("### stsb") == 2


def test_a_peer_is_paired_by_seed():
    found = [line("mse", seed, 0.8 + seed / 100, cpu=10.0) for seed in (1, 2)]
    theirs = [line("mse", seed, 0.8, tool="sentence-transformers", cpu=20.0 * seed) for seed in (1, 2, 3)]
    table = cells(pair_objectives.table([*found, *theirs]))
    assert table[-1] == ["mse", "2", "81.50 ± 0.71", "80.00 ± 0.00", "+1.50 ± 0.71", "10", "30", "3.00 x", "900", "900"]


def test_the_peer_has_a_loss_for_contenders_of_ours_and_reads_the_same_rows(source, tmp_path):
    for data, name in pair_objectives_peers.LOSSES:
        assert name in TASKS[data].contenders
    scored = files("stsb", source, tmp_path / "scored")
    rows = pair_objectives_peers.training_rows(scored.train)
    records = read(str(scored.train))
    assert [row["label"] * 5 for row in rows] == pytest.approx(records.scores)
    assert [row["sentence2"] for row in rows] == records.texts[1]
    together = pair_objectives_peers.training_rows(files("stsb_positives", source, tmp_path / "together").train)
    assert all(set(row) == {"sentence1", "sentence2"} for row in together)


def test_the_peer_scores_the_cosines_of_the_same_pairs(source, tmp_path):
    """Its evaluator gives Spearman's correlation of cosines as ours does, whatever the model."""
    import numpy as np

    from nearfar.encoding import load
    from nearfar.pipeline.evaluate import measure

    path = files("stsb", source, tmp_path).test
    model = load("toy")

    class Toy:
        """A model that only encodes."""

        similarity_fn_name = "cosine"
        model_card_data = type("Card", (), {"set_evaluation_metrics": lambda *_: None})()

        def encode(self, texts, **_settings):
            return np.asarray(model.embed(list(texts)))

    theirs = pair_objectives_peers.evaluator(path)(Toy())
    ours = measure(model, read(str(path)))[0].scores
    assert theirs["spearman_cosine"] == pytest.approx(ours["spearman"], abs=1e-4)
    assert theirs["pearson_cosine"] == pytest.approx(ours["pearson"], abs=1e-4)  # theirs are in single precision


def test_what_all_runs_share_is_drawn_with_a_seed_that_no_run_has():
    assert FIXED not in pair_objectives.parsed(["run"]).seed
