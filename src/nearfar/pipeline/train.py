"""A whole run: from a recipe to a saved, evaluated model.

A run is a list of tasks that share an encoder; a plain recipe is a list of one. What a plain recipe and one with
``[[task]]`` tables do in their own ways is in :mod:`nearfar.pipeline.encoder_run` and :mod:`nearfar.pipeline.task_run`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from accelerate import Accelerator

from nearfar.encoding.model_folder import CARD
from nearfar.encoding.pretrained import exclusive_random, width_of
from nearfar.errors import CheckpointError, Interrupted, NearfarError, OutputError, SettingError, counted
from nearfar.evaluation import Report
from nearfar.evaluation.estimate import Estimate
from nearfar.files import FolderClaim, write_atomic, write_errors
from nearfar.pipeline.defaults import unstored
from nearfar.pipeline.encoder_choice import choose_encoder, is_open
from nearfar.pipeline.encoder_run import EncoderPlan, EncoderRun, plan_encoder_run
from nearfar.pipeline.estimate import estimate_quality
from nearfar.pipeline.output import (
    CHECKPOINTS,
    ESTIMATING,
    JOURNAL,
    METRICS,
    RECIPE,
    STAGES,
    Reports,
    check_output,
    check_room,
    clear_leftovers,
    has_checkpoint,
    make_folder,
    metrics_of,
    open_output,
    resumed_precision,
    split_values,
)
from nearfar.pipeline.plan import Messages, Prepared, RunPlan, flat, open_accelerator
from nearfar.pipeline.pseudo_labels import label_pool
from nearfar.pipeline.task_run import plan_task_run
from nearfar.recipe import Recipe, read_recipe
from nearfar.recipe.tasks import TaskRecipe
from nearfar.training import (
    Callback,
    CheckpointStore,
    Journal,
    Mirror,
    Progress,
    RunFiles,
    Scores,
    choose_precision,
    fit,
    read_journal,
)
from nearfar.training.processes import lost_processes


@dataclass(frozen=True)
class Summary:
    """What a finished run reports."""

    out: Path
    progress: Progress | None
    """None when the run in the folder had finished before."""
    reports: Reports
    """For dev and test rows, where there are some, the report of each task; that of a plain recipe has no name."""
    metrics: dict[str, str]
    """The score of each task that picks the model."""
    classifies: bool = True
    """Whether the model predicts classes or scores; else it embeds texts."""
    untrained: bool = False
    """Whether the weights from before the first step were the best, so that they were kept."""
    estimate: Estimate | None = None
    """How good the model is on new texts, where that was estimated."""
    before: Mapping[str, Scores] = field(default_factory=dict)
    """The scores of the untrained encoder on dev and test rows, of a model that embeds texts."""

    def report(self, split: str) -> Report:
        """The report of the only task on the dev or test rows."""
        (report,) = self.reports[split].values()
        return report


def plan_recipe(recipe: Recipe | TaskRecipe, data: object = None) -> RunPlan:
    """The plan of a plain recipe or of one with tasks; ``data`` in memory takes the place of its files."""
    if isinstance(recipe, TaskRecipe):
        return plan_task_run(recipe, data)
    return choose_encoder(recipe, data) if is_open(recipe.encoder.name) else plan_encoder_run(recipe, data)


def train(
    recipe: Recipe | TaskRecipe,
    out: Path,
    *,
    data: object = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    part: bool = False,
    on_interrupt: Literal["resume", "finish"] = "resume",
    mirror: Mirror | None = None,
) -> Summary:
    """Train what the recipe describes and save it into ``out``.

    Runs of one process follow each other: one that is started in another thread waits. The state of torch's random
    generator is the same afterwards as before.

    Args:
        recipe: what to train.
        out: the folder of the model.
        data: rows in memory in place of the recipe's files: the training rows, or a mapping with ``train``, ``dev`` and
            ``test``; with several tasks, one of these for each task by its name. The saved recipe names them
            ``memory:train`` and so on; to resume, pass the same rows.
        resume: continue the run in the folder.
        overwrite: replace what is in the folder.
        callbacks: follow the run: its messages, steps and evaluations.
        part: whether this is part of a run whose processes continue.
        on_interrupt: whether Ctrl-C leaves a checkpoint to resume from and raises ``Interrupted``, or finishes the
            model with the best weights so far.
        mirror: keeps a copy of the folder, where the processes of a run share no disk.
    """
    claim = FolderClaim(out, TAKEN)
    with exclusive_random(), closing(claim), lost_processes(out):
        return _train(
            recipe, claim, data=data, resume=resume, overwrite=overwrite, callbacks=callbacks, part=part,
            finish=on_interrupt == "finish", mirror=mirror,
        )  # fmt: skip


def _train(
    recipe: Recipe | TaskRecipe, claim: FolderClaim, *, data: object, resume: bool, overwrite: bool,
    callbacks: Sequence[Callback], part: bool, finish: bool, mirror: Mirror | None,
) -> Summary:  # fmt: skip
    out, main = claim.folder, int(os.environ.get("RANK", "0")) == 0
    messages = Messages(callbacks, quiet=not main)
    if main:
        claim.take()
    plan = plan_recipe(recipe, data)
    if not check_output(out, resume=resume, overwrite=overwrite, reads=plan.reads()):
        if main:
            clear_leftovers(out)
            _tidy(out, len(plan.earlier))
        messages(f"{out}: this run has finished; there is nothing to resume.")
        return Summary(out, None, {}, plan.metrics)
    accelerator = open_accelerator(out, plan.training.trackers)
    try:
        asked = resumed_precision(out, plan.training.precision) if resume else plan.training.precision
        precision, reason = choose_precision(asked, width_of(plan.encoder))
        plan = plan.in_precision(precision)
        if isinstance(plan, EncoderPlan) and plan.pool is not None:
            if accelerator.num_processes > 1:
                raise SettingError("data.unlabeled (--unlabeled) is for runs of one process; leave it out.")
            plan = plan if plan.domain is not None else label_pool(plan, messages)
        run = plan.open(accelerator)
        messages.notes(plan.notes if plan.domain is not None else [*plan.notes, *run.notes])
        for number in reversed(range(plan.stages)):  # whatever one of them refuses, it refuses before the first begins
            prepared = run.prepare(number)
        if main:
            weights = sum(4 * weight.numel() for weight in prepared.module.parameters())
            check_room(out, weights, keep=plan.training.keep_checkpoints)
        messages(run.opening(f"{precision} ({reason})"))
        _open_folder(plan, claim, accelerator, resume=resume)
        if plan.earlier:
            encoder = _train_earlier(plan, out, accelerator, messages, callbacks)
            if isinstance(plan, EncoderPlan):
                plan = label_pool(replace(plan, adapted=encoder), messages)
            run = plan.open(accelerator, encoder=encoder)
            messages.notes(run.notes if plan.domain is not None else [])
            prepared = run.prepare(0)
        if main and not has_checkpoint(out):  # else it says already what the run was started with
            _write(out, RECIPE, plan.recipe_text())
        if plan.training.trackers:
            accelerator.init_trackers("nearfar", config=flat(plan.config()))

        before = run.untrained_scores()
        began = time.perf_counter()
        trainings: list[Progress] = []
        for number in range(plan.stages):
            if number > 0:
                prepared = run.prepare(number)
            messages.notes(prepared.notes)
            for line in prepared.lines:
                messages(line)
            followed = part or number + 1 < plan.stages
            files = _files(plan, out, number, prepared, main=main, resume=resume, followed=followed)
            files.store.mirror = mirror
            trainings.append(_fit(prepared, replace(files, finish=finish), accelerator, messages))
            if trainings[-1].interrupted:
                break
            if warning := _no_gain(trainings[-1], prepared, "the pretrained encoder" if number == 0 else STAGE_BEFORE):
                messages(f"warning: {warning}")
        run.fit_head()
        reports = {split: evaluate() for split, evaluate in run.evaluators().items()}
        before = before or _scores_at_start(plan, trainings[0])
        alone = accelerator.num_processes == 1 and not (part or trainings[-1].interrupted)
        estimated = isinstance(run, EncoderRun) and plan.training.estimate and alone
        if main:
            journal = read_journal(out / plan.journal(len(trainings) - 1))
            seconds = time.perf_counter() - began
            metrics = metrics_of(reports, plan.metrics, trainings, seconds, prepared.module, journal)
            if before:
                metrics["untrained"] = before
            with write_errors(out, "the model"):
                _write(out, METRICS, json.dumps(metrics, indent=2, ensure_ascii=False) + "\n")
                if estimated:
                    (out / ESTIMATING).touch()
                run.save(out, prepared.module, reports, metrics)
        estimate = None
        if isinstance(run, EncoderRun) and estimated:
            prepared.module.zero_grad(set_to_none=True)
            estimate = _estimate(run, trainings, messages, reports, finish=finish)
            if run.calibration.get("by") == "folds":
                reports = {split: evaluate() for split, evaluate in run.evaluators().items()}
                metrics |= {split: split_values(of_split, plan.metrics) for split, of_split in reports.items()}
            if estimate is not None or run.calibration:
                metrics |= {} if estimate is None else {"estimate": estimate.to_dict()}
                with write_errors(out, "the model"):
                    _write(out, METRICS, json.dumps(metrics, indent=2, ensure_ascii=False) + "\n")
                    run.describe(out, metrics)
        if main:
            _tidy(out, len(plan.earlier))
            if mirror is not None:
                mirror.push()
        accelerator.wait_for_everyone()
        untrained = all(progress.kept == 0 for progress in trainings)
        return Summary(
            out, trainings[-1], reports, plan.metrics, classifies=plan.classifies, untrained=untrained,
            estimate=estimate, before=before,
        )  # fmt: skip
    finally:
        if not part:
            accelerator.end_training()


TAKEN = "another process is training a model into this folder. Let it finish, or choose another --out."


def _open_folder(plan: RunPlan, claim: FolderClaim, accelerator: Accelerator, *, resume: bool) -> None:
    """Make the folder ready; the recipe is its first file, so that a run can be resumed from its beginning."""
    out = claim.folder
    if accelerator.is_main_process:
        make_folder(out)
        claim.take()
        if not claim.existed and any(out.iterdir()):  # of another process that has made it meanwhile
            raise OutputError(f"{out}: {TAKEN}")
        open_output(out, resume=resume)
        clear_leftovers(out)
        if not (out / RECIPE).exists():
            _write(out, RECIPE, plan.recipe_text())
    accelerator.wait_for_everyone()


def _write(out: Path, name: str, content: str) -> None:
    """Write a file of the run; a kill leaves nothing but a file that the next start removes."""
    with write_errors(out, name):
        write_atomic(out / name, content, out / f".{name}")


def _train_earlier(
    plan: RunPlan, out: Path, accelerator: Accelerator, messages: Messages, callbacks: Sequence[Callback]
) -> str:
    """Train the stages before, those that are not finished yet; returns the encoder that the last one left.

    Each stage is a run of its own whose encoder is what the stage before it has saved.
    """
    folders = [out / STAGES / str(number) for number in range(1, len(plan.earlier) + 1)]
    begun, done = [folder.exists() for folder in folders], [(folder / CARD).is_file() for folder in folders]
    accelerator.wait_for_everyone()  # all processes have looked before the first one begins a folder
    encoder: str | None = None
    for place, (stage, folder) in enumerate(zip(plan.earlier, folders, strict=True)):
        recipe = stage(encoder)
        trained = " (trained before)" if done[place] else ""
        if plan.domain is None:
            messages(f"stage {place + 1} of {len(folders)}, before the tasks: {recipe.objective.name}{trained}")
        else:
            messages(f"adapting the encoder to {counted(len(plan.domain), 'unlabeled text')}: simcse{trained}")
        if done[place]:
            _check_trained(recipe, folder, plan.domain)
        else:
            train(recipe, folder, data=plan.domain, resume=begun[place], callbacks=callbacks, part=True)
        encoder = str(folder.absolute())
    assert encoder is not None
    return encoder


def _check_trained(recipe: Recipe, folder: Path, data: object) -> None:
    """Refuse a stage that another recipe has trained; the encoder of a later one is what the stage before it left."""
    wanted, trained = unstored(plan_encoder_run(recipe, data).saved_recipe()), unstored(read_recipe(folder / RECIPE))
    if folder.name != "1":
        trained = replace(trained, encoder=replace(trained.encoder, name=wanted.encoder.name))
    if trained != wanted:
        raise CheckpointError(
            f"{folder}: this stage was trained by another recipe. Resume with what it was started with, or start over "
            "with --overwrite."
        )


def _files(
    plan: RunPlan, out: Path, number: int, prepared: Prepared, *, main: bool, resume: bool, followed: bool
) -> RunFiles:
    folder = out / CHECKPOINTS / (f"stage-{number + 1}" if plan.stages > 1 else ".")
    return RunFiles(
        store=CheckpointStore(folder, keep=prepared.settings.training.keep_checkpoints),
        journal=Journal(out / plan.journal(number) if main else None),
        identity=prepared.identity,
        resume=resume,
        followed=followed,
    )


def _fit(prepared: Prepared, files: RunFiles, accelerator: Accelerator, messages: Messages) -> Progress:
    """One training, shown by the callbacks of the first process from its beginning to its end."""
    for callback in messages.callbacks:
        callback.begin(prepared.plan.steps)
    try:
        return fit(
            prepared.module, prepared.loader, prepared.settings, files, accelerator=accelerator,
            evaluate=prepared.evaluate, callbacks=messages.callbacks,
        )  # fmt: skip
    finally:
        for callback in messages.callbacks:
            callback.end()


def _scores_at_start(plan: RunPlan, first: Progress) -> dict[str, Scores]:
    """The dev scores from before the first step, where the model is a fine-tuned encoder and nothing else."""
    if "" not in plan.metrics or plan.classifies or not first.evaluations or first.evaluations[0]["step"] != 0:
        return {}
    return {"dev": first.evaluations[0]["scores"]}


STAGE_BEFORE = "what the stage before has left"


def _no_gain(progress: Progress, prepared: Prepared, start: str) -> str | None:
    """What to say where the weights before the first step, ``start``, were better than all that followed."""
    if len(progress.evaluations) < 2 or progress.evaluations[0]["step"] != 0:
        return None
    training = prepared.settings.training
    metric = training.metric
    before = progress.evaluations[0]["scores"][metric]
    after = max(entry["scores"][metric] for entry in progress.evaluations[1:])
    if after > before or training.keep == "last":
        return None
    if progress.kept != 0:
        return (
            f"the dev {metric} fell from {before:.4f} to {after:.4f} at best; the trained weights are kept all the "
            "same, because training.keep_untrained is false"
        )
    if after == before:
        return (
            f"the dev {metric} stayed at {before:.4f} at best, so {start} is kept; more texts or "
            "epochs, or another objective, may do better"
        )
    return (
        f"the dev {metric} fell from {before:.4f} to {after:.4f} at best, so {start} is kept; these "
        "texts may have nothing to teach it, or a lower training.learning_rate may help"
    )


def _estimate(
    run: EncoderRun, trainings: Sequence[Progress], messages: Messages, reports: Reports, *, finish: bool
) -> Estimate | None:
    """How good the model is; it is saved already, so whatever goes wrong here costs the estimate alone."""
    try:
        return estimate_quality(run, trainings, messages, reports)
    except (KeyboardInterrupt, Interrupted):
        message = "the estimate was interrupted; the model is complete without it"
        if not finish:
            raise Interrupted(f"{message}, and --resume computes it.") from None
        messages(message)
    except NearfarError as error:
        messages(f"note: how good the model is on new texts cannot be estimated: {error}")
    return None


def _tidy(out: Path, stages: int) -> None:
    """Remove what only a resumed run needs; of the stages before the tasks, keep the journals."""
    (out / ESTIMATING).unlink(missing_ok=True)  # first: from here on the run has finished
    for number in range(1, stages + 1):
        journal = out / STAGES / str(number) / JOURNAL
        if journal.is_file():
            os.replace(journal, out / JOURNAL.replace(".", f"-stage-{number}.", 1))
    shutil.rmtree(out / STAGES, ignore_errors=True)
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
