"""The claims of papers: studies as data, points that are chosen elsewhere, restarts, the rule of verdicts, tables."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from benchmarks.few_labels import Results
from benchmarks.papers import page, reweighted, studies
from benchmarks.papers.__main__ import drive, main
from benchmarks.papers.studies import SEARCH, Known, Part, Run, laid_over, pending
from benchmarks.papers.verdicts import CONFIRMED, CONTROL, NOT_CONFIRMED, NOT_RUN, UNKNOWN, judge, verdict

from nearfar.experiments.statistics import corrected_t_test
from nearfar.pipeline.objectives import unregister
from nearfar.recipe import OBJECTIVES

STUDY = """
paper = "triple-entropy"
title = "A study"
measure = "classes"
score = "accuracy"
data = ["one", "two", "three"]
rows = [20]
seeds = [1, 2]
[encoders.small]
[encoders."small:random"]
training = { epochs = 2 }
[recipe.training]
epochs = 1
[contenders.before]
untrained = true
[contenders.plain]
objective = { name = "cross-entropy" }
search = [{ training = { learning_rate = 1e-4 } }, { training = { learning_rate = 3e-4 } }]
[contenders.new]
objective = { name = "triple-entropy" }
search = [{ objective = { beta = 0.9 } }, { objective = { beta = 0.5 } }]
[contenders.rare]
seeds = 1
objective = { name = "supcon" }
[[claims]]
says = "new is better"
contrast = { new = 1, plain = -1 }
gain = 2.0
published = "table 1"
[[claims]]
says = "both together"
contrast = { new = 1, plain = -1, rare = -1, before = 1 }
data = ["one"]
gain = 1.0
published = "no figure"
"""
SMALL = Part(encoders=["small"])


@pytest.fixture(autouse=True)
def unregistered() -> Iterator[None]:
    """Other tests list the objectives of the package."""
    yield
    if reweighted.NAME in OBJECTIVES:
        unregister(reweighted.Reweighted)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "made.toml").write_text(STUDY)
    return tmp_path


@pytest.fixture
def known(folder):
    return Known(studies.read_study(folder / "made.toml"), Results(folder / "made.jsonl"))


def scored(of):
    return lambda run: {"scores": {"accuracy": of(run)}, "steps": 1, "cpu_seconds": 0.1}


def by_point(run):
    """The second point of ``new`` is best on all data sets but the first."""
    varied = 52.0 + (run.seed - 1.5) / 8  # units that are all the same would have the p of a sign test
    base = {"before": 40.0, "plain": 50.0, "new": varied, "rare": 41.0}[run.contender]
    return base + run.seed + (run.point if run.data != "one" else -run.point)


def test_tables_are_laid_over_and_objectives_replaced():
    assert laid_over({"a": {"b": 1}}, {"a": {"c": 2}, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}
    assert laid_over({"objective": {"name": "x", "k": 1}}, {"objective": {"k": 2}}) == {
        "objective": {"name": "x", "k": 2}
    }
    assert laid_over({"objective": {"name": "x", "k": 1}}, {"objective": {"name": "y"}}) == {"objective": {"name": "y"}}


def test_the_search_comes_first_and_every_run_once(known):
    runs = []

    def measured(run):
        runs.append(run)
        return scored(by_point)(run)

    assert drive(known, measured, part=SMALL) == 0
    assert len(runs) == len(set(runs))
    searched = runs[:12]
    assert {run.contender for run in searched} == {"plain", "new"}
    assert {run.seed for run in searched} == {SEARCH}
    judged = [run for run in runs[12:] if run.contender in ("plain", "new")]
    assert len(judged) == 2 * 2 * 3
    assert sum(run.contender == "rare" for run in runs) == 3
    assert [run.seed for run in runs if run.contender == "before"] == [SEARCH] * 3
    assert list(pending(known, part=SMALL)) == []


def test_the_point_of_a_data_set_is_chosen_on_the_others(known):
    drive(known, scored(by_point), part=SMALL)
    assert known.chosen(Run("small", "one", 20, "new", 1)) == 1  # two and three gain by it
    assert known.chosen(Run("small", "two", 20, "new", 1)) == 0  # one loses as much as three gains
    assert known.chosen(Run("small:random", "one", 20, "new", 1)) is None
    assert known.judged(Run("small", "one", 20, "before", 2)) == known.judged(Run("small", "one", 20, "before", 1))


def test_what_is_there_is_not_run_again_and_a_failure_loses_no_other_run(known, folder):
    def failing(run):
        if run.contender == "rare" and run.data == "two":
            raise RuntimeError("no memory left")
        return scored(by_point)(run)

    assert drive(known, failing, part=SMALL, runs=5) == 0
    again = Known(known.study, Results(folder / "made.jsonl"))
    assert len(again.scores) == 5
    assert drive(again, failing, part=SMALL) == 1
    last = Known(known.study, Results(folder / "made.jsonl"))
    (left,) = pending(last, part=SMALL)
    assert (left.contender, left.data) == ("rare", "two")
    assert drive(last, scored(by_point), part=SMALL, seconds=0) == 0
    assert list(pending(last, part=SMALL)) == [left]


def test_a_part_of_a_study_is_run(known):
    drive(known, scored(by_point), part=Part(encoders=["small"], contenders=["plain", "rare"], seeds=1))
    runs = {run for run, _ in known.scores}
    assert {(run.encoder, run.contender) for run in runs} == {("small", "plain"), ("small", "rare")}
    assert {run.seed for run in runs} == {SEARCH, 1}
    assert not list(pending(known, Part(rows=[100])))


def test_a_changed_study_has_new_runs_and_a_claim_changes_none(known, folder):
    drive(known, scored(by_point), part=SMALL)
    results = Results(folder / "made.jsonl")
    assert not list(pending(Known(replace(known.study, claims=()), results), part=SMALL))
    longer = replace(known.study, recipe={"training": {"epochs": 9}})
    assert len(list(pending(Known(longer, results), part=SMALL))) == 12 + 3 + 3  # before the search is done


@pytest.mark.parametrize(
    ("units", "gain", "p", "expected"),
    [
        ([2.0, 2.1, 1.9, 2.0, 2.0], 9.0, 0.01, CONFIRMED),  # smaller than published, but above zero
        ([-2.0, -2.1, -1.9, -2.0, -2.0], 1.0, 0.01, NOT_CONFIRMED),
        ([0.1, -0.1, 0.0, 0.1, -0.1], 1.0, 0.9, NOT_CONFIRMED),  # the published gain is out of reach
        ([3.0, -3.0, 1.0, -1.0, 2.0], 1.0, 0.9, UNKNOWN),
        ([2.0, 2.1, 1.9, 2.0, 2.0], 1.0, 0.2, UNKNOWN),  # too many claims for this p
        ([2.0, 2.1, 1.9, 2.0], 1.0, 0.001, UNKNOWN),
        ([0.0] * 4, 1.0, 1.0, UNKNOWN),
        ([0.0] * 5, 1.0, 1.0, NOT_CONFIRMED),
    ],
)
def test_the_rule(units, gain, p, expected):
    assert verdict(units, gain, p) == expected


def test_claims_are_corrected_together_and_controls_apart(known):
    drive(known, scored(by_point))
    judged = {(one.claim.says, one.encoder): one for one in judge([known])}
    new, both = judged["new is better", "small"], judged["both together", "small"]
    assert len(new.units) == 6
    assert both.units == pytest.approx([new.units[0] + 40 - 42])  # one seed of rare, and before for all
    assert both.verdict == UNKNOWN
    assert judged["new is better", "small:random"].verdict == CONTROL
    assert new.p == pytest.approx(2 * corrected_t_test(new.units, test_to_train=0.0).p)
    assert new.verdict == CONFIRMED


def test_claims_without_runs_are_listed(folder):
    assert [one.verdict for one in judge(page.known_studies("triple-entropy", folder, folder))] == [NOT_RUN] * 4
    lines = page.tables("triple-entropy", folder, folder).splitlines()
    assert lines[0] == "Not run with `small`, `small:random`, 20 rows (published difference in brackets):"
    assert lines[2] == "- new is better (+2.0, table 1)"
    assert not any(line.startswith("|") or "A study" in line for line in lines)


def test_the_table_has_differences_intervals_and_means(known, folder):
    drive(known, scored(by_point))
    table = page.tables("triple-entropy", folder, folder)
    row = next(line for line in table.splitlines() if line.startswith("| new is better | small, 20 |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2] == "6"
    assert cells[3].startswith("+2.0 (")
    assert cells[5:] == ["+2.0, table 1", "confirmed"]
    assert "A study (`python -m benchmarks.papers run made`):" in table
    assert "| small, 20, one | 2 | 40.0 |" in table


def test_a_study_with_unknown_contenders_or_the_seed_of_the_search_is_refused(folder):
    changes = (("rare = -1", "other = -1"), ("seeds = [1, 2]", "seeds = [0, 1]"), ('"one", "two", "three"', '"one"'))
    for wrong in (STUDY.replace(*change) for change in changes):
        (folder / "wrong.toml").write_text(wrong)
        with pytest.raises(SystemExit, match=r"wrong\.toml"):
            studies.read_study(folder / "wrong.toml")


def test_the_studies_of_the_project_are_complete_and_fair():
    """Contenders of a study have equally many points, and its recipes are valid."""
    from nearfar.recipe import build_recipe

    reweighted.register_once()
    found = studies.all_studies()
    assert len(found) >= 9
    assert {study.paper for study in found.values()} == set(page.PAPERS)
    for study in found.values():
        trained = [name for name, values in study.contenders.items() if not values.get("untrained")]
        assert len({study.points(name) for name in trained}) == 1, study.name
        assert len({claim.says for claim in study.claims}) == len(study.claims)
        for name in trained if study.measure != "tasks" else ():
            for point in range(study.points(name)):
                run = Run(next(iter(study.encoders)), study.data[0], study.rows[0], name, 1, point)
                values = {key: value for key, value in study.values(run).items() if key != "random_letters"}
                build_recipe({**values, "data": {"train": "-"}}, where=study.name)


def test_every_line_of_results_belongs_to_its_study():
    for name, study in studies.all_studies().items():
        for line in Results(studies.LINES / f"{name}.jsonl").lines():
            assert line["encoder"] in study.encoders
            assert study.score in line["scores"]


def test_the_list_names_every_study(capsys, tmp_path):
    assert main(["list", "--results", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert all(f"{name}: 0 runs there" in shown for name in studies.all_studies())
    assert main(["run", "no-such-study"]) == 2
    assert main(["run"]) == 2


def test_other_weights_keep_that_of_the_own_class_and_the_sum():
    torch.manual_seed(0)
    probabilities, labels = torch.rand(6, 4).softmax(dim=1), torch.tensor([0, 1, 2, 3, 0, 1])
    own = torch.nn.functional.one_hot(labels, 4).bool()
    for negatives in ("uniform", "random"):
        module = reweighted.ReweightedLabelAware(temperature=0.3, negatives=negatives)
        changed = module.reweighted(probabilities, labels)
        torch.testing.assert_close(changed[own], probabilities[own])
        torch.testing.assert_close(changed.sum(dim=1), probabilities.sum(dim=1))
        others = changed[~own].reshape(6, 3)
        if negatives == "uniform":
            torch.testing.assert_close(others, others[:, :1].expand(6, 3))
        else:
            before = probabilities[~own].reshape(6, 3)
            torch.testing.assert_close(others.sort(dim=1).values, before.sort(dim=1).values)
            assert not torch.equal(others, before)


@pytest.mark.parametrize("objective", ["label-aware", "label-aware-reweighted"])
def test_a_run_trains_and_tests(tmp_path, objective):
    """The toy encoder on made-up texts; the lines of a run are JSON."""
    from benchmarks.papers.measures import Places, measure

    source = tmp_path / "trec"
    source.mkdir()
    for name, count in (("train", 60), ("test", 12)):
        with gzip.open(source / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": f"{name} {n} of {n % 2}", "label": n % 2}) + "\n" for n in range(count))
    (tmp_path / "small.toml").write_text(
        f"""
paper = "triple-entropy"
title = "A small study"
measure = "classes"
score = "accuracy"
data = ["trec"]
rows = [12]
seeds = [1]
claims = []
[encoders.toy]
[contenders.only]
objective = {{ name = "{objective}" }}
training = {{ max_steps = 2, epochs = 2 }}
batches = {{ size = 6 }}
"""
    )
    study = studies.read_study(tmp_path / "small.toml")
    line = measure(study, Run("toy", "trec", 12, "only", 1), Places(tmp_path, tmp_path))
    assert json.loads(json.dumps(line)) == line
    assert line["steps"] == 2
    assert 0 <= line["scores"]["accuracy"] <= 100


@pytest.mark.parametrize("contender", ["before", "mirror", "random-strings"])
def test_a_run_on_plain_texts_trains_and_tests(tmp_path, contender):
    """The correlation on each set of scored pairs, their mean, and the anisotropy."""
    from benchmarks.papers.measures import Places, measure

    rows: dict[str, list[dict[str, object]]] = {
        "stsb/test": [{"text1": f"one {n}", "text2": f"two {n // 2}", "score": n / 9} for n in range(10)],
        "sts12/test": [{"text1": f"three {n}", "text2": f"four {n // 2}", "score": n / 9} for n in range(10)],
        "en_words_10k/train": [{"text": f"word{n}"} for n in range(24)],
    }
    for name, lines in rows.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    study = replace(
        studies.all_studies()["mirror-words"], encoders={"toy": {}}, options={"test": 8, "sets": ["stsb", "sts12"]}
    )
    line = measure(study, Run("toy", "en_words_10k", 24, contender, 1), Places(tmp_path, tmp_path))
    assert set(line["scores"]) == {"stsb", "sts12", "mean", "anisotropy"}
    assert line["scores"]["mean"] == pytest.approx((line["scores"]["stsb"] + line["scores"]["sts12"]) / 2, abs=1e-3)
    assert (line["steps"] > 0) == (contender != "before")
