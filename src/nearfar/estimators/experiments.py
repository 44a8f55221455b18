"""``nearfar.tune`` and ``nearfar.compare``: what the commands tune and study do, on data in memory."""

from __future__ import annotations

import inspect
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.data import Layout, Records, read_memory
from nearfar.errors import MEMORY, RecipeError, SettingError
from nearfar.estimators.display import Chart, Page, interval_chart
from nearfar.estimators.folder import ModelFolder
from nearfar.estimators.rows import LabelType, encoder_rows, is_table, label_type, labeled_rows, target_type
from nearfar.estimators.saved_model import open_estimator
from nearfar.estimators.trainer import KEYS, layout_of, seed_of
from nearfar.experiments.study_schema import Contender, DataTable, Study, StudyTable, Values, check_contender, with_key
from nearfar.recipe import Override

if TYPE_CHECKING:
    import pandas

    from nearfar.estimators.classifier import Classifier
    from nearfar.estimators.encoder import Encoder
    from nearfar.experiments.tune import Tuned
    from nearfar.report import Source

WHERE = "nearfar.compare"
SHAPES = {1: ("text",), 2: ("text_a", "text_b"), 3: ("anchor", "positive", "negative")}
"""The columns of rows that are written to a file, by the number of their texts."""


def tune(
    texts: Any,
    labels: Any = None,
    *,
    minutes: float = 5,
    encoder: Any = "minilm",
    folds: int = 3,
    metric: str = "auto",
    random_state: Any = 0,
    columns: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    bi_encoder: bool = False,
    workers: int | None = None,
    out: str | os.PathLike[str] | None = None,
    verbose: bool = False,
) -> Classifier | Encoder:
    """Compare objectives by cross-validation within a time budget, and train the best on all rows: ``nearfar tune``.

    Args:
        texts: texts, pairs of texts with labels, ``(a, b, score)`` tuples, or a table.
        labels: the class of each text, or the name of the table's column.
        minutes: the time for the comparison.
        encoder: a short name, a model folder, or a name on the Hugging Face Hub.
        folds: folds of the cross-validation.
        metric: the score to choose by; ``"auto"`` is the default of the data.
        random_state: the seed of all random numbers.
        columns: which columns of tables are read, where their names do not say it.
        settings: recipe keys of all contenders, such as ``{"training.epochs": 3}``.
        bi_encoder: for pairs with binary labels: compare embeddings, not a classifier of joined pairs.
        workers: processes; None for one on each core.
        out: the folder for model, trials and report, from which the same call goes on; None for a temporary one.
        verbose: show the progress.

    Returns:
        The best model, fitted to all rows; its ``tuned_`` has the scores of all contenders.

    >>> import nearfar
    >>> texts = [f"{thing} number {n}" for n in range(4) for thing in ("apple", "hammer")]
    >>> best = nearfar.tune(texts, ["fruit", "tool"] * 4, minutes=0.001, encoder="toy", folds=2)
    >>> best.classes_.tolist()
    ['fruit', 'tool']
    """
    from nearfar.estimators.progress import TrialBar
    from nearfar.experiments import tune as experiment
    from nearfar.experiments.local_executor import LocalExecutor
    from nearfar.experiments.search_space import Request

    folder = ModelFolder.make() if out is None else ModelFolder(Path(out), temporary=False)
    if isinstance(texts, str | os.PathLike) and labels is None:
        file, kind = os.fspath(texts), "str"
        layout_of(columns)
        given = {f"data.{name}": value for name, value in (columns or {}).items()}
    else:
        records, kind = read_rows(texts, labels, layout_of(columns), "train")
        scratch = ModelFolder.make()
        file, given = str(write_rows(records, scratch.path / "train.jsonl")), {}
    overrides = [
        Override(tuple(key.split(".")), value, f"settings={{{key!r}: {value!r}}}")
        for key, value in {"encoder.name": _folder_of(encoder), **given, **(settings or {})}.items()
    ]
    request = Request(
        file=file, out=folder.path, minutes=minutes, folds=folds, metric=metric, seed=seed_of(random_state),
        vectors=bi_encoder, settings=tuple(overrides),
    )  # fmt: skip
    tuned = experiment.tune(request, TrialBar(shown=verbose), LocalExecutor(workers))
    best = ModelFolder(folder.path / experiment.MODEL, temporary=False, within=folder)
    if kind != "str":
        best.write_settings({"label_type": kind})
    model = open_estimator(best.path)
    model._folder = best
    model.tuned_ = Tuning(tuned)
    return model


class Tuning:
    """What a comparison within a time budget has found.

    Args:
        tuned: what ``nearfar tune`` prints.
    """

    def __init__(self, tuned: Tuned) -> None:
        self.winner = tuned.winner
        self.metric = tuned.metric
        self.sentences = tuned.sentences
        self.seconds = tuned.spent
        self._lines = tuned.lines

    def to_frame(self) -> pandas.DataFrame:
        """One row for each contender, the best first: folds, mean and deviation of its scores, and the outcome."""
        import pandas

        from nearfar.experiments.statistics import summarize

        rows = []
        for line in self._lines:
            short = summarize(line.scores) if line.scores else None
            values = (None, None) if short is None else (short.mean, short.sd)
            rows.append((line.name, len(line.scores), *values, line.seconds, line.outcome))
        return pandas.DataFrame(rows, columns=["contender", "folds", "mean", "sd", "seconds", "outcome"])

    def __repr__(self) -> str:
        return f"{self.to_frame().to_string(index=False)}\n" + "\n".join(f"{sentence}." for sentence in self.sentences)


def compare(
    contenders: Mapping[str, Any] | Sequence[str],
    data: Any,
    labels: Any = None,
    *,
    seeds: int | Sequence[int] = 3,
    folds: int = 5,
    metric: str = "auto",
    baseline: str | None = None,
    encoder: Any = None,
    columns: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    workers: int | None = None,
    out: str | os.PathLike[str] | None = None,
    verbose: bool = False,
) -> Comparison:
    """Compare ways to train over seeds and folds, with paired statistics: what ``nearfar study run`` does.

    Args:
        contenders: names to settings: recipe tables (``{"objective": {"name": "supcon"}}``), recipe keys
            (``{"training.epochs": 3}``), settings of estimators (``{"objective": "supcon", "epochs": 3}``), the name of
            an objective, or an unfitted estimator. A list of objectives names them by themselves.
        data: a file, texts with ``labels``, rows as ``fit`` takes them, or a dictionary of data sets by their names.
        labels: the class of each text, or the name of the table's column.
        seeds: how many seeds, or the seeds.
        folds: folds of the cross-validation.
        metric: the score that is compared; ``"auto"`` is the default of the data.
        baseline: the contender that the others are compared with; None for the first.
        encoder: the encoder of all contenders that name none.
        columns: which columns of tables are read, where their names do not say it.
        settings: recipe keys of all contenders.
        workers: processes; None for one on each core.
        out: the folder of the study, from which the same call goes on; None for a temporary one.
        verbose: show the progress.

    >>> import nearfar
    >>> texts = [f"{thing} number {n}" for n in range(4) for thing in ("apple", "hammer")]
    >>> quick = {"training.max_steps": 1}
    >>> ways = {"ce": {"objective": "cross-entropy"}, "supcon": {"objective": "supcon"}}
    >>> rows = {"text": texts, "label": ["fruit", "tool"] * 4}
    >>> table = nearfar.compare(ways, rows, seeds=1, folds=2, encoder="toy", settings=quick)
    >>> table["contender"].tolist()
    ['ce', 'supcon']
    """
    from nearfar.estimators.progress import TrialBar
    from nearfar.experiments.local_executor import LocalExecutor
    from nearfar.experiments.plan import plan_study
    from nearfar.experiments.trial_runner import TrialRunner, check_folder

    folder = ModelFolder.make() if out is None else ModelFolder(Path(out), temporary=False)
    named = {name: name for name in contenders} if not isinstance(contenders, Mapping) else contenders
    if not named:
        raise SettingError("there are no contenders; name them: {'ce': {'objective': 'cross-entropy'}, ...}.")
    shared = {**({} if encoder is None else {"encoder": encoder}), **(settings or {})}
    scratch = ModelFolder.make()
    tables = tuple(
        _data_table(name, rows, labels, layout_of(columns), scratch.path) for name, rows in _data_sets(data).items()
    )
    study_table = StudyTable(
        name="comparison",
        seeds=tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds),
        folds=folds,
        metric=metric,  # type: ignore[arg-type]  # plan_study says which there are
        baseline=baseline,
    )
    ways = tuple(
        Contender(name, recipe_values({**shared, **_settings(given)}), recipe_values(_settings(given)))
        for name, given in named.items()
    )
    study = Study(Path.cwd() / "compare.toml", WHERE, study_table, tables, ways)
    _check(study)
    check_folder(folder.path)
    runner = TrialRunner(folder.path, plan_study(study), TrialBar(shown=verbose), LocalExecutor(workers))
    with runner.session():
        runner.run_all(retry_failed=False)
    return Comparison(folder)


def _check(study: Study) -> None:
    problems = [problem for contender in study.contenders for problem in check_contender(study, contender)]
    if problems:
        raise RecipeError(list(dict.fromkeys(problems)))
    names = [contender.name for contender in study.contenders]
    if study.baseline not in names:
        raise SettingError(f"the baseline {study.baseline!r} is no contender; there are {', '.join(names)}.")
    if study.settings.folds < 2:
        raise SettingError(f"folds must be 2 or more, got {study.settings.folds}; 5 is usual.")
    if not study.settings.seeds:
        raise SettingError("seeds must be 1 or more; 3 is usual.")


def _data_sets(data: Any) -> dict[str, Any]:
    """Data sets by name; a single one is called data, a file by its own name."""
    if isinstance(data, str | os.PathLike):
        name = os.fspath(data).partition("#")[0].removeprefix("sample:").removeprefix("hub:")
        return {Path(name).name.partition(".")[0] or "data": os.fspath(data)}
    if isinstance(data, Mapping) and data and all(isinstance(rows, str) or is_table(rows) for rows in data.values()):
        return dict(data)
    return {"data": data}


def _data_table(name: str, rows: Any, labels: Any, layout: Layout, scratch: Path) -> DataTable:
    """A data set of the study; rows in memory are checked and written to a file for the processes."""
    if isinstance(rows, str) and labels is None:
        named = {key: value for key in ("text", "pair", "label", "score") if (value := getattr(layout, key))}
        return DataTable(name=name, file=rows, **named)
    records, _ = read_rows(rows, labels, layout, name)
    return DataTable(name=name, file=str(write_rows(records, scratch / f"{len(list(scratch.iterdir()))}.jsonl")))


def _settings(given: Any) -> dict[str, Any]:
    """The settings of a contender, in whichever form they are given."""
    if isinstance(given, str):
        return {"objective": given}
    if hasattr(given, "get_params"):
        usual = inspect.signature(type(given)).parameters
        if getattr(given, "label_names", "auto") not in ("auto", None):
            raise SettingError("contenders of a comparison are trained without class names; leave label_names out.")
        left_out = ("random_state", "verbose", "callbacks", "columns", "label_names", "invalid", "settings")
        changed = {
            name: value
            for name, value in given.get_params(deep=False).items()
            if name not in left_out and value != usual[name].default
        }
        return {**changed, **(given.settings or {})}
    if isinstance(given, Mapping):
        return dict(given)
    raise SettingError(
        f"a contender is a dictionary of settings, the name of an objective or an estimator; got {given!r}."
    )


def recipe_values(settings: Mapping[str, Any]) -> Values:
    """Recipe tables from tables, recipe keys and settings of estimators.

    >>> recipe_values({"objective": "supcon", "epochs": 3, "training": {"warmup": 0.1}, "batches.size": 8})
    {'objective': {'name': 'supcon'}, 'training': {'epochs': 3, 'warmup': 0.1}, 'batches': {'size': 8}}
    """
    values: Values = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and "." not in name and name != "class_weight":
            for key, inner in value.items():
                values = with_key(values, f"{name}.{key}", inner)
            continue
        short = {**KEYS, "objective": "objective.name", "class_weight": "objective.class_weight"}
        values = with_key(values, short.get(name, name), _folder_of(value) if name == "encoder" else value)
    return values


def _folder_of(encoder: Any) -> Any:
    """An encoder by its absolute path where it is a folder: processes of trials may run elsewhere."""
    return os.path.abspath(encoder) if os.path.isdir(encoder) else os.fspath(encoder)


def read_rows(data: Any, labels: Any, layout: Layout, name: str) -> tuple[Records, LabelType]:
    """Rows in memory, checked, and the type of their labels."""
    if isinstance(data, tuple) and len(data) == 2 and labels is None and not isinstance(data[0], str):
        data, labels = data
    if labels is not None or is_table(data):
        rows, layout = labeled_rows(data, labels, layout, name)
        own = labels is None or isinstance(labels, str)
        kind = target_type(rows, layout) if own else label_type(labels)
    else:
        rows, layout, kind = encoder_rows(data, name), Layout(), "str"
    return read_memory(rows, f"{MEMORY}{name}", layout), kind


def write_rows(records: Records, path: Path) -> Path:
    """Write checked rows to a file, from which reading gives the same rows."""
    names = SHAPES[len(records.texts)]
    columns: dict[str, Sequence[object]] = dict(zip(names, records.texts, strict=True))
    extra = {
        "label": records.labels, "score": records.scores, "query_id": records.queries, "doc_id": records.documents,
    }  # fmt: skip
    columns |= {name: values for name, values in extra.items() if values is not None}
    if records.label_sets is not None:
        columns["label"] = [list(labels) for labels in records.label_sets]
    with path.open("w", encoding="utf-8") as file:
        for row in zip(*columns.values(), strict=True):
            file.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")
    return path


class Comparison:
    """Scores of contenders with paired statistics; behaves like its data frame, a row for each data set and contender.

    Args:
        folder: of the study.
    """

    def __init__(self, folder: ModelFolder) -> None:
        self._folder = folder

    @property
    def source(self) -> Source:
        """The records of all trials, as a report reads them."""
        from nearfar.report import read_source

        return read_source(self._folder.path)

    def to_frame(self) -> pandas.DataFrame:
        """Means, deviations, differences to the baseline with interval and p-values, and verdicts."""
        import pandas

        from nearfar.report import render

        return pandas.read_csv(io.StringIO(render(self.source, "csv")))

    def to_latex(self) -> str:
        """Two tables for a paper, with the package booktabs."""
        from nearfar.report import render

        return render(self.source, "latex")

    def to_markdown(self) -> str:
        """Scores, differences and verdicts."""
        from nearfar.report import render

        return render(self.source, "markdown")

    def plot(self) -> Chart:
        """The mean and the standard deviation of each contender."""
        source = self.source
        rows = [
            (
                f"{line.cell.name}: {name}" if len(source.cells) > 1 else name,
                score.mean,
                score.sd if score.n > 1 else 0.0,
            )
            for line in _lines(source)
            for name, score in zip(source.contenders, line.scores, strict=True)
            if score is not None
        ]
        if not rows:
            raise SettingError("no trial has finished, so there is nothing to plot; report() has the reasons.")
        return interval_chart(rows, f"{source.metric.title}: mean ± standard deviation")

    def report(self) -> Page:
        """The page with all scores, differences, curves and mistakes."""
        from nearfar.report import render_page

        return Page(render_page(self.source))

    @property
    def verdicts(self) -> list[str]:
        """What may be said of the differences, in sentences."""
        from nearfar.report.tables import sentences

        return sentences(self.source)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Copy the folder of the study, which ``nearfar study show`` and ``nearfar report`` read."""
        import shutil

        from nearfar.experiments.trial_runner import check_folder

        check_folder(Path(path))
        shutil.copytree(self._folder.path, path, dirs_exist_ok=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.to_frame(), name)

    def __getitem__(self, key: Any) -> Any:
        return self.to_frame()[key]

    def __len__(self) -> int:
        return len(self.to_frame())

    def __repr__(self) -> str:
        return f"{self.to_frame().to_string(index=False)}\n" + "\n".join(self.verdicts)

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html(index=False, escape=True))


def _lines(source: Source) -> Sequence[Any]:
    from nearfar.report.tables import lines

    return lines(source)
