"""The few-label comparison: draws, restarts, SetFit's number of steps, tables; SetFit itself is not run here."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations_with_replacement

import pytest
import torch
from benchmarks.few_labels import DATASETS, Case, Draws, Pair, Results, cases, drive

from benchmarks import few_label_names, few_labels, few_labels_peers, machine


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)


def line(accuracy, seconds=1.0, *, draw="x", threads=1, steps=10, **more):
    return {"draw": draw, "accuracy": accuracy, "seconds": seconds, "whole_seconds": seconds + 1,
            "cpu_seconds": 2 * seconds, "steps": steps, "threads": threads, **more}  # fmt: skip


def cells(table):
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]


@pytest.fixture
def drawn(tmp_path):
    """Two small data sets, one with its own test texts, and draws of two and three a class."""
    train = [(f"question {number}", f"c{number % 3}") for number in range(60)]
    write(tmp_path / "source/trec/train.jsonl.gz", [*train, ("Question  1", "c1"), ("asked again", "c2")])
    write(tmp_path / "source/trec/test.jsonl.gz", [("asked again", "c2"), ("never seen", "c0"), ("nor this", "c1")])
    write(tmp_path / "source/cr/all.jsonl.gz", [(f"review {number}", number % 4 == 0) for number in range(40)])
    wanted = cases(("trec", "cr"), (2, 3), (0, 1))
    draws = Draws(tmp_path / "draws")
    few_labels.draw(tmp_path / "source", draws, wanted)
    return draws, wanted


def test_the_order_is_by_seed_with_large_sizes_and_many_classes_last():
    order = cases()
    assert len(order) == len(set(order)) == 75
    assert [(case.seed, case.data) for case in order[:10:2]] == [(0, data) for data in DATASETS]
    assert [case.n for case in order[:4]] == [8, 16, 8, 16]
    assert {case.n for case in order[:50]} == {8, 16}
    assert [case.seed for case in order] == [*(seed for seed in range(5) for _ in range(10)),
                                             *(seed for seed in range(5) for _ in range(5))]  # fmt: skip
    assert order[9].data == order[-1].data == "banking77"


def test_draws_have_so_many_texts_of_each_class_and_differ_by_seed(drawn):
    draws, wanted = drawn
    for case in wanted:
        texts, labels = few_labels.texts_and_labels(draws.train(case))
        assert set(Counter(labels).values()) == {case.n}
        assert len(Counter(labels)) == (3 if case.data == "trec" else 2)
        assert len(set(texts)) == len(texts)
    contents = {draws.train(case).read_bytes() for case in wanted}
    assert len(contents) == len(wanted)


def test_drawing_again_gives_the_same_bytes(drawn, tmp_path):
    draws, wanted = drawn
    again = Draws(tmp_path / "again")
    few_labels.draw(tmp_path / "source", again, wanted)
    assert [again.fingerprint(case) for case in wanted] == [draws.fingerprint(case) for case in wanted]


def test_no_text_of_the_pool_is_tested_and_none_is_there_twice(drawn, tmp_path):
    for data in ("trec", "cr"):
        pool, test = few_labels.pool_and_test(tmp_path / "source" / data)
        assert not set(pool.normalized_texts()) & set(test.normalized_texts())
        assert len(set(pool.normalized_texts())) == len(pool)
    pool, test = few_labels.pool_and_test(tmp_path / "source/trec")
    assert (len(pool), len(test)) == (60, 3)


def test_a_data_set_without_test_texts_is_halved_and_stratified(drawn, tmp_path):
    pool, test = few_labels.pool_and_test(tmp_path / "source/cr")
    assert Counter(test.labels) == Counter(pool.labels) == {"false": 15, "true": 5}
    pool, test = few_labels.pool_and_test(tmp_path / "source/cr", at_most=8)
    assert Counter(test.labels) == {"false": 6, "true": 2}
    assert len(pool) == 32


def test_test_texts_have_a_limit(drawn, tmp_path):
    _, test = few_labels.pool_and_test(tmp_path / "source/trec", at_most=2)
    assert len(test) == 2


def test_labels_are_read_back_as_they_were_written(drawn):
    draws, _ = drawn
    texts, labels = few_labels.texts_and_labels(draws.test("trec"))
    assert list(zip(texts, labels, strict=True)) == [("asked again", "c2"), ("never seen", "c0"), ("nor this", "c1")]


@pytest.mark.parametrize("sizes", [[8] * 6, [8] * 2, [1, 1], [5, 2, 9], [4], [16] * 5])
def test_steps_over_all_pairs_agree_with_a_loop_over_them(sizes):
    labels = [str(label) for label, count in enumerate(sizes) for _ in range(count)]
    alike = [one == other for one, other in combinations_with_replacement(labels, 2)]
    pairs = 2 * max(alike.count(True), alike.count(False))
    assert few_labels_peers.default_steps(labels) == len(range(0, pairs, 16))


@pytest.mark.parametrize(("classes", "n", "steps"), [(6, 8, 120), (2, 8, 9)])
def test_steps_over_all_pairs_are_those_setfit_was_seen_to_take(classes, n, steps):
    assert few_labels_peers.default_steps([str(label) for label in range(classes)] * n) == steps


@pytest.mark.parametrize(
    ("classes", "n", "settings"),
    [
        (6, 16, {}),
        (2, 64, {}),
        (6, 64, {"num_iterations": 20}),
        (77, 8, {"num_iterations": 20}),
        (77, 16, {"num_iterations": 20, "max_steps": 2_000}),
    ],
)
def test_setfit_has_its_defaults_unless_these_are_too_many_steps(classes, n, settings):
    found, note = few_labels_peers.plan([str(label) for label in range(classes)] * n)
    assert found == settings
    assert bool(note) == bool(settings)
    assert ("max_steps" in note) == ("max_steps" in settings)


def test_the_note_says_how_many_steps_were_saved():
    _, note = few_labels_peers.plan([str(label) for label in range(77)] * 16)
    assert note == (
        "num_iterations=20 (all pairs would be 93,632 steps), max_steps=2,000 (these would be 3,080 steps)"
    )  # fmt: skip


def test_setfit_may_be_given_fewer_steps_where_its_pairs_are_drawn():
    labels = [str(label) for label in range(77)] * 8
    assert few_labels_peers.plan(labels, 250)[0] == {"num_iterations": 20, "max_steps": 250}
    assert few_labels_peers.plan(["a", "b"] * 64, 250) == ({}, "")


def test_bf16_sees_every_change_of_the_weights():
    layer, states = torch.nn.Linear(4, 4), torch.ones(2, 4)

    def training():
        before = layer(states)
        with torch.no_grad():
            layer.weight.add_(1.0)
        return before, layer(states)

    before, after = few_labels_peers.in_bf16(training)()
    assert before.dtype is after.dtype is torch.bfloat16
    assert torch.allclose(after - before, torch.full((2, 4), 4.0, dtype=torch.bfloat16), atol=0.1)
    assert layer(states).dtype is torch.float32


@pytest.mark.parametrize(("more", "note"), [({}, ""), ({"note": "max_steps=250"}, "max_steps=250, ")])
def test_a_precision_that_is_not_setfits_own_has_no_times(more, note):
    found = few_labels_peers.untimed(line(0.5, **more), "bf16")
    assert found == {**line(0.5), "seconds": None, "whole_seconds": None, "cpu_seconds": None, "precision": "bf16",
                     "note": f"{note}the encoder trained in bf16"}  # fmt: skip


@pytest.mark.parametrize("steps", ["0", "-3", "many"])
def test_a_number_of_steps_that_trains_nothing_is_refused(steps, capsys):
    with pytest.raises(SystemExit):
        few_labels_peers.main(["--steps", steps])
    assert "--steps" in capsys.readouterr().err


def test_a_restart_measures_only_what_is_missing(drawn, tmp_path):
    draws, wanted = drawn
    results, asked = Results(tmp_path / "results.jsonl"), []

    def measure(train, test):
        asked.append(train)
        if len(asked) == 4:
            raise RuntimeError("out of luck")
        return line(0.5)

    assert drive(measure, wanted[:4], draws, results) == 1
    assert asked[1:] == [draws.train(case) for case in wanted[:4]]  # the first is the warm-up
    assert asked[0] == draws.smallest()[0]
    assert list(results.by_case()) == [*wanted[:2], wanted[3]]
    asked.clear()
    assert drive(measure, wanted[:4], draws, results) == 0
    assert asked == [draws.smallest()[0], draws.train(wanted[2])]
    asked.clear()
    assert drive(measure, wanted[:4], draws, results) == 0
    assert asked == []
    assert len(results.lines()) == 4


def test_the_smallest_draw_of_all_comes_with_its_test_texts(drawn):
    draws, wanted = drawn
    train, test = draws.smallest()
    assert train.stat().st_size == min(draws.train(case).stat().st_size for case in wanted)
    assert test == draws.test(train.parent.name)


def test_every_line_says_what_it_is_of(drawn, tmp_path):
    draws, wanted = drawn
    results = Results(tmp_path / "results.jsonl")
    drive(lambda _train, _test: line(0.5), wanted[:1], draws, results)
    [found] = results.lines()
    assert (found["data"], found["n"], found["seed"]) == ("trec", 2, 0)
    assert found["draw"] == draws.fingerprint(wanted[0])
    assert found["load"] >= 0
    assert found["machine"].startswith(machine.cpu()[0])


def test_results_of_other_texts_are_refused(drawn, tmp_path):
    draws, wanted = drawn
    results = Results(tmp_path / "results.jsonl")
    results.add({**wanted[0]._asdict(), **line(0.5, draw=draws.fingerprint(wanted[0]))})
    for changed in (draws.train(wanted[0]), draws.test("trec")):
        before = changed.read_bytes()
        changed.write_bytes(before + b'{"text": "one more", "label": "c0"}\n')
        with pytest.raises(SystemExit, match=r"trec, 2 a class, draw 0; give another --results file"):
            drive(lambda _train, _test: line(0.5), wanted[:1], draws, results)
        changed.write_bytes(before)


def test_missing_draws_are_named(tmp_path):
    with pytest.raises(SystemExit, match="few_labels draw"):
        Draws(tmp_path).fingerprint(Case("trec", 8, 0))


def test_writers_at_the_same_time_lose_no_line(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    every = [{**Case("cr", n, seed)._asdict(), **line(0.5)} for n in range(8) for seed in range(25)]
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(results.add, every))
    assert sorted((found["n"], found["seed"]) for found in results.lines()) == [
        (one["n"], one["seed"]) for one in every
    ]


def test_a_result_without_times_is_told_of(drawn, tmp_path, capsys):
    draws, wanted = drawn
    untimed = {**line(0.5), "seconds": None, "whole_seconds": None, "cpu_seconds": None}
    assert drive(lambda _train, _test: untimed, wanted[:1], draws, Results(tmp_path / "results.jsonl")) == 0
    assert "trec, 2 a class, draw 0: accuracy 0.500, 10 steps" in "".join(capsys.readouterr())


def test_a_line_cut_off_in_writing_is_replaced(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    first, second = ({**Case("cr", 8, seed)._asdict(), **line(0.5)} for seed in (0, 1))
    results.add(first)
    with results.path.open("ab") as file:
        file.write(b'{"data": "c')
    assert results.lines() == [first]
    results.add(second)
    assert results.lines() == [first, second]


def pairs(*accuracies, data="trec", n=8, **more):
    return [
        Pair(Case(data, n, seed), line(mine, **more), line(other, 10.0, steps=120))
        for seed, (mine, other) in enumerate(accuracies)
    ]


def test_the_accuracy_table_pairs_by_draw():
    found = [*pairs((0.8, 0.7), (0.6, 0.6), (0.7, 0.8), (0.9, 0.7)), *pairs((0.5, 0.4), data="cr", n=16)]
    table = cells(few_labels.accuracy_table(found))
    assert table[0] == ["data, texts a class", "draws", "nearfar", "setfit", "difference", "worst draw",
                        "won / tied / lost"]  # fmt: skip
    assert table[2] == ["trec, 8", "4", "75.0 ± 12.9", "70.0 ± 8.2", "+5.0 ± 6.5", "-10.0", "2 / 1 / 1"]
    assert table[3] == ["cr, 16", "1", "50.0 ± 0.0", "40.0 ± 0.0", "+10.0 ± 0.0", "+10.0", "1 / 0 / 0"]
    assert [row[0] for row in table[4:]] == ["all, 8", "all, 16", "all"]
    assert table[-1][1:3] == ["5", "70.0 ± 15.8"]
    assert table[-1][-1] == "3 / 1 / 1"


def test_the_time_table_has_the_median_of_the_ratios():
    found = [
        Pair(Case("cr", 8, seed), line(0.5, mine), line(0.5, other, steps=120))
        for seed, (mine, other) in enumerate([(1.0, 10.0), (2.0, 60.0), (4.0, 16.0)])
    ]
    table = cells(few_labels.time_table(found))
    assert table[0][5:] == ["training faster by", "whole run faster by", "processor time"]
    assert table[2] == ["cr, 8", "10", "120", "2", "16", "10 x", "5.50 x", "10 x"]


def test_times_of_different_threads_are_not_compared():
    table = cells(few_labels.time_table(pairs((0.5, 0.5), threads=2)))
    assert table[2][-3:] == ["-", "-", "-"]


def test_times_of_different_processors_are_not_compared():
    found = pairs((0.5, 0.5), (0.5, 0.6), machine="quick")
    same = found[1]._replace(theirs={**found[1].theirs, "machine": "quick"})
    assert cells(few_labels.time_table(found))[2][-3:] == ["-", "-", "-"]
    assert cells(few_labels.time_table([found[0], same]))[2][-3:] == ["10 x", "5.50 x", "10 x"]


def test_the_report_says_where_the_peer_had_other_settings():
    found = pairs((0.5, 0.5), (0.5, 0.6))
    assert "defaults" not in few_labels.report(found)
    limited = [pair._replace(theirs={**pair.theirs, "note": "max_steps=2,000"}) for pair in found]
    assert few_labels.report(limited).count("- trec, 8 a class: max_steps=2,000") == 1


def test_the_table_is_made_from_the_two_files_and_refuses_different_draws(tmp_path, capsys):
    ours, theirs = Results(tmp_path / "nearfar.jsonl"), Results(tmp_path / "setfit.jsonl")
    for seed in (0, 1):
        ours.add({**Case("cr", 8, seed)._asdict(), **line(0.75)})
    theirs.add({**Case("cr", 8, 0)._asdict(), **line(0.5)})
    assert few_labels.main(["table", "--folder", str(tmp_path)]) == 0
    row = ["cr, 8", "1", "75.0 ± 0.0", "50.0 ± 0.0", "+25.0 ± 0.0", "+25.0", "1 / 0 / 0"]
    assert cells(capsys.readouterr().out)[2] == row
    theirs.add({**Case("cr", 8, 1)._asdict(), **line(0.5, draw="y")})
    with pytest.raises(SystemExit, match=r"cr, 8 a class, draw 1: .* different texts"):
        few_labels.main(["table", "--folder", str(tmp_path)])


@pytest.mark.parametrize("variant", few_label_names.VARIANTS)
def test_names_of_all_variants_are_for_the_labels_of_the_data(variant):
    for data, given in few_label_names.NAMES.items():
        names = few_label_names.names_of(data, variant)
        if variant == "none":
            assert names == "none"
            continue
        assert isinstance(names, dict)
        assert names.keys() == given.keys()
        assert len(set(names.values())) == len(names)
        assert (names == given) == (variant == "given")
    assert few_label_names.names_of("banking77", "given") == "auto"


@pytest.mark.slow
def test_nearfar_is_trained_without_settings_and_tested_on_the_test_texts(tmp_path):
    rows = {"price": "the invoice is too high", "travel": "the train leaves from Berlin"}
    train, test = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    for path, ending in ((train, "today"), (test, "tomorrow")):
        path.write_text(
            "".join(
                json.dumps({"text": f"{text} {ending} {place}", "label": label}) + "\n"
                for label, text in rows.items()
                for place in range(4)
            ),
            encoding="utf-8",
        )
    found = few_labels.train_and_test(train, test)
    assert found["accuracy"] in {place / 8 for place in range(9)}
    assert 0 < found["seconds"] < found["whole_seconds"]
    assert found["cpu_seconds"] > 0
    assert found["steps"] >= 1
    assert found["settings"]["encoder"]["name"] == "minilm"
    assert "data" not in found["settings"]


def test_unlabeled_texts_are_drawn_beside_the_labeled_ones_and_have_no_label(drawn):
    draws, wanted = drawn
    beside = {Draws.unlabeled(draws.train(case)) for case in wanted}
    assert {path.name for path in beside} == {"0-0.jsonl", "0-1.jsonl"}
    rows = [json.loads(row) for row in (draws.folder / "cr/0-0.jsonl").read_text().splitlines()]
    assert {tuple(row) for row in rows} == {("text",)}
    assert len(rows) == 20  # the whole pool, which is smaller than what is drawn
    assert Draws.unlabeled(draws.folder / "cr/0-1.jsonl") == draws.folder / "cr/0-1.jsonl"
    assert draws.smallest()[0].name[0] != "0"


def test_a_data_set_that_is_a_sample_has_files_that_say_so(tmp_path):
    for part in ("train", "test"):
        write(tmp_path / f"imdb/{part}_sample5k.jsonl.gz", [(f"{part} {number}", number % 2) for number in range(8)])
    pool, test = few_labels.pool_and_test(tmp_path / "imdb")
    assert (len(pool), len(test)) == (8, 8)


def test_the_untuned_sets_are_chosen_by_one_option():
    options = few_labels.parser(None, "nearfar").parse_args(["--untuned"])
    found = few_labels.chosen(options)
    assert len(found) == 24
    assert {case.data for case in found} == set(few_labels.UNTUNED)
    assert {case.seed for case in found} == {0, 1, 2}
    options = few_labels.parser(None, "nearfar").parse_args(["--data", "imdb", "--n", "0", "--seed", "0"])
    assert few_labels.chosen(options) == [Case("imdb", 0, 0)]


def test_what_a_recipe_reads_of_a_draw(drawn):
    draws, _ = drawn
    train, test = draws.train(Case("trec", 2, 0)), draws.test("trec")
    assert few_labels.data_table(train, test, "auto", unlabeled=False) == {"train": str(train), "names": "auto"}
    beside = str(draws.folder / "trec/0-0.jsonl")
    assert few_labels.data_table(train, test, "none", unlabeled=True) == {
        "train": str(train), "names": "none", "unlabeled": beside,
    }  # fmt: skip
    assert few_labels.data_table(draws.train(Case("trec", 0, 0)), test, "auto", unlabeled=False) == {
        "train": beside, "unlabeled": True, "names": {"c0": "c0", "c1": "c1", "c2": "c2"},
    }  # fmt: skip


def test_every_label_has_a_name_of_its_own():
    names = few_label_names.spelled("trec_fine", ["NUM:other", "LOC:other", "LOC:city"])
    assert names == {"LOC:city": "city", "LOC:other": "LOC other", "NUM:other": "NUM other"}
    assert few_label_names.spelled("sst5", ["0", "4"]) == {"0": "very negative", "4": "very positive"}


def test_a_table_says_what_both_sides_had():
    found = pairs((0.5, 0.4), names="given", unlabeled=True)
    assert few_labels.titles(found) == ("nearfar, names: given, unlabeled texts", "setfit")
    mixed = [*found, *pairs((0.5, 0.4), data="cr")]
    assert few_labels.titles(mixed) == ("nearfar", "setfit")
