"""The benchmarks' contenders, tables and wiring; nothing is timed here."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest
from benchmarks.bench import OURS, Bench, Contender, WorkerFailed, parse
from benchmarks.comparison import Comparison
from benchmarks.comparisons import COMPARISONS
from benchmarks.tables import Spread
from benchmarks.texts import Texts, balanced, take, write
from benchmarks.turns import Plan
from benchmarks.workers.common import read_rows
from benchmarks.workers.similarity import spearman
from benchmarks.workers.train_nearfar import Watch, recipe_of

from benchmarks import compare, lines, machine, results_page, sources, tables, training
from nearfar.recipe import build_recipe


def run(speed: float, **more: object) -> dict[str, object]:
    return {"texts_per_second": speed, "cpu_ms_per_text": 2_000 / speed, "seconds": 1.0, "peak_rss_mb": 900.0,
            "quality": {}, "threads": 2, "others": 0.0, "steal": 0.0, **more}  # fmt: skip


class FakeBench(Bench):
    """Answers for the workers without starting any."""

    def work(self, contender: Contender) -> dict[str, object]:
        self.asked = [*getattr(self, "asked", []), contender.name]
        if contender.job.get("broken"):
            raise WorkerFailed(f"{contender.name}: the worker ended with 1: out of luck")
        details = {"tokens_per_text": 25.0, "weights": 10_000_000, "width": 384, "inner": 1536}
        score = contender.job.get("seed", 0) / 10 + (0.05 if contender.name == OURS else 0.0)
        return run(
            contender.job.get("speed", 10.0), details=details if contender.worker == "count_tokens" else {},
            quality={"f1_macro": score},
        )  # fmt: skip

    def minilm(self) -> str:
        return "minilm"

    def onnx_python(self) -> Path:
        return Path(sys.executable)


@pytest.fixture
def bench(tmp_path):
    return FakeBench(texts=Texts(tmp_path / "nothing", seed=1), scratch=tmp_path, quick=True)


def test_spread_leaves_out_what_is_missing():
    assert tables.spread([3.0, None, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert tables.spread([None]) is None
    assert tables.spread([]) is None


def test_ratios_go_repeat_by_repeat():
    """Ours over theirs of the same turn, which is not the ratio of the medians."""
    assert tables.ratios([10.0, 30.0, None, 5.0], [5.0, 10.0, 1.0, None]) == [2.0, 3.0, None, None]
    assert tables.ratios([10.0], [0.0]) == [None]
    with pytest.raises(ValueError, match="shorter"):
        tables.ratios([1.0, 2.0], [1.0])


def test_paired_differences():
    mean, error = tables.paired([0.9, 0.8, 0.7], [0.8, 0.8, 0.6])
    assert mean == pytest.approx(0.2 / 3)
    assert error == pytest.approx(0.1 / 3)
    assert tables.paired([0.5], [0.25]) == (0.25, 0.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (2.0, "2"), (1234.5, "1,234"), (123.4, "123"), (12.34, "12.3"), (1.239, "1.24"), (0.01234, "0.0123"),
     (4.4e-16, "4.4e-16"), (-3.14159, "-3.14")],
)  # fmt: skip
def test_numbers_have_three_digits(value, text):
    assert tables.number(value) == text


def test_one_value_has_no_spread():
    assert tables.with_spread([2.5], " x") == "2.50 x"
    assert tables.with_spread([2.5, None], " x") == "2.50 x"
    assert tables.with_spread([2.5, 3.5, 1.5], " x") == "2.50 x (1.50 to 3.50)"
    assert tables.with_spread([None]) == "-"


def test_markdown_is_aligned_and_escaped():
    assert tables.markdown(["who", "speed"], [["a|b", "1"], ["long name", "2\n3"]]).splitlines() == [
        "| who       | speed |",
        "|-----------|------:|",
        "| a\\|b      | 1     |",
        "| long name | 2 3   |",
    ]


def test_the_quality_table_is_paired():
    text = tables.quality_table([1, 2], [0.9, 0.8], [0.8, 0.8], ("nearfar", "Trainer"))
    assert "| 1    | 0.9000  | 0.8000  | +0.1000          |" in text
    assert "+0.0500 ± 0.0500" in text


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("bf16", [False, True])
def test_every_contender_has_a_worker(bench, name, bf16):
    """Names are distinct, nearfar comes first, jobs are JSON, and the worker's file is there."""
    bench.bf16 = bf16
    contenders = list(COMPARISONS[name].contenders(bench))
    names = [contender.name for contender in contenders]
    assert names[0].startswith(OURS)
    assert {contender.base for contender in contenders} <= {None, *names}
    assert len(set(names)) == len(names)
    for contender in contenders:
        assert contender.path.is_file()
        assert "__main__" in contender.path.read_text(encoding="utf-8")
        json.dumps(contender.job)


def test_one_thread_means_everybody(bench):
    contenders = list(COMPARISONS["finetune-one-thread"].contenders(bench))
    assert len(contenders) >= 4
    assert {contender.threads for contender in contenders} == {1}


@pytest.mark.parametrize("name", ["finetune", "pairs", "raw"])
def test_contenders_share_model_texts_batch_and_seed(bench, name):
    contenders = list(COMPARISONS[name].contenders(bench))
    for key in ("encoder", "train", "batch", "seed", "max_length", "warm"):
        assert len({contender.job[key] for contender in contenders}) == 1


def test_contenders_can_be_left_out(bench, capsys):
    bench.bf16 = True
    everybody = [one.name for one in COMPARISONS["finetune"].contenders(bench)]
    fewer = compare.leave_out(COMPARISONS["finetune"], ["nearfar, fp32", "trainer"])
    assert [one.name for one in fewer.contenders(bench)] == [name for name in everybody if name != "nearfar, fp32"]
    assert "--without 'trainer': no contender has this name; they are nearfar, Trainer," in capsys.readouterr().err
    assert list(compare.leave_out(fewer, ["Trainer"]).contenders(bench))[1].name != "Trainer"


def measured(name: str, comparison: Comparison, bench: Bench, rounds: int = 1) -> tuple[list[dict[str, object]], bool]:
    """The lines of a comparison whose workers are not started, and whether it is complete."""
    found: list[dict[str, object]] = []
    complete = compare.compare(name, comparison, bench, Plan(rounds, rounds, seconds=0.0, busy=True), found.append)
    return found, complete


def test_a_failure_costs_the_turns_that_are_left_and_is_written_down(bench):
    def contenders(_bench):
        yield Contender("nearfar", "train_nearfar", {"speed": 20.0})
        yield Contender("unlucky", "finetune_trainer", {"broken": True})
        yield Contender("peer", "finetune_trainer", {"speed": 5.0})

    found, complete = measured("finetune", Comparison("a test", contenders), bench, 2)
    assert not complete
    assert bench.asked.count("unlucky") == 1
    assert bench.asked.count("peer") == bench.asked.count("nearfar") == 2
    [failure] = lines.of_kind(found, "failure")
    assert failure["why"] == "unlucky: the worker ended with 1: out of luck"


def test_the_share_of_the_matrix_rate():
    details = {"fp32 GFLOP/s": 48.0, "bf16 GFLOP/s": 24.0, "tokens_per_text": 20.0, "weights": 1_000_000}
    [text] = training.share({OURS: [run(100.0)], "matrix products": [run(1.0, details=details)]})
    assert "12 GFLOP/s, 25 % of the fp32 matrix products measured here (48 GFLOP/s)." in text
    assert "50 % of the bf16 matrix products" in text
    assert training.share({OURS: [run(100.0)]}) == []


def test_distances_are_from_the_default_peer_on_the_texts_that_both_embedded(bench):
    import numpy as np

    contenders = list(COMPARISONS["embed"].contenders(bench))
    for contender in contenders:
        np.save(contender.job["vectors"], np.eye(3, dtype=np.float32) * 2)
    np.save(contenders[0].job["vectors"], np.asarray([[1, 0, 0], [0, 1, 0], [0, 1, 1], [9, 9, 9]], dtype=np.float32))
    found = {line["contender"]: line["quality"] for line in COMPARISONS["embed"].finish(bench, contenders)}
    assert set(found) == {contender.name for contender in contenders}
    assert found[OURS]["1 - cosine, at most"] == pytest.approx(1 - 0.5**0.5)
    assert found[OURS]["1 - cosine, mean"] == pytest.approx((1 - 0.5**0.5) / 3)
    assert found["sentence-transformers bf16"] == {"1 - cosine, mean": 0.0, "1 - cosine, at most": 0.0}


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("bf16", [False, True])
def test_no_recipe_leaves_objective_rate_or_batch_to_the_data(bench, name, bf16):
    bench.bf16 = bf16
    for contender in COMPARISONS[name].contenders(bench):
        if contender.worker == "train_nearfar":
            recipe = build_recipe(recipe_of(contender.job), where="test")
            assert recipe.objective.name == contender.job.get("objective", {"name": "cross-entropy"})["name"] != "auto"
            assert recipe.training.learning_rate == 5e-5
            assert recipe.training.epochs is not None
            assert recipe.batches.size == contender.job["batch"]
            assert recipe.batches.shuffle in ("file-order", "random")


@pytest.mark.parametrize("name", ["pairs", "raw"])
def test_where_bf16_is_fast_pairs_are_trained_in_both_precisions_by_both(bench, name):
    bench.bf16 = True
    found = {
        contender.name: (contender.job.get("precision"), contender.job.get("best"))
        for contender in COMPARISONS[name].contenders(bench)
    }
    assert found == {
        OURS: (None, None), "sentence-transformers": (None, None), "sentence-transformers, bf16": (None, True),
        f"{OURS}, fp32": ("fp32", None),
    }  # fmt: skip


def test_triple_entropy_is_measured_against_cross_entropy_on_the_same_batches(bench):
    contenders = list(COMPARISONS["triple-entropy"].contenders(bench))
    by_name = {contender.name: contender for contender in contenders}
    costly = [contender for contender in contenders if contender.base]
    assert [contender.job["batch"] for contender in costly] == [32, 64]
    for contender in costly:
        assert contender.job["objective"] == {"name": "triple-entropy", "centers": 2_000, "level": "tokens"}
        plain = by_name[contender.base].job
        assert "objective" not in plain
        assert plain == {key: value for key, value in contender.job.items() if key != "objective"}
        assert contender.amount == by_name[contender.base].amount == "count"
        assert plain["count"] == contender.grain == 4 * plain["batch"]


@pytest.mark.parametrize(("quick", "texts"), [(True, 2_048), (False, 8_192)])
def test_the_huge_batch_has_the_timed_pairs_of_the_small_ones(bench, quick, texts):
    bench.quick = quick
    small, huge = COMPARISONS["large-batch"].contenders(bench)
    assert huge.base == small.name
    assert "chunk" not in small.job
    assert small.job["batch"] * small.job["texts_a_row"] == huge.job["chunk"] * huge.job["texts_a_row"] == 64
    assert huge.job["batch"] * huge.job["texts_a_row"] == texts
    rows = read_rows(huge.job["train"])
    assert len(rows) == huge.job["batch"]
    assert read_rows(small.job["train"])[small.job["warm"] * small.job["batch"] :] == rows
    assert huge.job["warm"] == 0


@pytest.mark.parametrize(("warm", "seconds"), [(1, 19.0), (2, 12.0), (0, 20.0)])
def test_the_watch_times_the_steps_after_the_warm_up_and_weighs(monkeypatch, warm, seconds):
    times = iter([0.0, 99.0, 100.0, 107.0, 119.0])
    monkeypatch.setattr(machine.Activity, "now", classmethod(lambda cls: cls(next(times), 0.0, 0.0)))
    watch = Watch([1, 3], warm)
    watch.begin(3)
    for step in (1, 2, 3):
        watch.step({"step": step, "steps": 3, "loss": 1.0, "seconds": 10.0 * step})
    watch.memory = {1: 200.0, 3: 220.0}
    assert watch.clock.seconds == seconds
    assert watch.growth() == {
        "MB after 1 steps": 200.0, "MB after 3 steps": 220.0, "growth in percent": pytest.approx(10.0)
    }  # fmt: skip
    assert watch.peak > 0
    watch.memory = {}
    assert watch.growth() == {}


@pytest.mark.parametrize("name", ["long-run", "memory"])
def test_memory_is_weighed_early_and_at_the_last_step(bench, name):
    bench.quick = False
    [contender] = COMPARISONS[name].contenders(bench)
    assert contender.job["marks"] == [500, 5_000]
    assert contender.job["steps"] == 5_000
    recipe = build_recipe(recipe_of(contender.job), where="test")
    assert recipe.training.max_steps == 5_000
    assert recipe.training.epochs * len(read_rows(contender.job["train"])) > 5_000 * contender.job["batch"]


@pytest.mark.parametrize(
    ("name", "peer", "metric"),
    [("finetune", "Trainer", "f1_macro"), ("pairs", "sentence-transformers", "spearman"), ("long-256", "Trainer", "f1_macro")],
)  # fmt: skip
def test_both_tools_are_trained_on_every_seed(bench, name, peer, metric):
    """On the same rows, with the same rate, warm-up and decay, from the same encoder."""
    bench.quality, bench.seeds = True, 3
    found, complete = measured(name, COMPARISONS[name], bench)
    assert complete
    assert bench.asked[-6:] == [OURS, peer] * 3
    scores = [line for line in lines.of_kind(found, "quality") if line["seed"]]
    assert [line["seed"] for line in scores] == [1, 1, 2, 2, 3, 3]
    assert COMPARISONS[name].quality.metric == metric
    ours, theirs = COMPARISONS[name].quality.trainings(bench)
    assert (
        theirs.job["arguments"]["learning_rate"]
        == build_recipe(recipe_of({**ours.job, "seed": 1}), where="test").training.learning_rate
    )
    assert {key: value for key, value in theirs.job.items() if key != "arguments"} == ours.job


@pytest.fixture
def folder(tmp_path):
    """A data folder with scored pairs and questions."""
    pairs = [{"text_a": f"a {score}", "text_b": f"b {score}", "score": score / 2} for score in range(11)]
    questions = [{"text": f"what is {number} ?", "label": f"c{number % 6}"} for number in range(12)]
    for name, rows in (
        ("stsb/train", pairs),
        ("stsb/dev", pairs[:3]),
        ("trec/train", questions),
        ("imdb/train_sample5k", questions),
    ):
        path = tmp_path / f"{name}.jsonl.gz"
        path.parent.mkdir(exist_ok=True)
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return tmp_path


def test_pairs_and_questions_come_from_the_data_folder(folder):
    texts = Texts(folder, seed=1)
    found, name = sources.positives(texts)
    assert sorted(row["text_a"] for row in found) == ["a 10", "a 8", "a 9"]
    assert set(found[0]) == {"text_a", "text_b"}
    assert all(row["text_a"][1:] == row["text_b"][1:] for row in found)
    assert "STSb" in name
    assert len(sources.all_pairs(texts)[0]) == 11
    assert sources.all_pairs(texts) == sources.all_pairs(texts)
    assert [row["score"] for row in sources.graded(texts)] == [0.0, 0.5, 1.0]
    found, name = sources.questions(texts)
    assert name == "TREC"
    assert len({row["label"] for row in found}) == 6
    found, name = sources.reviews(texts)
    assert name == "IMDb reviews"
    assert len(found) == 12


def test_without_the_data_folder_reviews_are_long_texts_of_the_sample(tmp_path):
    for split in ("train", "test"):
        found, name = sources.reviews(Texts(tmp_path, seed=1), split)
        assert "no IMDb" in name
        assert len(found) >= 16
        assert {len(row["text"].split()) for row in found} == {230}
        assert len({row["label"] for row in found}) > 1


def test_every_block_of_a_balanced_order_has_the_same_lengths():
    rows = [{"text": "word " * (1 + number % 50), "label": "a"} for number in range(1_000)]
    found = balanced(rows, 100, seed=1)
    assert sorted(found, key=str) == sorted(rows, key=str)
    means = [
        sum(len(row["text"].split()) for row in found[start : start + 100]) / 100 for start in range(0, 1_000, 100)
    ]
    assert max(means) - min(means) < 0.6
    assert found[:100] != sorted(found[:100], key=lambda row: len(row["text"]))
    assert balanced(rows[:5], 100, seed=1) != []


def test_plain_texts_have_no_labels_and_come_from_the_data_folder(folder, tmp_path):
    """The first ones of a long file, in one shuffled order; without the folder, those of the sample."""
    assert all(set(row) == {"text"} for row in sources.plain(Texts(tmp_path / "nothing", seed=1))[0])
    rows = [{"text": f"sentence {n}"} for n in range(sources.PLAIN + 5)]
    (folder / "wiki_plain").mkdir()
    with gzip.open(folder / "wiki_plain" / "train.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    found, name = sources.plain(Texts(folder, seed=1))

    assert "Wikipedia" in name
    assert found != rows[: sources.PLAIN]
    assert sorted(row["text"] for row in found) == sorted(row["text"] for row in rows[: sources.PLAIN])
    assert found == sources.plain(Texts(folder, seed=1))[0]


def test_without_the_data_folder_pairs_are_classmates(tmp_path):
    texts = Texts(tmp_path, seed=1)
    label = {row["text"]: row["label"] for row in texts.training()}
    found, name = sources.positives(texts)
    assert "sample:helpdesk" in name
    assert len(found) > 20
    assert all(label[row["text_a"]] == label[row["text_b"]] for row in found)
    assert all(row["text_a"] != row["text_b"] for row in found)
    assert sources.graded(texts) == []
    assert "no TREC" in sources.questions(texts)[1]


def test_lengths_vary_over_the_whole_range(tmp_path):
    rows = sources.varying(Texts(tmp_path, seed=1))
    lengths = [len(row["text"].split()) for row in rows]
    assert min(lengths) >= 3
    assert max(lengths) <= 45
    assert len(set(lengths)) > 30
    assert rows == sources.varying(Texts(tmp_path, seed=1))
    assert len({row["label"] for row in rows}) > 1


def test_spearman_ranks_the_cosines():
    """Vectors of any length at known angles: the cosine falls as the angle grows."""
    import numpy as np

    angles = {"a0": 0.0, "a1": 0.0, "a2": 0.0, "b0": 0.1, "b1": 1.0, "b2": 0.5}
    lengths = {"a0": 1.0, "a1": 5.0, "a2": 2.0, "b0": 0.1, "b1": 9.0, "b2": 1.0}

    def embed(names):
        return np.array([[lengths[n] * np.cos(angles[n]), lengths[n] * np.sin(angles[n])] for n in names])

    rows = [{"text_a": f"a{place}", "text_b": f"b{place}", "score": score} for place, score in enumerate([5, 1, 3])]
    assert spearman(rows, embed) == pytest.approx(1.0)
    rows[0]["score"] = 2
    assert spearman(rows, embed) == pytest.approx(0.5)


@pytest.mark.slow
def test_a_worker_trains_on_pairs_in_chunks_and_reports_what_the_table_needs(tmp_path):
    texts = Texts(tmp_path / "nothing", seed=1)
    bench = Bench(texts=texts, scratch=tmp_path, threads=1)
    pairs = sources.positives(texts)[0][:20]
    graded = [{**row, "score": place} for place, row in enumerate(pairs[:8])]
    job = {"encoder": "toy", "max_length": 32, "seed": 1, "objective": {"name": "mnrl"}, "texts_a_row": 2,
           "train": bench.rows("pairs", pairs), "dev": bench.rows("graded", graded)}  # fmt: skip
    small = bench.work(Contender("small", "train_nearfar", {**job, "batch": 4, "warm": 2, "steps": 8, "marks": [3, 8]}))
    assert small["texts_per_second"] == pytest.approx(6 * 4 * 2 / small["seconds"])
    assert -1 <= small["quality"]["spearman"] <= 1
    assert set(small["details"]) == {"MB after 3 steps", "MB after 8 steps", "growth in percent"}
    assert small["peak_rss_mb"] >= small["details"]["MB after 8 steps"]
    assert small["threads"] == 1
    huge = bench.work(Contender("huge", "train_nearfar", {**job, "batch": 20, "warm": 0, "chunk": 4}))
    assert huge["texts_per_second"] == pytest.approx(20 * 2 / huge["seconds"])
    assert huge["quality"]["loss"] > 0


def test_a_worker_speaks_in_its_last_line():
    assert parse('noise\n{"seconds": 1}\n', "", 0, "it") == {"seconds": 1}
    with pytest.raises(WorkerFailed, match="it: the worker ended with 1: ValueError: no"):
        parse("", "Traceback\nValueError: no\n\n", 1, "it")
    with pytest.raises(WorkerFailed, match="without a word"):
        parse("no json", "", 0, "it")


def test_few_labels_are_a_csv_file_of_64_texts_for_both(bench):
    import csv

    ours, quick, theirs = COMPARISONS["few-labels"].contenders(bench)
    file = next(word for word in ours.job["words"] if word.endswith(".csv"))
    with open(file, encoding="utf-8", newline="") as source:
        rows = list(csv.DictReader(source))
    assert len(rows) == 64
    assert len({row["label"] for row in rows}) == 8
    assert file in theirs.job["words"]
    assert quick.job["words"] == [*ours.job["words"], "--no-estimate"]
    assert {one.worker for one in (ours, quick, theirs)} == {"cold_start"}


def test_processors_are_told_apart():
    text = "model name\t: A Chip\nflags\t\t: fpu avx2 amx_tile amx_bf16 sse\n"
    name, flags = machine.parse_cpuinfo(text)
    assert (name, flags) == ("A Chip", ["amx_tile", "amx_bf16", "avx2"])
    assert machine.bf16_units(flags)
    assert not machine.bf16_units(["avx2", "avx512f"])
    assert machine.busy(2.0, 2)
    assert not machine.busy(0.2, 2)


def test_a_limit_of_torchs_instructions_makes_another_processor(monkeypatch):
    """Its results have a section of their own on the page."""
    text = "model name\t: A Chip\nflags\t\t: avx2 avx512f avx512_bf16\n"
    monkeypatch.setattr(machine, "_text", lambda _path: text)
    monkeypatch.delenv(machine.ISA, raising=False)
    assert machine.cpu() == ("A Chip", ["avx512_bf16", "avx512f", "avx2"])
    monkeypatch.setenv(machine.ISA, "avx2")
    assert machine.cpu() == ("A Chip limited to AVX2", ["avx2"])
    assert not machine.bf16_units(machine.cpu()[1])


def test_a_busy_machine_is_refused(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(machine, "watch", lambda: (0.5, 0.0))
    out = tmp_path / "results.md"
    assert compare.main(["--out", str(out)]) == 2
    assert "others used 50% of the cores: somebody computes here" in capsys.readouterr().err
    assert not out.exists()


@pytest.fixture
def quiet(monkeypatch, bench):
    monkeypatch.setattr(compare, "start", lambda *_, **__: bench)
    monkeypatch.setattr(machine, "watch", lambda: (0.0, 0.0))


def test_a_run_is_written_as_lines_and_as_a_page(quiet, capsys, tmp_path, bench):
    out = tmp_path / "results.md"
    command = ["--quick", "--only", "finetune", "--only", "pairs", "--repeats", "2", "--out", str(out)]
    assert compare.main(command) == 0
    found = lines.read(tmp_path / "results.jsonl")
    assert {line["comparison"] for line in found} == {"finetune", "pairs"}
    assert len({line["run"] for line in found}) == 1
    assert all(line["kept"] for line in lines.of_kind(found, "turn"))
    assert out.read_text(encoding="utf-8") == results_page.page(found)
    printed = capsys.readouterr().out
    assert "### finetune: " in printed
    assert "| pairs/s |" in printed
    assert "A quick trial" in printed


def test_a_trial_without_a_file_leaves_none(quiet, monkeypatch, tmp_path):
    page = tmp_path / "RESULTS.md"
    monkeypatch.setattr(results_page, "PAGE", page)
    assert compare.main(["--quick", "--only", "pairs", "--repeats", "1"]) == 0
    assert not page.exists()
    assert not results_page.lines_file(page).exists()


def test_the_list_names_every_comparison(capsys):
    assert compare.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(COMPARISONS)


def test_without_the_data_folder_the_shipped_sample_is_taken(tmp_path):
    texts = Texts(tmp_path, seed=1)
    assert "--data" in (texts.note or "")
    assert texts.training() == texts.training()
    assert {"text", "label"} <= set(texts.training()[0])
    assert len(take(texts.many(), 5_000)) == 5_000
    assert len(texts.mixed()) == len(texts.training())
    path = write(tmp_path / "rows.jsonl", take(texts.dev(), 3))
    assert [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] == take(texts.dev(), 3)
