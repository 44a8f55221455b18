"""The scores of the untrained encoder beside those of the trained one, wherever texts are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nearfar
from nearfar.cli.train import show_summary
from nearfar.data import read
from nearfar.encoding import load
from nearfar.pipeline import train
from nearfar.pipeline.evaluate import measure
from nearfar.recipe import build_recipe

THINGS = ["apple", "pear", "hammer", "saw", "horse", "otter", "river", "cloud", "violin", "lantern"]


def rows_of(kind: str, rows: int, seed: int) -> list[dict[str, Any]]:
    """Made-up rows; texts about the same thing are positive pairs."""
    made: list[dict[str, Any]] = []
    for row in range(rows):
        one, same = THINGS[row % len(THINGS)], row * seed % 3 > 0
        other = one if same else THINGS[(row + seed) % len(THINGS)]
        left, right = f"the {one} number {row} of {seed}", f"{seed} {row} about a {other}"
        made.append(
            {
                "scores": {"text_a": left, "text_b": right, "score": 4 * same + row % 5 / 5},
                "pairs": {"text_a": left, "text_b": right, "label": int(same)},
                "triplets": {"anchor": left, "positive": f"{row} about a {one}", "negative": f"no {other} at all"},
                "ranking": {"query": f"the {one} of {seed}", "doc": right, "relevance": int(same)},
            }[kind]
        )
    return made


def write(name: str, rows: list[dict[str, Any]]) -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return name


def run(out: Path, kind: str, encoder: str = "toy", **data: Any) -> Any:
    rows = write(str(out.parent / f"{kind}.jsonl"), rows_of(kind, 40, 1))
    values = {
        "data": {"train": rows, **data}, "encoder": {"name": encoder}, "batches": {"size": 12},
        "objective": {"name": "batch-softmax"},
        "training": {"epochs": 1, "learning_rate": 1e-3, "precision": "fp32", "keep_untrained": False},
    }  # fmt: skip
    return train(build_recipe(values, [], where="test"), out)


@pytest.mark.parametrize("kind", ["pairs", "triplets", "ranking"])
def test_the_untrained_encoder_is_measured_on_the_same_rows(tmp_path: Path, kind: str):
    test = write(str(tmp_path / "test.jsonl"), rows_of(kind, 30, 2))
    encoder = str(tmp_path / "encoder")
    nearfar.Encoder("toy").save(encoder)  # the weights of "toy" itself follow from the seed of a run
    summary = run(tmp_path / "model", kind, encoder, dev=0.25, test=test)
    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text())
    assert metrics["untrained"] == summary.before
    assert metrics["untrained"]["dev"] == summary.progress.evaluations[0]["scores"]
    expected, _ = measure(load(encoder), read(test))
    measured = metrics["untrained"]["test"]
    free = [name for name in measured if not name.startswith(("f1", "accuracy", "precision", "recall"))]  # no threshold
    assert free
    assert [measured[name] for name in free] == pytest.approx([expected.scores[name] for name in free], abs=1e-5)
    assert measured != summary.report("test").scores
    assert "| test, untrained encoder |" in (tmp_path / "model" / "README.md").read_text()


def test_with_dev_rows_alone_their_first_evaluation_is_the_untrained_one(tmp_path: Path):
    summary = run(tmp_path / "model", "scores", dev=0.25)
    assert summary.before == {"dev": summary.progress.evaluations[0]["scores"]}
    assert summary.progress.evaluations[0]["step"] == 0


def test_the_summary_ends_with_both_scores_or_says_how_to_get_them(tmp_path: Path):
    from rich.console import Console

    test = write(str(tmp_path / "test.jsonl"), rows_of("scores", 30, 2))
    console = Console(record=True, width=120)
    summary = run(tmp_path / "model", "scores", dev=None, test=test)
    show_summary(summary, console)
    after, before = summary.report("test").scores["spearman"], summary.before["test"]["spearman"]
    assert f"test spearman {after:.4f}, untrained encoder {before:.4f} (" in console.export_text()
    show_summary(run(tmp_path / "other", "scores", dev=None), console)
    assert "--dev 0.2" in console.export_text()


def test_a_classifier_has_no_untrained_scores(tmp_path: Path):
    values = {"data": {"train": "sample:helpdesk", "test": "sample:helpdesk#test"}, "encoder": {"name": "toy"}}
    values |= {"training": {"max_steps": 1}}
    summary = train(build_recipe(values, [], where="test"), tmp_path / "model")
    assert summary.before == {}
    assert "untrained" not in json.loads((tmp_path / "model" / "metrics.json").read_text())
