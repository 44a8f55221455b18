"""The command line for pairs: evaluate by what the file holds, score, search and mine."""

from __future__ import annotations

import io
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score

from nearfar.cli import main
from nearfar.encoding import load as open_model
from nearfar.pipeline import train as train_recipe
from nearfar.recipe import build_recipe

THINGS = ["apple", "pear", "hammer", "saw", "horse", "otter", "river", "cloud", "violin", "lantern"]
KINDS = ["scores", "pairs", "positives", "triplets", "ranking"]


def rows_of(kind: str, rows: int, seed: int) -> list[dict[str, Any]]:
    """Made-up rows; texts about the same thing are positive pairs."""
    source = random.Random(seed)
    made: list[dict[str, Any]] = []
    for row in range(rows):
        one = THINGS[row % len(THINGS)]
        other = one if source.random() < 0.6 else source.choice([thing for thing in THINGS if thing != one])
        left, right = f"the {one} number {row} of {seed}", f"{seed} {row} about a {other}"
        same = int(one == other)
        made.append(
            {
                "scores": {"text_a": left, "text_b": right, "score": 4 * same + source.random()},
                "pairs": {"text_a": left, "text_b": right, "label": same},
                "positives": {"text_a": left, "text_b": f"{seed} {row} about a {one}"},
                "triplets": {"anchor": left, "positive": f"{row} about a {one}", "negative": f"no {other} at all"},
                "ranking": {
                    "query_id": f"q{one}", "query": f"the {one} of {seed}", "doc_id": f"d{row}", "doc": right,
                    "relevance": 2 * same if row % 2 else same,
                },
            }[kind]
        )  # fmt: skip
    return made


def write(name: str, rows: list[dict[str, Any]]) -> str:
    Path(name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return name


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one toy model for each kind of rows, and the files they were trained and tested on."""
    folder = tmp_path_factory.mktemp("pairs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for kind in KINDS:
            training = write(f"{kind}-train.jsonl", rows_of(kind, 40, 1))
            test = write(f"{kind}-test.jsonl", rows_of(kind, 30, 2))
            values = {
                "data": {"train": training, "dev": 0.25, "test": test}, "encoder": {"name": "toy", "max_length": 16},
                "objective": {"name": "batch-softmax"}, "batches": {"size": 12},
                "training": {"epochs": 1, "learning_rate": 1e-3},
            }  # fmt: skip
            train_recipe(build_recipe(values, [], where="test"), folder / kind)
        write("joined-train.jsonl", rows_of("pairs", 24, 1))
        assert call("train", "joined-train.jsonl", "--encoder", "toy", "--epochs", "1", "--out", "joined")[0] == 0
        texts = [
            *(row["text_b"] for row in rows_of("positives", 30, 1)),
            *(row["doc"] for row in rows_of("ranking", 30, 2)),
        ]
        write("corpus.jsonl", [{"doc_id": f"c{number}", "doc": text} for number, text in enumerate(texts)])
    return folder


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")


def call(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    """Run the command in this process: exit code, standard output, standard error."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    code: Any = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["nearfar", *arguments])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    out, errors = (stream.buffer.getvalue().decode() for stream in streams)  # type: ignore[attr-defined]
    assert "Traceback" not in errors
    return int(code), out, errors


def good(*arguments: str, stdin: str = "") -> str:
    code, out, errors = call(*arguments, stdin=stdin)
    assert code == 0, errors
    return out


def cosines(model: str, left: list[str], right: list[str]) -> np.ndarray:
    """(n,) cosines by the model's Python front door, in double precision."""
    one, other = (open_model(model).embed(texts).astype(np.float64) for texts in (left, right))
    one, other = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (one, other))
    return np.sum(one * other, axis=1)


# evaluate


@pytest.mark.parametrize("kind", KINDS)
def test_evaluate_says_what_the_run_itself_said(kind):
    """Every number of the report in metrics.json, on the same test file."""
    said = json.loads(Path(kind, "metrics.json").read_text())["test"]
    found = json.loads(good("evaluate", kind, f"{kind}-test.jsonl", "--json"))
    assert found.keys() == said.keys()
    for key, value in said.items():
        assert found[key] == (pytest.approx(value, abs=1e-6) if isinstance(value, float) else value), key
    table = good("evaluate", kind, f"{kind}-test.jsonl")
    assert f"{kind}-test.jsonl: 30 rows" in table
    assert all(name in table for name in said if "@" in name)


def test_scores_are_compared_with_the_cosines():
    """SciPy's correlations; the squared error on the range of the training file, which the card keeps."""
    rows = [{**row, "score": row["score"] / 5} for row in rows_of("scores", 30, 2)]  # alone they would be on 0..1
    found = json.loads(good("evaluate", "scores", write("low.jsonl", rows), "--json"))
    near = cosines("scores", [row["text_a"] for row in rows], [row["text_b"] for row in rows])
    truth = np.array([row["score"] for row in rows])
    task = open_model("scores").card.task
    assert task["high"] > 4
    assert found["spearman"] == pytest.approx(spearmanr(near, truth)[0], abs=1e-6)
    assert found["pearson"] == pytest.approx(pearsonr(near, truth)[0], abs=1e-6)
    scaled = (truth - task["low"]) / (task["high"] - task["low"])
    assert found["mse"] == pytest.approx(np.mean((near - scaled) ** 2), abs=1e-6)


def test_scores_outside_the_training_range_are_mapped_by_their_own_and_said():
    rows = [{**row, "score": 20 * row["score"]} for row in rows_of("scores", 30, 2)]
    code, out, errors = call("evaluate", "scores", write("hundred.jsonl", rows), "--json")
    assert code == 0
    assert "outside the range of the model's training" in errors
    assert "divided by 100" in errors
    plain = json.loads(good("evaluate", "scores", "scores-test.jsonl", "--json"))
    assert json.loads(out)["spearman"] == pytest.approx(plain["spearman"])


def test_pairs_are_cut_at_the_threshold_of_the_card_or_of_the_flag():
    rows = rows_of("pairs", 30, 2)
    truth = [row["label"] for row in rows]
    near = cosines("pairs", [row["text_a"] for row in rows], [row["text_b"] for row in rows])
    card = open_model("pairs").card.task
    found = json.loads(good("evaluate", "pairs", "pairs-test.jsonl", "--json"))
    assert found["threshold"] == card["threshold"]
    assert found["f1"] == pytest.approx(f1_score(truth, near >= card["threshold"]))
    middle = float(np.median(near)) + 1e-5
    found = json.loads(good("evaluate", "pairs", "pairs-test.jsonl", "--json", "--threshold", str(middle)))
    assert found["threshold"] == found["accuracy_threshold"] == middle
    assert found["f1"] == pytest.approx(f1_score(truth, near >= middle))
    assert found["accuracy"] == pytest.approx(np.mean((near >= middle) == truth))


def test_a_folder_of_sentence_transformers_is_evaluated_with_a_threshold_of_its_own():
    """Without our card the vectors are the same, and the best threshold is found here and said."""
    shutil.copytree("pairs", "foreign")
    for name in ("nearfar.json", "recipe.toml", "metrics.json", "SHA256SUMS"):
        Path("foreign", name).unlink()
    ours = json.loads(good("evaluate", "pairs", "pairs-test.jsonl", "--json"))
    found = json.loads(good("evaluate", "foreign", "pairs-test.jsonl", "--json"))
    assert found["chosen_here"] is True
    assert found["average_precision"] == pytest.approx(ours["average_precision"])
    assert found["f1"] >= ours["f1"]
    assert "which is optimistic" in good("evaluate", "foreign", "pairs-test.jsonl")


def slow_retrieval(model: str, wanted: dict[str, set[str]], documents: list[str]) -> dict[str, float]:
    """Reciprocal rank and hits, one query and one document at a time."""
    reciprocal, first = [], []
    for query, right in wanted.items():
        near = cosines(model, [query] * len(documents), documents)
        ranked = [documents[place] for place in np.argsort(-near)]
        rank = min(ranked.index(text) for text in right) + 1
        reciprocal.append(1 / rank)
        first.append(rank == 1)
    return {"mrr": float(np.mean(reciprocal)), "has_positive@1": float(np.mean(first))}


def test_a_corpus_is_searched_whole():
    """Relevant texts are found by what they say; equal documents are one; queries without a positive are counted."""
    documents = [row["doc"] for row in lines_of(Path("corpus.jsonl").read_text())]
    wanted: dict[str, set[str]] = {}
    rows = rows_of("ranking", 30, 2)
    for row in rows:
        if row["relevance"]:
            wanted.setdefault(row["query"], set()).add(row["doc"])
    odd = [{**rows[0], "query_id": "q!", "query": "nothing is relevant", "relevance": 0}]
    out = good("evaluate", "toy", write("asked.jsonl", rows + odd), "--corpus", "corpus.jsonl", "--json")
    report = json.loads(out)
    expected = slow_retrieval("toy", wanted, documents)
    assert {key: report[key] for key in expected} == pytest.approx(expected)
    assert (report["queries"], report["queries_without_positive"]) == (11, 11 - len(wanted))
    assert 0 < len(wanted) < 10  # beside the odd one, the file itself has queries without a positive
    write("twice.jsonl", [{"passage": f"  {text}"} for text in documents * 2])
    again = good(
        "evaluate", "toy", "asked.jsonl", "--corpus", "twice.jsonl", "--corpus-text", "passage", "--json"
    )  # fmt: skip
    assert json.loads(again)["mrr"] == pytest.approx(expected["mrr"], abs=1e-3)
    labeled = [{"text_a": row["query"], "text_b": row["doc"], "label": int(row["relevance"] > 0)} for row in rows]
    found = json.loads(good("evaluate", "toy", write("l.jsonl", labeled), "--corpus", "corpus.jsonl", "--json"))
    assert found["mrr"] == pytest.approx(expected["mrr"])


def test_queries_whose_relevant_texts_the_corpus_lacks_are_refused():
    """Scores of the two that are left would be taken for those of all; --invalid drop leaves the others out."""
    few = [{"text": text} for text in (rows_of("positives", 2, 2)[0]["text_b"], "2 1 About  a PEAR", "something else")]
    words = ("evaluate", "toy", "positives-test.jsonl", "--corpus", write("few.jsonl", few), "--json")
    code, out, errors = call(*words)
    assert (code, out) == (1, "")
    assert "positives-test.jsonl:3" in errors
    assert "28 of 30 queries have no relevant text in few.jsonl" in errors
    assert "--invalid drop" in errors
    code, out, errors = call(*words, "--invalid", "drop")
    assert code == 0
    assert "28 queries without a relevant text in few.jsonl" in errors
    report = json.loads(out)
    assert (report["queries"], report["queries_without_positive"]) == (2, 0)


# score


def test_score_writes_texts_cosine_and_answer():
    """The cosine of sentence-transformers on the same folder; the answer where the card has a threshold."""
    from sentence_transformers import SentenceTransformer

    rows = lines_of(good("score", "pairs", "pairs-test.jsonl"))
    given = rows_of("pairs", 30, 2)
    assert [(row["text_a"], row["text_b"]) for row in rows] == [(row["text_a"], row["text_b"]) for row in given]
    other = SentenceTransformer("pairs", device="cpu")
    left, right = (other.encode([row[name] for row in given]) for name in ("text_a", "text_b"))
    assert [row["score"] for row in rows] == pytest.approx(
        np.diag(other.similarity(left, right).numpy()).tolist(), abs=1e-5
    )
    threshold = open_model("pairs").card.task["threshold"]
    assert [row["label"] for row in rows] == [row["score"] >= threshold for row in rows]
    assert set(lines_of(good("score", "scores", "pairs-test.jsonl"))[0]) == {"text_a", "text_b", "score"}
    top = max(row["score"] for row in rows)
    asked = lines_of(good("score", "pairs", "pairs-test.jsonl", "--threshold", str(top - 1e-4)))
    assert [row["label"] for row in asked] == [row["score"] >= top - 1e-4 for row in rows]


def test_score_reads_standard_input_and_writes_a_file():
    pair = json.dumps({"text_a": "an apple", "text_b": "an apple"})
    assert good("score", "toy", "-", "--out", "scored.jsonl", stdin=pair) == ""
    assert lines_of(Path("scored.jsonl").read_text()) == [{"text_a": "an apple", "text_b": "an apple", "score": 1.0}]
    code, _, errors = call("score", "toy", "-", "--out", "scored.jsonl", stdin=pair)
    assert code == 1
    assert "--overwrite" in errors


# search


def test_search_writes_the_nearest_documents_of_each_query():
    """Against sorting all cosines; ids where the files have them, equal queries answered each."""
    corpus = lines_of(Path("corpus.jsonl").read_text())
    queries = [{"query_id": "7", "query": "about a saw"}, {"query_id": "8", "query": "1 3 about a saw"}]
    rows = lines_of(good("search", "toy", "corpus.jsonl", write("queries.jsonl", queries), "--top", "4"))
    assert [(row["query_id"], row["query"]) for row in rows] == [("7", "about a saw"), ("8", "1 3 about a saw")]
    for row in rows:
        near = cosines("toy", [row["query"]] * len(corpus), [one["doc"] for one in corpus])
        best = np.argsort(-near, kind="stable")[:4]
        assert [result["doc_id"] for result in row["results"]] == [corpus[place]["doc_id"] for place in best]
        assert [result["doc"] for result in row["results"]] == [corpus[place]["doc"] for place in best]
        assert [result["score"] for result in row["results"]] == pytest.approx(near[best].tolist(), abs=1e-5)
        assert [result["rank"] for result in row["results"]] == [1, 2, 3, 4]
    assert rows[1]["results"][0]["score"] == 1.0


def test_search_takes_plain_texts_rankings_and_named_columns():
    """Equal documents without ids are one; --top is capped and that is said."""
    Path("plain.txt").write_text("a saw\na pear\na saw\n")
    code, out, errors = call("search", "toy", "plain.txt", "-", "--top", "9", stdin="saw\nsaw\n")
    assert code == 0
    assert "--top 9 is more than there is: all 2 documents of plain.txt are ranked" in errors
    rows = lines_of(out)
    assert rows[0] == rows[1]
    assert sorted(result["doc"] for result in rows[0]["results"]) == ["a pear", "a saw"]
    assert set(rows[0]["results"][0]) == {"rank", "doc", "score"}
    asked = lines_of(good("search", "toy", "plain.txt", "ranking-test.jsonl", "--top", "1"))
    assert [row["query_id"] for row in asked] == [f"q{thing}" for thing in THINGS]
    named = good(
        "search", "toy", "pairs-test.jsonl", "pairs-train.jsonl", "--corpus-text", "text_b", "--text", "text_a",
        "--top", "1", "--out", "-",
    )  # fmt: skip
    assert lines_of(named)[0]["query"] == rows_of("pairs", 40, 1)[0]["text_a"]


# mine


def test_mine_writes_triplets_that_train():
    """Anchors and positives of the file, negatives of the corpus; and a run takes them as they are."""
    _, _, errors = call(
        "mine", "toy", "positives-train.jsonl", "--corpus", "corpus.jsonl", "--positions", "2-9", "--per-anchor", "3",
        "--out", "mined.jsonl",
    )  # fmt: skip
    rows = lines_of(Path("mined.jsonl").read_text())
    assert len(rows) == 120
    assert "120 negatives for 40 anchors out of 60 documents: 120 triplets in mined.jsonl" in errors
    given = {(row["text_a"], row["text_b"]) for row in rows_of("positives", 40, 1)}
    corpus = {row["doc"] for row in lines_of(Path("corpus.jsonl").read_text())}
    assert {(row["anchor"], row["positive"]) for row in rows} == given
    assert {row["negative"] for row in rows} <= corpus
    assert not {(row["anchor"], row["negative"]) for row in rows} & given
    for row in rows[:6]:
        near = cosines("toy", [row["anchor"]] * 60, sorted(corpus))
        own = [text for _, text in given if text == row["positive"]]
        ranking = [sorted(corpus)[place] for place in np.argsort(-near) if sorted(corpus)[place] not in own]
        assert 2 <= ranking.index(row["negative"]) + 1 <= 9
    good("train", "mined.jsonl", "--encoder", "toy", "--epochs", "1", "--out", "of-mined")


def test_mine_keeps_vectors_in_shards_and_uses_them_again():
    """The triplets are those without shards; other texts are refused."""
    base = ["mine", "toy", "positives-train.jsonl", "--corpus", "corpus.jsonl", "--positions", "2-9", "--out", "-"]
    plain = good(*base)
    sharded = [*base, "--shards", "mining", "--rows-per-shard", "40", "--workers", "1"]
    assert good(*sharded) == plain
    files = {path: path.stat().st_mtime_ns for path in Path("mining/vectors").glob("shard-*")}
    assert len(files) > 2
    next(iter(files)).unlink()
    code, again, errors = call(*sharded)
    assert again == plain
    assert "continuing: " in errors
    assert sum(path.stat().st_mtime_ns == at for path, at in files.items()) == len(files) - 1
    less = ["mine", "toy", "positives-train.jsonl", "--positions", "1-3", "--out", "-", "--shards", "mining"]
    code, _, errors = call(*less)
    assert code == 1
    assert "this folder has the vectors of other texts. Choose another --shards" in errors
    code, _, errors = call(*base, "--on", "ray")
    assert code == 1
    assert "name a folder for them: --shards FOLDER" in errors


def test_mine_is_the_same_for_the_same_seed():
    outs = [good("mine", "toy", "positives-train.jsonl", "--positions", "1-20", "--seed", seed, "--out", "-")
            for seed in ("4", "4", "5")]  # fmt: skip
    assert outs[0] == outs[1] != outs[2]


def test_mine_writes_balanced_pairs_at_the_ranks_of_the_paper():
    """Ranks 101, 102 and so on; as many yes as no; what was skipped is said."""
    write("many.jsonl", [{"text": f"text {n} about a {THINGS[n % 7]}"} for n in range(130)])
    code, _, errors = call(
        "mine", "toy", "pairs-train.jsonl", "--corpus", "many.jsonl", "--positions", "powers", "--as", "pairs",
        "--oversample", "--out", "balanced.jsonl",
    )  # fmt: skip
    assert code == 0, errors
    rows = lines_of(Path("balanced.jsonl").read_text())
    positives = [row for row in rows_of("pairs", 40, 1) if row["label"]]
    assert sum(row["label"] == 0 for row in rows) == 5 * len(positives)
    assert sum(row["label"] == 1 for row in rows) == 5 * len(positives)
    assert f"note: {40 - len(positives)} left texts without a positive, so no anchor" in errors
    anchor = positives[0]["text_a"]
    corpus = [f"text {n} about a {THINGS[n % 7]}" for n in range(130)]
    order = np.argsort(-cosines("toy", [anchor] * 130, corpus), kind="stable")
    found = [row["text_b"] for row in rows if row["text_a"] == anchor and row["label"] == 0]
    assert found == [corpus[order[rank - 1]] for rank in (101, 102, 104, 108, 116)]


def test_mine_says_how_many_its_filters_left_out():
    base = ["mine", "toy", "positives-train.jsonl", "--positions", "1-30", "--per-anchor", "30", "--as", "pairs"]
    _, out, plain = call(*base, "--out", "-")
    assert "excluded by" not in plain
    pairs = [row for row in lines_of(out) if not row["label"]]
    near = cosines("toy", [row["text_a"] for row in pairs], [row["text_b"] for row in pairs])
    limit = float(np.median(near)) + 1e-6
    _, out, errors = call(*base, "--max-score", str(limit), "--out", "-")
    left = [row for row in lines_of(out) if not row["label"]]
    assert left == [row for row, score in zip(pairs, near, strict=True) if score <= limit]
    assert f"note: {len(pairs) - len(left):,} documents excluded by --max-score" in errors
    assert "fewer negatives than --per-anchor 30" in errors
    _, _, errors = call(*base, "--margin", "0", "--out", "-")
    assert "excluded by --margin" in errors


def test_mine_says_that_all_texts_are_connected_by_positive_pairs():
    """Pairs in a row join their texts, so that nobody is left to be a negative."""
    write("chain.jsonl", [{"text_a": f"number {n}", "text_b": f"number {n + 1}"} for n in range(9)])
    code, _, errors = call("mine", "toy", "chain.jsonl", "--positions", "3-8", "--out", "-")
    assert code != 0
    assert "of 9 documents at most 0 are not known positives of an anchor" in errors
    assert "every text here is connected to every other" in errors


# refusals


REFUSALS = {
    "a threshold that is no number": (["score", "pairs", "pairs-test.jsonl", "--threshold", "nan"], "finite number, got nan"),
    "vectors of a model of joined pairs": (["score", "joined", "pairs-test.jsonl"], "nearfar predict"),
    "search with joined pairs": (["search", "joined", "corpus.jsonl", "corpus.jsonl"], "batch-softmax"),
    "mine with joined pairs": (["mine", "joined", "pairs-test.jsonl", "--out", "x.jsonl"], "batch-softmax"),
    "retrieval with joined pairs": (
        ["evaluate", "joined", "pairs-test.jsonl", "--corpus", "corpus.jsonl"], "batch-softmax",
    ),
    "texts for an encoder": (["evaluate", "toy", "corpus.jsonl"], "an encoder and pairs, triplets or a ranking"),
    "a corpus of pairs": (["search", "toy", "pairs-test.jsonl", "corpus.jsonl"], "--corpus-text"),
    "queries of pairs": (["search", "toy", "corpus.jsonl", "pairs-test.jsonl"], "--text"),
    "an empty corpus": (["search", "toy", "empty.jsonl", "corpus.jsonl"], "empty.jsonl"),
    "a query without a text": (["search", "toy", "corpus.jsonl", "blank.jsonl"], "blank.jsonl:2"),
    "standard input twice": (["search", "toy", "-", "-"], "only one file"),
    "single texts to score": (["score", "toy", "corpus.jsonl"], "--pair"),
    "triplets to score": (["score", "toy", "triplets-test.jsonl"], "the rows have 3 texts"),
    "labels that are neither yes nor no": (["evaluate", "toy", "three.jsonl"], "three.jsonl:1"),
    "a relevance that is a fraction": (["evaluate", "toy", "fraction.jsonl"], "fraction.jsonl:1"),
    "only negatives": (["evaluate", "toy", "never.jsonl"], "none of the 1 pair of the file is positive"),
    "only negatives in a corpus": (["evaluate", "toy", "never.jsonl", "--corpus", "corpus.jsonl"], "nothing to find"),
    "graded scores to find": (["evaluate", "toy", "scores-test.jsonl", "--corpus", "corpus.jsonl"], "labels 1 and 0"),
    "a corpus of other texts": (
        ["evaluate", "toy", "positives-train.jsonl", "--corpus", "other.jsonl"], "have no relevant text in other.jsonl",
    ),
    "a column without a corpus": (["evaluate", "toy", "pairs-test.jsonl", "--corpus-text", "doc"], "--corpus"),
    "mining a column without a corpus": (
        ["mine", "toy", "pairs-test.jsonl", "--corpus-text", "doc", "--out", "x.jsonl"], "--corpus",
    ),
    "positions that are none": (["mine", "toy", "pairs-test.jsonl", "--positions", "50-10", "--out", "x.jsonl"], "10-50"),
    "a misspelled position": (["mine", "toy", "pairs-test.jsonl", "--positions", "power", "--out", "x.jsonl"], "'powers'?"),
    "a form that is none": (["mine", "toy", "pairs-test.jsonl", "--as", "triplet", "--out", "x.jsonl"], "'triplets'?"),
    "oversampled triplets": (["mine", "toy", "pairs-test.jsonl", "--oversample", "--out", "x.jsonl"], "--as pairs"),
    "positions beyond the corpus": (
        ["mine", "toy", "pairs-test.jsonl", "--positions", "powers", "--out", "x.jsonl"], "a larger --corpus",
    ),
    "filters that leave nothing": (
        ["mine", "toy", "pairs-test.jsonl", "--max-score", "-1", "--out", "x.jsonl"], "Loosen them",
    ),
    "mining graded scores": (["mine", "toy", "scores-test.jsonl", "--out", "x.jsonl"], "labels 1 and 0"),
    "a folder that is not there": (["mine", "toy", "pairs-test.jsonl", "--out", "no/x.jsonl"], "there is no folder"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_say_what_to_do(case):
    """Exit code 1, the remedy, and no file left behind."""
    Path("empty.jsonl").write_text("")
    Path("blank.jsonl").write_text('{"query": "a saw"}\n{"query": " "}\n')
    write("three.jsonl", [{"text_a": "a", "text_b": "b", "label": "neutral"}])
    write("fraction.jsonl", [{"query": "a", "doc": "b", "relevance": 0.5}, {"query": "a", "doc": "c", "relevance": 1}])
    write("never.jsonl", [{"text_a": "a", "text_b": "1 0 about a apple", "label": 0}])
    write("other.jsonl", [{"text": "something else"}])
    arguments, expected = REFUSALS[case]
    code, out, errors = call(*arguments)
    assert code == 1, (out, errors)
    assert expected in errors
    assert not Path("x.jsonl").exists()


def test_help_of_every_verb_needs_no_torch():
    code = (
        "import sys\nfrom nearfar.cli import main\n"
        "for verb in ('evaluate', 'score', 'search', 'mine'):\n"
        "    sys.argv = ['nearfar', verb, '--help']\n"
        "    try:\n        main()\n    except SystemExit as stop:\n        assert not stop.code\n"
        "print([name for name in ('torch', 'numpy', 'scipy', 'transformers') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip().endswith("[]"), done.stderr
    for flag in ("--corpus", "--threshold", "--top", "--positions", "--per-anchor", "--oversample"):
        assert flag in done.stdout
