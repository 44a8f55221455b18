"""Bad pairs at the command line: each fault is one clear message with its remedy, before anything is trained."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nearfar.cli import main

GOOD = [
    {"text_a": f"{thing} number {number}", "text_b": f"about {thing} {number}", "label": label}
    for number, (thing, label) in enumerate([("apple", 1), ("horse", 0), ("river", 1), ("cloud", 0), ("violin", 1)])
]


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")


def write(name: str, rows: list[dict[str, Any]]) -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return name


def call(*arguments: str) -> tuple[int, str, str]:
    """Run the command in this process: exit code, standard output, standard error."""
    out, errors, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["nearfar", *arguments])
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", errors)
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return code, out.getvalue(), errors.getvalue()


def train(*arguments: str, objective: str = "batch-softmax") -> tuple[int, str]:
    """The exit code of a training with the toy encoder, and all it said."""
    common = ("--encoder", "toy", "--epochs", "1", "--out", "model")
    code, out, errors = call("train", *arguments, "--objective", objective, *common)
    assert "Traceback" not in errors
    assert Path("model/nearfar.json").exists() == (code == 0)
    return code, " ".join((out + errors).split())


def ranking(*relevances: list[float]) -> list[dict[str, Any]]:
    return [
        {"query_id": f"q{query}", "query": f"question {query}", "doc_id": f"q{query}d{place}",
         "doc": f"answer {place} to {query}", "relevance": grade}
        for query, grades in enumerate(relevances)
        for place, grade in enumerate(grades)
    ]  # fmt: skip


@pytest.mark.parametrize("how", [(), ("--dry-run",)])
def test_a_label_that_is_neither_yes_nor_no_is_refused_with_its_line(how: tuple[str, ...]) -> None:
    """And with what may stand there, or why nothing need."""
    code, said = train(write("pairs.jsonl", [*GOOD, {**GOOD[0], "text_a": "new", "label": 2}]), *how)
    assert code == 1
    assert "if all pairs are positive, remove the column" in said
    assert "pairs.jsonl:6: a label that is not binary (got '2')" in said
    assert "Write 1 for a positive pair and 0 for a negative one (or yes and no)" in said


@pytest.mark.parametrize("how", [(), ("--dry-run",)])
def test_a_dev_score_outside_the_range_of_the_training_scores_is_refused(how: tuple[str, ...]) -> None:
    """The training file sets the scale for all."""
    scored = [
        {"text_a": row["text_a"], "text_b": row["text_b"], "score": 1.25 * place} for place, row in enumerate(GOOD)
    ]
    dev = [{"text_a": "a", "text_b": "b", "score": 2.0}, {"text_a": "c", "text_b": "d", "score": 7.5}]
    code, said = train(write("scores.jsonl", scored), "--dev", write("dev.jsonl", dev), *how, objective="cosine-mse")
    assert code == 1
    assert "dev.jsonl:2: a score outside the range from 0 to 5 (got '7.5')" in said
    assert "use one scale in all files of a run" in said


@pytest.mark.parametrize("value", ["NaN", "inf", "high"])
def test_a_score_that_is_no_number_is_refused_with_its_line(value: str) -> None:
    """In any spelling."""
    Path("scores.csv").write_text(f"text_a,text_b,score\na,b,0\nc,d,5\ne,f,{value}\n", encoding="utf-8")
    code, said = train("scores.csv", objective="cosine-mse")
    assert code == 1
    assert "scores.csv:4: column 'score':" in said
    assert f"(got {value!r})" in said


def test_a_relevance_below_zero_is_refused() -> None:
    """With its line."""
    code, said = train(write("ranking.jsonl", ranking([1, 0], [-1, 1])))
    assert code == 1
    assert "ranking.jsonl:3: column 'relevance':" in said
    assert "'-1'" in said


@pytest.mark.parametrize("objective", ["batch-softmax", "cosine-mse", "contrastive-pairs", "pair-triplet", "mnrl"])
def test_nothing_but_negatives_is_refused(objective: str) -> None:
    """There is nothing to learn."""
    source = write("pairs.jsonl", [{**row, "label": 0} for row in GOOD])
    code, said = train(source, objective=objective)
    assert code == 1
    assert "pairs.jsonl:1: 5 pairs, but none of them is positive. Add positive pairs" in said


def test_equal_pairs_with_opposite_labels_are_refused_with_both_lines() -> None:
    """Swapped and in another case, too; all of them at once, with the texts."""
    swapped = {"text_a": "About APPLE 0", "text_b": "apple  number 0", "label": 0}
    source = write("pairs.jsonl", [*GOOD, swapped, {**GOOD[1], "label": 1}, {**GOOD[2]}])
    code, said = train(source)
    assert code == 1
    assert (
        "pairs.jsonl:6: the label 0 contradicts line 1, where the same two texts have 1: 'About APPLE 0' and "
        "'apple number 0'. Keep the row that is right" in said
    )
    assert "pairs.jsonl:7: the label 1 contradicts line 2, where the same two texts have 0" in said
    assert "2 problems in all." in said
    assert "--invalid drop" in said


def test_equal_pairs_with_opposite_labels_can_be_left_out() -> None:
    """Both of them; it is counted and said, and the rest is trained on."""
    source = write("pairs.jsonl", [*GOOD, {**GOOD[0], "label": 0}])
    code, said = train(source, "--invalid", "drop")
    assert code == 0
    assert "note: pairs.jsonl: 2 rows dropped because 1 pair is both positive and negative (first on line 1)" in said
    assert "rows: train 4;" in said


def test_leaving_out_all_positives_is_refused() -> None:
    """What is left has to be trainable, too."""
    source = write("pairs.jsonl", [GOOD[1], GOOD[0], {**GOOD[0], "label": 0}, GOOD[3]])
    code, said = train(source, "--invalid", "drop")
    assert code == 1
    assert "2 pairs, but none of them is positive" in said


def test_dev_and_test_rows_that_contradict_each_other_stay_and_are_told() -> None:
    """Scores on them stay comparable with those of others."""
    dev = write("dev.jsonl", [{**row, "text_a": f"dev {row['text_a']}"} for row in [*GOOD, {**GOOD[0], "label": 0}]])
    code, said = train(write("pairs.jsonl", GOOD), "--dev", dev)
    assert code == 0
    assert "note: dev.jsonl: 1 pair is both positive and negative (first on line 1): no model gets all" in said
    assert "dev 6;" in said


def test_check_tells_of_contradictions() -> None:
    """But is content: pairs that are read as one text may have any classes."""
    source = write("pairs.jsonl", [*GOOD, {**GOOD[0], "label": 0}])
    code, out, _ = call("check", source, "--json")
    assert code == 0
    notes = json.loads(out)["notes"]
    assert any(note.startswith("1 pair is both positive and negative (first on line 1): objectives") for note in notes)


def test_queries_without_a_positive_are_counted_and_said() -> None:
    """When training on them, and when evaluating on them, where they have no part in the scores."""
    rows = ranking([1, 0, 0], [0, 2, 0], [0, 0, 0], [1, 0], [0, 0])
    code, said = train(write("ranking.jsonl", rows))
    assert code == 0
    assert "ranking.jsonl: 2 queries of 5 without a relevant document (such as 'q2' on line 7)" in said
    code, out, _ = call("evaluate", "model", "ranking.jsonl")
    assert code == 0
    assert "2 of 5 queries have no relevant document and are left out" in " ".join(out.split())
    report = json.loads(call("evaluate", "model", "ranking.jsonl", "--json")[1])
    assert (report["queries"], report["queries_without_positive"]) == (5, 2)


def test_a_ranking_without_any_positive_is_refused_in_evaluation() -> None:
    """There is nothing to find."""
    assert train(write("pairs.jsonl", GOOD))[0] == 0
    code, _, errors = call("evaluate", "model", write("ranking.jsonl", ranking([0, 0], [0, 0])))
    assert code == 1
    assert "nothing to find" in errors


@pytest.mark.parametrize("objective", ["contrastive-pairs", "pair-triplet", "simcse", "mirror"])
def test_scores_in_between_are_refused_where_pairs_are_like_or_unlike(objective: str) -> None:
    """Before the training, and not by the first batch that has one; scores of both ends are as good as labels."""
    rows = [{"text_a": f"left {n}", "text_b": f"right {n}", "score": 5 * (n % 2)} for n in range(9)]
    assert call("train", write("scores.jsonl", rows), "--objective", objective, "--encoder", "toy", "--dry-run")[0] == 0
    rows += [{**rows[0], "text_a": "half", "score": 2.5}, {**rows[0], "text_a": "more", "score": 4}]
    code, said = train(write("scores.jsonl", rows), objective=objective)
    assert code == 1
    assert (
        f"scores.jsonl:10: {objective} takes a pair as positive or negative, and 2 scores lie between 0 and 5" in said
    )
    assert "(got '2.5'). Label the pairs 1 or 0, or take an objective for scores: cosine-mse" in said
    assert not Path("model").exists()


def test_dev_and_test_scores_that_are_all_alike_are_told_before_the_training() -> None:
    """No weights could be better than those of the start."""
    rows = [{"text_a": f"left {n}", "text_b": f"right {n}", "score": n % 6} for n in range(9)]
    flat = write("flat.jsonl", [{**row, "text_a": f"other {row['text_a']}", "score": 3} for row in rows])
    shown = call("train", write("scores.jsonl", rows), "--dev", flat, "--test", flat, "--encoder", "toy", "--dry-run")
    assert (
        "note: all scores of the dev rows are 3, so that their correlation is 0 whatever is learned; name" in shown[2]
    )
    assert "note: all scores of the test rows are 3, so that their correlation is 0 whatever is learned\n" in shown[2]
    shown = call("train", "scores.jsonl", "--dev", "scores.jsonl", "--encoder", "toy", "--dry-run")
    assert "whatever is learned" not in shown[2]


RANKED = ranking([1, 0], [0, 2])
WITHOUT_IDS = [{"query": row["query"], "doc": row["doc"], "relevance": row["relevance"]} for row in RANKED]
UNMEASURABLE = {
    "no positive pair": ([{**row, "label": 0} for row in GOOD], "rows.jsonl:1: none of the 5 pairs of the file is positive"),
    "no relevant document": (ranking([0, 0], [0]), "rows.jsonl:1: none of the 3 pairs of the file is positive"),
    "half a grade": (ranking([1, 0.5]), "rows.jsonl:2: the relevance is not a whole number (got '0.5'). Map"),
    "a document twice": (
        [*RANKED, RANKED[1]],
        "rows.jsonl:5: the document is on line 2 already, for the same query (got 'answer 1 to 0'). Keep one row",
    ),
    "the same text in capitals": (
        [*WITHOUT_IDS, {**WITHOUT_IDS[0], "doc": "ANSWER 0 to 0"}],
        "rows.jsonl:5: the document is on line 1 already, for the same query (got 'ANSWER 0 to 0'). Keep one row",
    ),
}  # fmt: skip


@pytest.mark.parametrize("role", ["--dev", "--test"])
@pytest.mark.parametrize(("rows", "message"), UNMEASURABLE.values(), ids=UNMEASURABLE.keys())
def test_rows_that_give_no_score_are_refused_before_the_training(role: str, rows: Any, message: str) -> None:
    """Found after it, they would take the trained model with them."""
    code, said = train(write("pairs.jsonl", GOOD), role, write("rows.jsonl", rows), "--dry-run")
    assert code == 1
    assert message in said
    code, said = train("pairs.jsonl", role, "rows.jsonl")
    assert code == 1
    assert message in said
    assert not Path("model").exists()


@pytest.mark.parametrize(("rows", "message"), UNMEASURABLE.values(), ids=UNMEASURABLE.keys())
def test_rows_that_give_no_score_are_refused_in_evaluation(rows: Any, message: str) -> None:
    """With the same words."""
    code, _, errors = call("evaluate", "toy", write("rows.jsonl", rows))
    assert code == 1
    assert message in " ".join(errors.split())


def test_a_share_without_a_positive_is_refused_before_the_training() -> None:
    """Stratified as it is, a tenth of few positives is none of them."""
    rows = [{"text_a": f"left {n}", "text_b": f"right {n}", "label": int(n < 2)} for n in range(40)]
    code, said = train(write("pairs.jsonl", rows), "--test", "0.1")
    assert code == 1
    assert "none of the 4 pairs of the share set aside as test rows is positive" in said
    assert not Path("model").exists()


@pytest.mark.parametrize("value", ["0", "-0.1", "nan"])
def test_a_temperature_that_is_not_above_zero_is_refused(value: str) -> None:
    """Where it was written, with what fits."""
    code, said = train(write("pairs.jsonl", GOOD), "--set", f"objective.temperature={value}")
    assert code == 1
    assert "objective.temperature" in said
    assert "above 0" in said or "number" in said


@pytest.mark.parametrize("shuffle", ["neighbors", "shingles", "clusters", "neighbor-ids"])
def test_a_group_larger_than_the_batch_is_refused(shuffle: str) -> None:
    """With both settings and both ways out."""
    settings = ("--set", f"batches.shuffle={shuffle}", "--set", "batches.size=4", "--set", "batches.group=8")
    code, said = train(write("pairs.jsonl", GOOD), *settings)
    assert code == 1
    assert "batches.group is 8, but a batch has only 4 rows (batches.size)" in said
    assert "lower group to at most 4, or raise size to at least 8" in said
