"""The benchmarks' arithmetic, tables and wiring; nothing is timed here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from benchmarks.bench import Bench, Contender, WorkerFailed, parse
from benchmarks.comparisons import COMPARISONS, OURS, Comparison
from benchmarks.tables import Result, Spread
from benchmarks.texts import Texts, take, write

from benchmarks import compare, machine, tables


def run(speed: float, **more: object) -> dict[str, object]:
    return {"texts_per_second": speed, "seconds": 1.0, "peak_rss_mb": 900.0, "quality": {}, "threads": 2, **more}


class FakeBench(Bench):
    """Answers for the workers without starting any."""

    def work(self, contender: Contender) -> dict[str, object]:
        self.asked = [*getattr(self, "asked", []), contender.name]
        if contender.job.get("broken"):
            raise WorkerFailed(f"{contender.name}: the worker ended with 1: out of luck")
        details = {"tokens_per_text": 25.0, "weights": 10_000_000, "width": 384, "inner": 1536}
        return run(contender.job.get("speed", 10.0), details=details if contender.worker == "count_tokens" else {})

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


def test_the_speed_table_states_how_much_faster_the_first_is():
    ours = Result("nearfar", [run(100.0, quality={"loss": 0.5}), run(300.0, quality={"loss": 0.7})])
    peer = Result("peer", [run(50.0), run(100.0)])
    gone = Result("gone", [None, None])
    lines = tables.speed_table([ours, peer, gone]).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["contender", "texts/s", "nearfar is faster by", "peak MB", "threads", "loss"]
    assert cells[2] == ["nearfar", "200 (100 to 300)", "", "900", "2", "0.6"]
    assert cells[3] == ["peer", "75 (50 to 100)", "2.50 x (2 to 3)", "900", "2", "-"]
    assert cells[4] == ["gone", "-", "-", "-", "-", "-"]


def test_a_table_of_one_has_no_ratios():
    assert "faster" not in tables.speed_table([Result("nearfar", [run(1.0)])])


def test_details_and_quality_tables():
    result = Result(
        "nearfar", [run(1.0, details={"growth in percent": 2.0}), run(1.0, details={"growth in percent": 4.0})]
    )
    assert "| nearfar: growth in percent | 3 (2 to 4) |" in tables.detail_table([result])
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
    assert names[0] == OURS
    assert len(set(names)) == len(names)
    for contender in contenders:
        assert contender.path.is_file()
        assert "__main__" in contender.path.read_text(encoding="utf-8")
        json.dumps(contender.job)


def test_one_thread_means_everybody(bench):
    contenders = list(COMPARISONS["finetune-one-thread"].contenders(bench))
    assert len(contenders) >= 4
    assert {contender.threads for contender in contenders} == {1}


def test_contenders_share_model_texts_batch_and_seed(bench):
    contenders = list(COMPARISONS["finetune"].contenders(bench))
    for key in ("encoder", "train", "batch", "seed", "max_length", "warm"):
        assert len({contender.job[key] for contender in contenders}) == 1


def test_contenders_take_turns_and_a_failure_is_reported(bench):
    def contenders(_bench):
        yield Contender("nearfar", "finetune_nearfar", {"speed": 20.0})
        yield Contender("unlucky", "finetune_trainer", {"broken": True})
        yield Contender("peer", "finetune_trainer", {"speed": 5.0})

    text, complete = compare.compare("finetune", Comparison("a test", contenders), bench, 2)
    assert bench.asked == ["nearfar", "unlucky", "peer", "nearfar", "peer"]
    assert not complete
    assert "Failed: unlucky: the worker ended with 1: out of luck" in text
    assert "4 x (4 to 4)" in text


def test_the_share_of_the_matrix_rate(bench):
    job = {"tokens_per_text": 20.0, "weights": 1_000_000}
    standing = [
        (Contender(OURS, "finetune_nearfar"), Result(OURS, [run(100.0)])),
        (Contender("matrix products", "matmul", job),
         Result("matrix products", [{"details": {"fp32 GFLOP/s": 48.0, "bf16 GFLOP/s": 24.0}}])),
    ]  # fmt: skip
    [text] = COMPARISONS["matmul"].finish(bench, standing)
    assert "12 GFLOP/s, 25 % of the machine's measured fp32 rate." in text
    assert "50 % of the machine's measured bf16 rate (which it has no units for)" in text


def test_distances_are_from_the_default_peer(bench, tmp_path):
    import numpy as np

    contenders = list(COMPARISONS["embed"].contenders(bench))
    for contender in contenders:
        np.save(contender.job["vectors"], np.eye(3, dtype=np.float32) * 2)
    np.save(contenders[0].job["vectors"], np.asarray([[1, 0, 0], [0, 1, 0], [0, 1, 1]], dtype=np.float32))
    standing = [(contender, Result(contender.name, [run(1.0, quality={})])) for contender in contenders]
    COMPARISONS["embed"].finish(bench, standing)
    found = [result.values("1 - cosine, at most", "quality")[0] for _, result in standing]
    assert found == pytest.approx([1 - 0.5**0.5, 0, 0, 0])


def test_a_worker_speaks_in_its_last_line():
    assert parse('noise\n{"seconds": 1}\n', "", 0, "it") == {"seconds": 1}
    with pytest.raises(WorkerFailed, match="it: the worker ended with 1: ValueError: no"):
        parse("", "Traceback\nValueError: no\n\n", 1, "it")
    with pytest.raises(WorkerFailed, match="without a word"):
        parse("no json", "", 0, "it")


def test_processors_are_told_apart():
    text = "model name\t: A Chip\nflags\t\t: fpu avx2 amx_tile amx_bf16 sse\n"
    name, flags = machine.parse_cpuinfo(text)
    assert (name, flags) == ("A Chip", ["amx_tile", "amx_bf16", "avx2"])
    assert machine.bf16_units(flags)
    assert not machine.bf16_units(["avx2", "avx512f"])
    assert machine.busy(2.0, 2)
    assert not machine.busy(0.2, 2)


def test_a_busy_machine_is_refused(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(machine, "load", lambda: 64.0 * machine.cores())
    out = tmp_path / "results.md"
    assert compare.main(["--out", str(out)]) == 2
    assert "--busy" in capsys.readouterr().err
    assert not out.exists()


def test_a_run_is_appended_with_the_machine(monkeypatch, capsys, tmp_path, bench):
    monkeypatch.setattr(compare, "start", lambda *_, **__: bench)
    out = tmp_path / "results.md"
    out.write_text("# Results\n\nbefore\n", encoding="utf-8")
    assert compare.main(["--busy", "--quick", "--only", "finetune", "--repeats", "2", "--out", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    assert text.startswith("# Results\n\nbefore\n\n## 20")
    assert "- processor: " in text
    assert "- load average at start: " in text
    assert "### finetune: " in text
    assert text.strip() in f"# Results\n\nbefore\n{capsys.readouterr().out}"


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
