"""Schedules: exact lengths and shares, no batch left behind, the same steps for the same seed."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.batching import Annealing, BlockRoundRobin, OneOfEach, RoundRobin, Sampled, Sequential, TaskBatch, describe
from nearfar.batching.schedules import allot, shares
from nearfar.errors import SettingError

EPOCHS = 3
PAPER = {"sentiment": 267, "paraphrase": 4423, "similarity": 189}
"""Batches of 32 of SST-5, Quora and STS."""

SCHEDULES: dict[str, Callable[..., Any]] = {
    "sequential": lambda tasks, seed=3: Sequential(tasks=tasks, epochs=EPOCHS),
    "sequential, backwards": lambda tasks, seed=3: Sequential(tasks=tasks, epochs=EPOCHS, order=tuple(tasks)[::-1]),
    "round-robin": lambda tasks, seed=3: RoundRobin(tasks=tasks),
    "round-robin, twice the first": lambda tasks, seed=3: RoundRobin(tasks=tasks, order=(*tasks, next(iter(tasks)))),
    "blocks": lambda tasks, seed=3: BlockRoundRobin(tasks=tasks),
    "blocks, twice the first": lambda tasks, seed=3: BlockRoundRobin(tasks=tasks, order=(*tasks, next(iter(tasks)))),
    "one of each": lambda tasks, seed=3: OneOfEach(sampled=Sampled(tasks=tasks, seed=seed)),
    "two of each": lambda tasks, seed=3: OneOfEach(sampled=Sampled(tasks=tasks, seed=seed, steps=17), repeat=2),
    "proportional": lambda tasks, seed=3: Sampled(tasks=tasks, seed=seed),
    "twice the first": lambda tasks, seed=3: Sampled(tasks=tasks, seed=seed, weights={next(iter(tasks)): 2}),
    "square-root": lambda tasks, seed=3: Sampled(tasks=tasks, seed=seed, by="square-root"),
    "temperature": lambda tasks, seed=3: Sampled(tasks=tasks, seed=seed, by="temperature", temperature=5),
    "evenly": lambda tasks, seed=3: Sampled(tasks=tasks, seed=seed, by="weights", steps=17),
    "annealed": lambda tasks, seed=3: Sampled(tasks=tasks, seed=seed, annealing=Annealing(epochs=EPOCHS)),
}
DRAWN = ("proportional", "twice the first", "square-root", "temperature", "evenly", "annealed")
COMPLETE = ("round-robin", "round-robin, twice the first", "blocks", "blocks, twice the first", "proportional")
"""Those that promise every batch of every task in every epoch."""


def some_tasks(least=1):
    """One to five tasks of up to 40 batches."""
    return st.lists(st.integers(1, 40), min_size=least, max_size=5).map(
        lambda sizes: {f"task {place}": size for place, size in enumerate(sizes)}
    )


@pytest.mark.parametrize("kind", SCHEDULES)
@given(some_tasks())
def test_length_and_steps_are_exact(kind, tasks):
    """What was announced is what comes, for each task and in all."""
    schedule = SCHEDULES[kind](tasks)
    for epoch in range(EPOCHS):
        steps_taken = schedule.batches(epoch)
        steps = schedule.steps_per_task(epoch)
        counts = Counter(list(tasks)[step.task] for step in steps_taken)

        assert len(steps_taken) == len(schedule) == sum(steps.values())
        assert list(steps) == list(tasks)
        assert {name: counts[name] for name in tasks} == steps


@pytest.mark.parametrize("kind", SCHEDULES)
@given(some_tasks())
def test_passes_over_a_task_follow_each_other(kind, tasks):
    """Over all epochs a task's batches come one after the other, and from the start again after the last one."""
    schedule = SCHEDULES[kind](tasks)
    seen = {place: [] for place in range(len(tasks))}
    for epoch in range(EPOCHS):
        for task, batch, task_epoch in schedule.batches(epoch):
            seen[task].append((task_epoch, batch))

    for place, size in enumerate(tasks.values()):
        assert seen[place] == [divmod(number, size) for number in range(len(seen[place]))]


@pytest.mark.parametrize("kind", COMPLETE)
@given(some_tasks())
def test_no_epoch_leaves_a_batch_behind(kind, tasks):
    """Every batch of every task at least once in every epoch."""
    for epoch in range(EPOCHS):
        seen = {(step.task, step.batch) for step in SCHEDULES[kind](tasks).batches(epoch)}

        assert seen == {(place, batch) for place, size in enumerate(tasks.values()) for batch in range(size)}


@pytest.mark.parametrize("kind", SCHEDULES)
def test_steps_depend_on_seed_and_epoch_alone(kind):
    """Asked twice, or after another epoch, an epoch has the same steps; where they are drawn, other seeds have others."""
    tasks = {"a": 20, "b": 30, "c": 7}
    schedule = SCHEDULES[kind](tasks)
    second = schedule.batches(1)
    schedule.batches(0)

    assert schedule.batches(1) == SCHEDULES[kind](tasks).batches(1) == second
    if kind in DRAWN:
        walks = {
            tuple(step.task for step in SCHEDULES[kind](tasks, seed).batches(epoch))
            for seed in (3, 4)
            for epoch in (0, 1)
        }
        assert len(walks) == 4


@given(some_tasks(), st.integers(1, 5), st.randoms(use_true_random=False))
def test_sequential_trains_task_after_task_for_all_epochs(tasks, epochs, source):
    """The run as a whole: each task in the given order, every batch of it once in each of its passes."""
    order = source.sample(list(tasks), len(tasks))
    schedule = Sequential(tasks=tasks, epochs=epochs, order=tuple(order))
    run = [step for epoch in range(epochs) for step in schedule.batches(epoch)]

    assert run == [
        TaskBatch(list(tasks).index(name), batch, task_epoch)
        for name in order
        for task_epoch in range(epochs)
        for batch in range(tasks[name])
    ]


@given(some_tasks())
def test_round_robin_keeps_the_order_and_repeats_the_small(tasks):
    """Each round has every task once; there are as many rounds as the largest task has batches."""
    order = tuple(tasks)[::-1]
    schedule = RoundRobin(tasks=tasks, order=order)
    largest = max(tasks.values())

    assert schedule.rounds == largest
    assert [list(tasks)[step.task] for step in schedule.batches(1)] == [*order] * largest
    assert schedule.steps_per_task(1) == dict.fromkeys(tasks, largest)


def test_round_robin_gives_two_steps_to_a_task_named_twice():
    """It then needs half as many rounds, rounded up."""
    schedule = RoundRobin(tasks={"a": 2, "b": 5}, order=("b", "a", "b"))

    assert schedule.rounds == 3
    assert [tuple(step) for step in schedule.batches(0)] == [
        (1, 0, 0), (0, 0, 0), (1, 1, 0), (1, 2, 0), (0, 1, 0), (1, 3, 0), (1, 4, 0), (0, 0, 1), (1, 0, 1)
    ]  # fmt: skip


@given(some_tasks(), st.randoms(use_true_random=False))
def test_blocks_are_whole_passes_in_the_given_order(tasks, source):
    """Every block of every epoch: all batches of its task, none of another."""
    order = source.sample([*tasks, *tasks], 2 * len(tasks))
    schedule = BlockRoundRobin(tasks=tasks, order=tuple(order))
    passes = Counter[str]()
    for epoch in range(EPOCHS):
        expected = []
        for name in order:
            expected += [TaskBatch(list(tasks).index(name), batch, passes[name]) for batch in range(tasks[name])]
            passes[name] += 1

        assert schedule.batches(epoch) == expected


def test_blocks_of_the_paper_pass_over_the_small_tasks_twice_an_epoch():
    """Experiment 3, SST, STS, SST, STS, QQP: batch by batch it would be 33 and 47 passes."""
    order = ("sentiment", "similarity", "sentiment", "similarity", "paraphrase")
    blocks, batches = BlockRoundRobin(tasks=PAPER, order=order), RoundRobin(tasks=PAPER, order=order)
    passes = [
        {name: round(steps / PAPER[name], 1) for name, steps in schedule.steps_per_task(0).items()}
        for schedule in (blocks, batches)
    ]

    assert passes == [
        {"sentiment": 2, "paraphrase": 1, "similarity": 2}, {"sentiment": 33.1, "paraphrase": 1, "similarity": 46.8}
    ]  # fmt: skip
    walk = [step.task for step in blocks.batches(0)]
    assert [task for task, _ in itertools.groupby(walk)] == [0, 2, 0, 2, 1]


@given(some_tasks(least=2), st.integers(1, 3))
def test_every_step_of_surgery_has_every_task(tasks, repeat):
    """Also where tasks are sampled by very different shares; a task that is left out has none."""
    out = next(iter(tasks))
    for weights in ({}, {out: 7.0}, {out: 0.0}):
        schedule = OneOfEach(sampled=Sampled(tasks=tasks, seed=1, weights=weights), repeat=repeat)
        trained = {place for place, name in enumerate(tasks) if weights.get(name, 1)}
        walk = [step.task for step in schedule.batches(1)]
        size = repeat * len(trained)

        assert len(walk) % size == 0
        for start in range(0, len(walk), size):
            assert Counter(walk[start : start + size]) == dict.fromkeys(trained, repeat)


@pytest.mark.parametrize(
    ("settings", "worth"),
    [
        ({"by": "weights"}, {"sentiment": 1, "paraphrase": 1, "similarity": 1}),
        ({"by": "weights", "weights": {"paraphrase": 2}}, {"sentiment": 1, "paraphrase": 2, "similarity": 1}),
        ({}, PAPER),
        ({"weights": {"similarity": 0}}, {**PAPER, "similarity": 0}),
    ],
)
def test_weights_of_gradients_are_the_shares(settings, worth):
    """One on average over the tasks that are trained; twice the weight is twice the gradient."""
    weights = OneOfEach(sampled=Sampled(tasks=PAPER, seed=1, **settings)).task_weights(0)
    trained = sum(value > 0 for value in worth.values())

    assert weights == pytest.approx({name: trained * value / sum(worth.values()) for name, value in worth.items()})


def test_weights_of_gradients_anneal_and_follow_the_order_of_rounds():
    annealed = OneOfEach(sampled=Sampled(tasks=PAPER, seed=1, annealing=Annealing(epochs=2, drop=1.0)))
    assert annealed.task_weights(0)["paraphrase"] == pytest.approx(3 * 4423 / sum(PAPER.values()))
    assert set(annealed.task_weights(1).values()) == {1.0}
    assert RoundRobin(tasks={"a": 2, "b": 5}, order=("b", "a", "b")).task_weights(0) == {"a": 2 / 3, "b": 4 / 3}
    for plain in (RoundRobin(tasks=PAPER), BlockRoundRobin(tasks=PAPER), Sequential(tasks=PAPER, epochs=1)):
        assert set(plain.task_weights(0).values()) == {1.0}


@given(some_tasks())
def test_proportional_is_all_batches_of_all_tasks_shuffled(tasks):
    """MT-DNN: every batch of every task comes exactly once an epoch."""
    schedule = Sampled(tasks=tasks, seed=1)

    assert sorted(schedule.batches(2)) == [
        TaskBatch(place, batch, 2) for place, size in enumerate(tasks.values()) for batch in range(size)
    ]


def test_random_steps_are_spread_over_the_epoch():
    """Each half of an epoch has about half the steps of a task, and tasks do not come in blocks."""
    walk = [step.task for step in Sampled(tasks={"a": 400, "b": 600}, seed=1).batches(0)]

    assert 160 < walk[:500].count(0) < 240
    assert 400 < sum(one != other for one, other in itertools.pairwise(walk)) < 560


@pytest.mark.parametrize(
    ("settings", "worth"),
    [
        ({}, lambda n, w: n),
        ({"by": "square-root"}, lambda n, w: math.sqrt(n)),
        ({"by": "temperature", "temperature": 3}, lambda n, w: n ** (1 / 3)),
        ({"by": "weights", "weights": {"paraphrase": 2}}, lambda n, w: w),
        ({"weights": {"paraphrase": 0.5, "sentiment": 3}}, lambda n, w: n * w),
        ({"by": "square-root", "weights": {"similarity": 0}}, lambda n, w: w * math.sqrt(n)),
        ({"by": "weights", "weights": {"paraphrase": 2}, "steps": 1000}, lambda n, w: w),
    ],
)
def test_steps_follow_the_shares(settings, worth):
    """Less than one step away from the formula, on the sizes of the multi-task paper."""
    schedule = Sampled(tasks=PAPER, seed=1, **settings)
    own = {name: worth(size, settings.get("weights", {}).get(name, 1)) for name, size in PAPER.items()}
    total = settings.get("steps", sum(size for name, size in PAPER.items() if own[name]))

    assert len(schedule) == total
    for name, steps in schedule.steps_per_task(4).items():
        assert abs(steps - total * own[name] / sum(own.values())) < 1
        assert (steps == 0) == (own[name] == 0)


def test_annealed_goes_from_proportional_to_nearly_even():
    """Exponents 1, 0.8, 0.6, 0.4, 0.2 over five epochs, and the shares that follow from them."""
    schedule = Sampled(tasks=PAPER, seed=1, annealing=Annealing(epochs=5))
    total = sum(PAPER.values())

    assert [schedule.exponent(epoch) for epoch in range(5)] == pytest.approx([1, 0.8, 0.6, 0.4, 0.2])
    assert schedule.steps_per_task(0) == PAPER
    for epoch in range(5):
        alpha = 1 - 0.8 * ((epoch + 1) - 1) / (5 - 1)
        whole = sum(size**alpha for size in PAPER.values())
        for name, steps in schedule.steps_per_task(epoch).items():
            assert abs(steps - total * PAPER[name] ** alpha / whole) < 1
    assert Sampled(tasks=PAPER, seed=1, annealing=Annealing(epochs=1)).steps_per_task(0) == PAPER
    assert Sampled(tasks={"a": 10, "b": 90}, seed=1, annealing=Annealing(epochs=2, drop=1)).steps_per_task(1) == {
        "a": 50,
        "b": 50,
    }
    assert Sampled(tasks={"a": 10, "b": 90}, seed=1, weights={"a": 9}, annealing=Annealing(epochs=2)).steps_per_task(
        0
    ) == {"a": 50, "b": 50}
    assert len(Sampled(tasks=PAPER, seed=1, steps=100, annealing=Annealing(epochs=2)).batches(1)) == 100


@given(st.lists(st.one_of(st.just(0.0), st.floats(1e-300, 1.0)), min_size=1, max_size=6), st.integers(6, 500))
def test_allotted_steps_add_up_and_none_is_forgotten(worths, steps):
    """The sum is right, every share above zero has a step, and none has more than the share rounded up."""
    worth = {str(place): own for place, own in enumerate(worths)}
    if not sum(worths):
        return
    counts = allot(steps, worth)

    assert sum(counts.values()) == steps
    for name, own in worth.items():
        quota = steps * own / math.fsum(worths)
        assert (counts[name] > 0) == (own > 0)
        assert counts[name] < quota + 1 + 1e-9 * steps
        if quota > len(worths):
            assert counts[name] > quota - len(worths)


@pytest.mark.parametrize("temperature", [1e-6, 1e-3, 1e9])
def test_extreme_temperatures_are_no_problem(temperature):
    """Cold leaves all but one step a task to the largest, hot makes all even; nothing overflows."""
    steps = Sampled(tasks=PAPER, seed=1, by="temperature", temperature=temperature, steps=300).steps_per_task(0)

    assert steps == (
        {"sentiment": 100, "paraphrase": 100, "similarity": 100}
        if temperature > 1
        else {"sentiment": 1, "paraphrase": 298, "similarity": 1}
    )
    assert min(shares(PAPER, 1 / temperature).values()) > 0


def test_steps_and_repetitions_are_described():
    """How a small task is repeated, in numbers."""
    assert describe(RoundRobin(tasks={"sentiment": 267, "paraphrase": 4423}), 0) == (
        "8,846 steps: sentiment 4,423 (16.6 times its 267 batches), paraphrase 4,423 (1 times its 4,423 batches)"
    )
    assert describe(Sampled(tasks={"a": 1, "b": 3}, seed=1, by="weights", weights={"b": 0}), 0) == (
        "1 step: a 1 (1 times its 1 batch), b 0 (0 times its 3 batches)"
    )


TASKS = {"sentiment": 3, "paraphrase": 5}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RoundRobin(tasks={}), "no tasks to schedule"),
        (lambda: RoundRobin(tasks={"a": 2, "b": None}), "task 'b': its number of batches must be known .* got None"),
        (lambda: Sequential(tasks={"a": 0}, epochs=1), "task 'a': .* 1 or more to be scheduled, got 0"),
        (lambda: Sampled(tasks={"a": 2.5}, seed=1), "task 'a': .* got 2.5"),
        (lambda: Sampled(tasks={"a": -1}, seed=1, annealing=Annealing(epochs=2)), "task 'a': .* got -1"),
        (lambda: Sequential(tasks=TASKS, epochs=0), "1 epoch or more, got 0"),
        (lambda: Sampled(tasks=TASKS, seed=1, annealing=Annealing(epochs=0)), "1 epoch or more, got 0"),
        (lambda: Sequential(tasks=TASKS, epochs=2).batches(2), r"epoch 2 of a sequential schedule of 2 epochs"),
        (lambda: Sampled(tasks=TASKS, seed=1, annealing=Annealing(epochs=1)).batches(1), r"epoch 1 of an annealed schedule of 1 epoch "),
        (lambda: RoundRobin(tasks=TASKS, order=("sentiment",)), "leaves out 'paraphrase'"),
        (lambda: BlockRoundRobin(tasks=TASKS, order=("sentiment",)), "leaves out 'paraphrase'"),
        (lambda: BlockRoundRobin(tasks=TASKS, order=("sentment", "paraphrase")), "names 'sentment', .* Did you mean 'sentiment'"),
        (lambda: RoundRobin(tasks=TASKS, order=("sentment", "paraphrase")), "names 'sentment', .* Did you mean 'sentiment'"),
        (lambda: Sequential(tasks=TASKS, epochs=1, order=("sentiment", "paraphrase", "sentiment")), "'sentiment' is in it twice"),
        (lambda: Sampled(tasks=TASKS, seed=1, weights={"sentiment": 0, "paraphrase": 0}), "sum to zero"),
        (lambda: Sampled(tasks=TASKS, seed=1, weights={"sentiment": 0, "paraphrase": 0}, annealing=Annealing(epochs=2)), "sum to zero"),
        (lambda: Sampled(tasks=TASKS, seed=1, weights={"paraphase": 2}), "Did you mean 'paraphrase'"),
        (lambda: Sampled(tasks=TASKS, seed=1, weights={"paraphrase": -1}), "weight must be 0 or more, got -1"),
        (lambda: Sampled(tasks=TASKS, seed=1, weights={"paraphrase": math.nan}), "weight must be 0 or more, got nan"),
        (lambda: Sampled(tasks=TASKS, seed=1, weights={"paraphrase": math.inf}), "weight must be 0 or more, got inf"),
        (lambda: Sampled(tasks=TASKS, seed=1, steps=1), "an epoch of 1 step is too short for a step of each of 2 tasks"),
        (lambda: Sampled(tasks=TASKS, seed=1, by="temprature"), "not by 'temprature'. Did you mean 'temperature'"),
        (lambda: Sampled(tasks=TASKS, seed=1, by="temperature"), "need one above 0, got None"),
        (lambda: Sampled(tasks=TASKS, seed=1, by="temperature", temperature=0), "need one above 0, got 0"),
        (lambda: Sampled(tasks=TASKS, seed=1, temperature=2), "changes nothing in tasks that are sampled by 'proportional'"),
        (lambda: Sampled(tasks=TASKS, seed=1, annealing=Annealing(epochs=2, drop=1.2)), "got 1.2; try 0.8"),
    ],
)  # fmt: skip
def test_impossible_schedules_are_refused_by_name(build, message):
    """One clear message each: what came and what to try."""
    with pytest.raises(SettingError, match=message):
        build()


def test_a_single_step_is_enough_where_one_task_is_trained():
    """Tasks of weight zero need no step."""
    schedule = Sampled(tasks=TASKS, seed=1, weights={"sentiment": 0}, steps=1)

    assert schedule.batches(7) == [TaskBatch(1, 2, 1)]
