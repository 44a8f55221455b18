"""Several tasks in one run: whose rows are whose, what a step does to the weights, what it writes down."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nearfar.batching import EmbeddingSampler, NearestNeighbors
from nearfar.batching.schedules import OneOfEach, RoundRobin, Sampled
from nearfar.encoding import build
from nearfar.encoding.task_model import TaskNetwork
from nearfar.pipeline.task_run import plan_task_run
from nearfar.pipeline.tasks import build_loss, make_task_loader
from nearfar.seeds import stream
from nearfar.training import LossModule, MultiTaskLoader
from nearfar.training.loss_module import ScoreError, Uncertainty
from nearfar.training.pcgrad import project
from tests.training.modules import step_with

from .task_runs import task_recipe, write_all


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes a learner and a feed of three tasks, without dropout, so that numbers can be compared."""
    folder = write_all(tmp_path_factory.mktemp("tasks"))

    def make(
        *, uncertainty: bool = False, schedule: Any = None, mixed: int | None = None, **changes: Any
    ) -> tuple[LossModule, MultiTaskLoader]:
        quiet = {"head": {"dropout": 0.0}}
        own = {name: {**quiet, **changes.pop(name, {})} for name in ("kind", "same", "close")}
        plan = plan_task_run(task_recipe(folder, encoder={"dropout": 0.0}, **own, **changes))
        recipe, tasks = plan.recipe, plan.tasks
        built = build("toy", classes=None, seed=1, max_length=24, dropout=0.0)
        network = TaskNetwork(built.model, [one.card for one in tasks], shared=recipe.shared_layer, seed=3)
        aims = [build_loss(one, built.model.dim, recipe.seed)[0] for one in tasks]
        feeds = {one.name: make_task_loader(one, aim, built, recipe) for one, aim in zip(tasks, aims, strict=True)}
        sizes = {name: len(feed.sampler if mixed is None else feed) for name, feed in feeds.items()}
        return LossModule(network, aims, uncertainty=uncertainty), MultiTaskLoader(
            feeds, schedule(sizes) if schedule else RoundRobin(tasks=sizes), mixed
        )

    return make


def test_tasks_read_the_model_for_their_batches_if_one_of_them_does(made):
    _, feed = made()
    assert not feed.sampler.reads_model
    own = EmbeddingSampler(
        rows=4, size=2, seed=1, vectors=lambda: np.eye(4, dtype=np.float32), grouping=NearestNeighbors(group=2)
    )
    name, first = next(iter(feed.loaders.items()))
    assert MultiTaskLoader({**feed.loaders, name: replace(first, sampler=own)}, feed.schedule).sampler.reads_model


def gradients_of(learner: LossModule, feed: MultiTaskLoader, rows: Any) -> dict[str, Tensor]:
    """The gradients of one batch alone."""
    learner.zero_grad(set_to_none=True)
    (batch,) = feed.batches(learner.model, rows, None)
    learner(batch)[0].backward()
    found = {name: weight.grad.clone() for name, weight in learner.named_parameters() if weight.grad is not None}
    learner.zero_grad(set_to_none=True)
    return found


def stepped(
    learner: LossModule, feed: MultiTaskLoader, members: list[Any], take: Any, **settings: Any
) -> tuple[Any, Any]:
    """What a step reports, and the gradient it spends: plain descent at rate one moves each weight by just that."""
    before = {name: weight.detach().clone() for name, weight in learner.named_parameters()}
    optimizer = torch.optim.SGD(learner.parameters(), lr=1.0)
    chosen = {"clip": 0.0, "step": 5, **take, **settings}
    result = step_with(learner, optimizer, feed, members, **chosen)
    moved = {name: before[name] - weight.detach() for name, weight in learner.named_parameters()}
    with torch.no_grad():
        for name, weight in learner.named_parameters():
            weight.copy_(before[name])
    return result, moved


def first_of_each(feed: MultiTaskLoader) -> list[Any]:
    return feed.sampler.batches(0)[:3]


def close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, tensor in found.items():
        wanted = expected.get(name)
        torch.testing.assert_close(tensor, torch.zeros_like(tensor) if wanted is None else wanted, rtol=1e-4, atol=2e-6)


def test_rows_are_numbered_through_the_tasks(made):
    """Every batch belongs to the scheduled task, and holds that task's own rows of that pass."""
    _, feed = made(schedule=lambda sizes: Sampled(tasks=sizes, seed=4))
    names, starts = list(feed.loaders), {}
    start = 0
    for name, own in feed.loaders.items():
        starts[name] = start
        start += len(own)
    assert len(feed) == start == 72

    order = feed.sampler.batches(0)

    assert len(order) == len(feed.sampler) == len(feed.schedule)
    for step, rows in zip(feed.schedule.batches(0), order, strict=True):
        name = names[step.task]
        assert name in feed.by_task(rows)
        own = feed.loaders[name].sampler.batches(step.task_epoch)[step.batch]
        assert (rows - starts[name]).tolist() == own.tolist()
        assert feed.place(rows).startswith(f"task {name}: {feed.loaders[name].source} lines ")
        (batch,) = feed.batches(made()[0].model, rows[:1], None)
        assert batch.task == name


def test_every_row_comes_once_an_epoch_when_shares_are_proportional(made):
    _, feed = made(schedule=lambda sizes: Sampled(tasks=sizes, seed=4))

    assert sorted(np.concatenate(feed.sampler.batches(1)).tolist()) == list(range(72))


def test_a_small_task_is_shuffled_anew_for_each_pass(made):
    """Round-robin walks 3 batches of the small task twice; the second walk has another order."""
    _, feed = made()
    mine = [rows.tolist() for rows in feed.sampler.batches(0) if "same" in feed.by_task(rows)]

    assert len(mine) == 4
    assert mine[3] not in mine[:3]


def test_a_plain_step_weighs_tasks_by_their_batches(made):
    """Two batches of one task and one of another: the gradient is the mean over the three, rows within tasks."""
    learner, feed = made()
    order = feed.sampler.batches(0)
    kinds = [rows for rows in order if "kind" in feed.by_task(rows)]
    members = [kinds[0], kinds[-1][:2], next(rows for rows in order if "close" in feed.by_task(rows))]
    one, two, other = (gradients_of(learner, feed, rows) for rows in members)
    names = {*one, *two, *other}
    zero = torch.zeros(())
    expected = {
        name: 2 / 3 * (0.8 * one.get(name, zero) + 0.2 * two.get(name, zero)) + other.get(name, zero) / 3
        for name in names
    }

    result, moved = stepped(learner, feed, members, {"seed": 1})

    close(moved, expected)
    assert result.texts == 18
    assert result.details["tasks"].keys() == {"kind", "close"}
    assert result.details["tasks"]["kind"]["rows"] == 10
    total = sum({"kind": 2 / 3, "close": 1 / 3}[name] * own["loss"] for name, own in result.details["tasks"].items())
    assert result.loss == pytest.approx(total)
    assert "surgery" not in result.details


def test_one_task_alone_steps_as_plain_training_does(made):
    learner, feed = made()
    members = first_of_each(feed)[:1]

    close(stepped(learner, feed, members, {"seed": 1, "pcgrad": "mean"})[1], stepped(learner, feed, members, {})[1])


@pytest.mark.parametrize(
    ("combine", "shared_layer", "precision"),
    [("mean", False, "fp32"), ("mean", True, "fp32"), ("sum", False, "fp32"), ("sum", True, "fp32"),
     ("mean", True, "bf16")],
)  # fmt: skip
def test_surgery_in_a_step_is_surgery_on_separate_gradients(made, combine, shared_layer, precision):
    """Shared weights get what ``project`` makes of the tasks' gradients; own weights get theirs, averaged or summed."""
    learner, feed = made(shared_layer=shared_layer)
    learner.precision = precision
    members = first_of_each(feed)
    alone = [gradients_of(learner, feed, rows) for rows in members]
    shared = {id(weight) for weight in learner.model.shared_weights()}
    common = [name for name, weight in learner.named_parameters() if id(weight) in shared]
    assert any("head.shared" in name for name in common) == shared_layer
    assert not any("head.tasks" in name for name in common)
    together, conflicts = project(
        [[own.get(name) for name in common] for own in alone], seed=stream(9, "surgery", 5) % 2**62, combine=combine,
        tasks=["kind", "same", "close"],
    )  # fmt: skip
    expected = {name: tensor for name, tensor in zip(common, together, strict=True) if tensor is not None}
    for own in alone:
        expected |= {
            name: tensor / (3 if combine == "mean" else 1) for name, tensor in own.items() if name not in common
        }

    result, moved = stepped(learner, feed, members, {"seed": 9, "pcgrad": combine})

    close(moved, expected)
    assert result.details["surgery"].keys() == {"kind / same", "close / kind", "close / same"}
    for pair, own in conflicts.entry().items():
        assert result.details["surgery"][pair]["conflicts"] == own["conflicts"]
        assert result.details["surgery"][pair]["cosine"] == pytest.approx(own["cosine"], abs=1e-5)


def test_surgery_adds_up_the_batches_of_a_task_first(made):
    """Accumulation: two batches of a task are one gradient when the tasks meet."""
    learner, feed = made()
    order = feed.sampler.batches(0)
    kinds = [rows for rows in order if "kind" in feed.by_task(rows)]
    halves = [kinds[0][:4], order[2], kinds[0][4:]]

    _, apart = stepped(learner, feed, halves, {"seed": 2, "pcgrad": "mean"})
    _, whole = stepped(learner, feed, [kinds[0], order[2]], {"seed": 2, "pcgrad": "mean"})

    close(apart, whole)


@pytest.mark.parametrize("combine", ["mean", "sum"])
def test_a_weight_of_two_stays_two_under_surgery(made, combine):
    """One batch of each task: its gradient counts by its share, and conflicts are judged by the directions alone."""
    learner, feed = made(
        schedule=lambda sizes: OneOfEach(sampled=Sampled(tasks=sizes, seed=1, by="weights", weights={"same": 2}))
    )
    members = first_of_each(feed)
    assert [list(feed.by_task(rows)) for rows in members] == [["kind"], ["same"], ["close"]]
    weights = {"kind": 0.75, "same": 1.5, "close": 0.75}
    assert feed.task_weights(0) == weights
    result, moved = stepped(learner, feed, members, {"seed": 2, "pcgrad": combine})

    alone = [gradients_of(learner, feed, rows) for rows in members]
    shared = [name for name, _ in learner.named_parameters() if "head.tasks" not in name]
    scaled = [
        [None if name not in own else weight * own[name] for name in shared]
        for own, weight in zip(alone, weights.values(), strict=True)
    ]
    expected, _ = project(scaled, seed=stream(2, "surgery", 5) % 2**62, combine=combine)
    close(
        {name: moved[name] for name in shared}, {n: t for n, t in zip(shared, expected, strict=True) if t is not None}
    )
    share = 3 if combine == "mean" else 1
    for own, weight in zip(alone, weights.values(), strict=True):
        heads = {name: weight * tensor / share for name, tensor in own.items() if "head.tasks" in name}
        close({name: moved[name] for name in heads}, heads)
    losses = {name: entry["loss"] for name, entry in result.details["tasks"].items()}
    assert result.loss == pytest.approx(sum(weights[name] * losses[name] for name in weights) / share)


def mixed_by_share(made: Any, **settings: Any) -> tuple[LossModule, MultiTaskLoader]:
    return made(schedule=lambda sizes: Sampled(tasks=sizes, seed=4, **settings), mixed=16)


def test_a_mixed_batch_averages_the_losses_of_its_tasks(made):
    """MT-DNN as the paper retells it: the loss of each task over its rows in the batch, then their mean."""
    learner, feed = mixed_by_share(made)
    for members in ([batch] for batch in feed.sampler.batches(0)[:2]):
        parts = feed.by_task(members[0])
        assert sorted(np.concatenate([*parts.values()]).tolist()) == sorted(members[0].tolist())
        assert len(parts) == 3
        assert len({len(rows) for rows in parts.values()}) > 1, "tasks of one size would not tell rows from tasks"
        alone = [gradients_of(learner, feed, rows) for rows in parts.values()]
        names = {name for own in alone for name in own}
        expected = {name: sum(own[name] for own in alone if name in own) / 3 for name in names}
        result, moved = stepped(learner, feed, members, {"seed": 3})

        close(moved, expected)
        losses = result.details["tasks"]
        assert result.loss == pytest.approx(sum(entry["loss"] for entry in losses.values()) / 3)
        assert {name: entry["rows"] for name, entry in losses.items()} == {n: len(rows) for n, rows in parts.items()}


def test_mixed_rows_come_once_an_epoch_and_are_drawn_anew(made):
    _, feed = mixed_by_share(made)
    epochs = [feed.sampler.batches(epoch) for epoch in (0, 1)]

    assert [len(batch) for batch in epochs[0]] == [16, 16, 16, 16, 8]
    assert len(feed.sampler) == 5
    for batches in epochs:
        assert sorted(np.concatenate(batches).tolist()) == list(range(72))
    assert np.concatenate(epochs[0]).tolist() != np.concatenate(epochs[1]).tolist()
    assert feed.place(epochs[0][0]).count("task ") == 3
    _, weighted = mixed_by_share(made, by="weights", weights={"same": 2})
    rows = np.concatenate(weighted.sampler.batches(0))
    counts = {name: len(own) for name, own in weighted.by_task(rows).items()}
    assert counts == {"kind": 18, "same": 36, "close": 18}


def test_a_step_with_surgery_is_clipped_as_one_gradient(made):
    learner, feed = made()
    members = first_of_each(feed)

    result, free = stepped(learner, feed, members, {"seed": 3, "pcgrad": "mean"})
    _, moved = stepped(learner, feed, members, {"seed": 3, "pcgrad": "mean"}, clip=result.gradient_norm / 4)

    close(moved, {name: tensor / 4 for name, tensor in free.items()})
    assert result.gradient_norm == pytest.approx(
        math.sqrt(sum(float(t.square().sum()) for t in free.values())), rel=1e-4
    )


def test_chunks_of_a_batch_give_its_gradient(made):
    """The gradient-cached step knows nothing of tasks, and is exact for them all the same."""
    learner, feed = made(same={"head": {"kind": "joint-difference", "dropout": 0.0}})
    members = first_of_each(feed)

    close(stepped(learner, feed, members, {"seed": 3}, chunk=3)[1], stepped(learner, feed, members, {"seed": 3})[1])


def test_surgery_sees_the_whole_batch_of_a_task_however_it_is_computed(made):
    """In chunks, or with gradients of single word embeddings: the same step as on whole batches."""
    learner, feed = made(same={"head": {"kind": "joint-difference", "dropout": 0.0}})
    members = first_of_each(feed)
    take = {"seed": 3, "pcgrad": "mean"}
    result, whole = stepped(learner, feed, members, take)

    chunked, moved = stepped(learner, feed, members, take, chunk=3)
    close(moved, whole)
    assert chunked.details["surgery"] == {
        pair: {**own, "cosine": pytest.approx(own["cosine"], abs=1e-4)}
        for pair, own in result.details["surgery"].items()
    }
    words = learner.model.encoder.unpadded.words
    words.sparse = True
    try:
        _, moved = stepped(learner, feed, members, take)
    finally:
        words.sparse = False
    close(moved, whole)


def test_surgery_in_bf16_is_not_that_in_fp32_but_near_it(made):
    """The encoder computes in short numbers; the gradients that meet, and the weights, are of single precision."""
    learner, feed = made()
    members = first_of_each(feed)
    take = {"seed": 3, "pcgrad": "mean"}
    single, exact = stepped(learner, feed, members, take)
    learner.precision = "bf16"
    half, moved = stepped(learner, feed, members, take)

    far = max(float((moved[name] - exact[name]).abs().max()) for name in exact)
    size = math.sqrt(sum(float(tensor.square().sum()) for tensor in exact.values()))
    apart = math.sqrt(sum(float((moved[name] - exact[name]).square().sum()) for name in exact))
    assert far > 0
    assert apart < 0.05 * size
    assert all(tensor.dtype == torch.float32 for tensor in moved.values())
    for pair, own in single.details["surgery"].items():
        assert half.details["surgery"][pair]["cosine"] == pytest.approx(own["cosine"], abs=0.05)


def test_learned_weights_follow_the_formula(made):
    """exp(-s) L + s / 2, half of the first for a squared error; the log-variance is among the objectives' weights."""
    learner, feed = made(uncertainty=True)
    plain, _ = made()
    for name, value in (("kind", 0.7), ("close", -0.4)):
        rows = next(rows for rows in feed.sampler.batches(0) if name in feed.by_task(rows))
        learner.objectives[f"{name}/uncertainty"].log_variance.data.fill_(value)
        (batch,) = feed.batches(learner.model, rows, None)
        loss = plain(batch)[0].item()
        half = 0.5 if name == "close" else 1.0

        assert learner(batch)[0].item() == pytest.approx(half * math.exp(-value) * loss + value / 2, rel=1e-5)
        assert learner.learned_weights()[name] == pytest.approx(half * math.exp(-value))
    assert plain.learned_weights() == {}


def test_uncertainty_settles_where_the_derivative_is_zero():
    """For a fixed loss L the best s is log(2 L), or log L for a squared error."""
    for squared, expected in ((False, math.log(6)), (True, math.log(3))):
        module = Uncertainty(squared=squared)
        module.log_variance.data.fill_(expected)
        module(torch.tensor(3.0)).backward()

        assert module.log_variance.grad.item() == pytest.approx(0, abs=1e-6)


def test_a_weight_scales_the_loss_of_its_task(made):
    light, feed = made()
    heavy, _ = made(close={"weight": 2.5})
    rows = next(rows for rows in feed.sampler.batches(0) if "close" in feed.by_task(rows))
    (batch,) = feed.batches(light.model, rows, None)

    assert heavy(batch)[0].item() == pytest.approx(2.5 * light(batch)[0].item(), rel=1e-6)


def test_the_squared_error_of_scores():
    outputs, targets = torch.tensor([[0.5], [2.0]], dtype=torch.float64), torch.tensor([0.0, 1.0])

    assert ScoreError()(outputs, targets).item() == pytest.approx((0.25 + 1) / 2)
    assert torch.autograd.gradcheck(lambda x: ScoreError()(x, targets), outputs.requires_grad_())


def test_a_head_of_one_logit_is_trained_with_binary_cross_entropy(made):
    """The formula as a loop, and torch's BCELoss after a sigmoid, which the paper has: loss and gradient."""
    learner, feed = made(same={"head": {"kind": "concat", "dropout": 0.0, "single_logit": True}})
    rows = next(rows for rows in feed.sampler.batches(0) if "same" in feed.by_task(rows))
    (batch,) = feed.batches(learner.model, rows, None)
    head = learner.model.head.of("same")
    given: list[Tensor] = []
    head.register_forward_hook(lambda _, __, outputs: given.append(outputs))
    loss, parts = learner(batch)
    loss.backward()
    logits, labels = given[0][:, 0].detach().requires_grad_(), batch.labels.float()
    theirs = torch.nn.BCELoss()(torch.sigmoid(logits), labels)
    theirs.backward()
    chances = [1 / (1 + math.exp(-z)) for z in logits.tolist()]
    terms = [-math.log(p if y else 1 - p) for p, y in zip(chances, labels.tolist(), strict=True)]

    assert given[0].shape == (len(rows), 1)
    assert set(parts) == {"same/cross_entropy"}
    assert loss.item() == pytest.approx(sum(terms) / len(rows), rel=1e-5)
    assert loss.item() == pytest.approx(theirs.item(), rel=1e-5)
    torch.testing.assert_close(head.linear.bias.grad, logits.grad.sum().reshape(1), rtol=1e-4, atol=1e-7)


def test_classes_of_a_task_have_weights(made):
    """The head's own loss counts the rows of a class by its weight; with one logit as well."""
    for head in ({"kind": "concat", "dropout": 0.0}, {"kind": "concat", "dropout": 0.0, "single_logit": True}):
        learner, feed = made(same={"head": head, "objective": {"name": "auto", "class_weight": {"1": 3.0}}})
        rows = next(rows for rows in feed.sampler.batches(0) if "same" in feed.by_task(rows))
        (batch,) = feed.batches(learner.model, rows, None)
        logits = learner.represent(batch)["logits"].double()
        costs = torch.nn.functional.cross_entropy(logits, batch.labels, reduction="none").tolist()
        weights = [3.0 if label else 1.0 for label in batch.labels.tolist()]
        wanted = sum(w * cost for w, cost in zip(weights, costs, strict=True)) / sum(weights)
        assert learner(batch)[0].item() == pytest.approx(wanted, rel=1e-5)


def test_a_loss_that_is_not_finite_names_task_and_lines(made):
    from nearfar.errors import NotFiniteError

    learner, feed = made()
    with torch.no_grad():
        next(learner.model.head.tasks["kind"].parameters()).fill_(torch.nan)

    with pytest.raises(NotFiniteError, match=r"task kind: .*texts.csv lines \d+"):
        stepped(learner, feed, first_of_each(feed), {"seed": 1, "pcgrad": "mean"})


def test_the_head_of_scores_is_compared_with_the_scores(made):
    """The loss of a batch, from the scores of the file: (score - low) / (high - low) against the head's output."""
    learner, feed = made()
    rows = next(rows for rows in feed.sampler.batches(0) if "close" in feed.by_task(rows))
    (batch,) = feed.batches(learner.model, rows, None)
    own = feed.loaders["close"]
    with torch.no_grad():
        outputs = learner.represent(batch)["logits"][:, 0].tolist()
    wanted = [float(own.targets[row - 48]) for row in rows]

    assert {0.0, 1.0} == set(own.targets.tolist())
    expected = sum((x - y) ** 2 for x, y in zip(outputs, wanted, strict=True)) / len(wanted)
    assert learner(batch)[0].item() == pytest.approx(expected, rel=1e-5)


def test_the_order_in_which_tasks_meet_is_drawn_for_each_step(made):
    """Where the order matters, a step takes that of its own number."""
    learner, feed = made()
    names = [name for name, weight in learner.named_parameters() if "head.tasks" not in name]
    order = feed.sampler.batches(0)
    for start in range(0, len(order) - 2, 3):
        members = order[start : start + 3]
        alone = [gradients_of(learner, feed, rows) for rows in members]
        own = [[one.get(name) for name in names] for one in alone]
        found = [project(own, seed=stream(9, "surgery", step) % 2**62, combine="mean")[0] for step in range(8)]
        sizes = [float(sum(t.double().square().sum() for t in one if t is not None)) for one in found]
        other = next((step for step in range(1, 8) if abs(sizes[step] - sizes[0]) > 1e-4 * sizes[0]), None)
        if other is not None:
            break
    else:
        pytest.fail("in no step does the order matter; this test says nothing")

    for step in (0, other):
        _, moved = stepped(learner, feed, members, {"seed": 9, "pcgrad": "mean"}, step=step)
        for name, tensor in zip(names, found[step], strict=True):
            torch.testing.assert_close(
                moved[name], torch.zeros_like(moved[name]) if tensor is None else tensor, rtol=1e-3, atol=2e-6
            )
