"""The whole page: one HTML file that loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from importlib import resources
from string import Template
from typing import NamedTuple

from nearfar import __version__
from nearfar.errors import counted
from nearfar.report import comparison, embedding_map, predictions, reliability, spaces, task_scores, training_curves
from nearfar.report.elements import NOTHING, Markup, Missing, join, listed, tag
from nearfar.report.sources import Source
from nearfar.report.tables import conclusion, lines

GENERATOR = "nearfar"
"""The name by which a page is recognized as a report, which may be replaced."""
ABSENT = "absent"


class Section(NamedTuple):
    """A part of the page with its own heading."""

    name: str
    """Its anchor."""
    title: str
    build: Callable[[Source], Markup | Missing]
    compares: bool = False
    """Whether it needs several contenders, and so a study."""


SECTIONS = (
    Section("scores", "Scores", comparison.scores),
    Section("tasks", "Scores per task", task_scores.by_task, compares=True),
    Section("sets", "Scores on each set of scored pairs", spaces.by_set),
    Section("differences", "Differences to the baseline", comparison.differences, compares=True),
    Section("size", "Gain by training set size", comparison.by_size, compares=True),
    Section("classes", "Scores by number of classes", comparison.by_classes, compares=True),
    Section("curves", "Learning curves", training_curves.learning_curves),
    Section("per-class", "F1 per class", predictions.per_class),
    Section("confusion", "Confusion matrix", predictions.confusion),
    Section("hard", "Most confused classes", predictions.confused_classes),
    Section("confidence", "Confidence", predictions.confidence),
    Section("calibration", "Calibration", reliability.calibration),
    Section("mistakes", "Most confident mistakes", predictions.mistakes),
    Section("map", "Embedding map", embedding_map.embedding_map),
    Section("geometry", "Embedding geometry", embedding_map.geometry),
    Section("cosines", "Cosine similarity of positive and random pairs", spaces.cosines),
    Section("layers", "Anisotropy by layer", spaces.layers),
    Section("labels", "Suspected label errors", embedding_map.label_errors),
    Section("conflicts", "Gradient conflicts between tasks", training_curves.conflicts),
    Section("cost", "Cost", comparison.cost),
    Section("failed", "Failed trials", comparison.failures),
    Section("settings", "Settings and versions", comparison.provenance),
)


def render_page(source: Source) -> str:
    """A report as HTML with its styles, scripts and charts inside; its policy forbids loading anything."""
    style, script = _resource("page.css"), _resource("page.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    built = [(one, one.build(source)) for one in SECTIONS if not (source.single and one.compares)]
    shown = [(one, body) for one, body in built if isinstance(body, Markup)]
    absent = [(one, body.reason) for one, body in built if isinstance(body, Missing)]
    sections = [tag("section", tag("h2", one.title), body, id=one.name) + Markup("\n") for one, body in shown]
    return Template(_resource("page.html")).substitute(
        policy=policy,
        generator=GENERATOR,
        version=join(__version__),
        title=join(source.plan.name),
        style=style,
        header=_header(source),
        contents=_contents([one for one, _ in shown], absent=bool(absent)),
        sections=join(*sections, _absent(absent)),
        script=script,
    )


def lead(source: Source) -> Markup:
    """What was compared, on which data and how, in one sentence."""
    plan = source.plan
    if source.single:
        splits = [record.data for record in source.done]
        measured = join(", measured on ", listed(splits)) if splits else NOTHING
        tasks = join("on the tasks ", listed(list(source.tasks)))
        return join("One run ", tasks if source.tasks else join("of ", tag("b", plan.baseline)), measured, ".")
    names = [line.cell.name for line in lines(source)]
    sets = listed(names) if 0 < len(names) <= 8 else counted(len(names), "data set")
    others = [tag("b", name) for name in source.contenders[1:]]
    baseline = tag("b", plan.baseline)
    against = join(listed(others), " against the baseline ", baseline) if others else join(baseline, " alone")
    how = f"{counted(len(plan.seeds), 'seed')} × {counted(plan.folds, 'fold')}"
    return join(against, " on ", sets, f": {source.metric.title} over {how}.")


def _header(source: Source) -> Markup:
    verdicts = conclusion(source)
    if not verdicts and not source.single:
        verdicts = ["No verdict yet: no contender has a finished run in common with the baseline."]
    figures = (tag("div", tag("dt", name), tag("dd", value)) for name, value in comparison.summary_line(source))
    return tag(
        "header",
        tag("p", "Run" if source.single else "Study", class_="kind"),
        tag("h1", source.plan.name),
        tag("p", lead(source), class_="lead"),
        *(tag("p", sentence, class_="verdict") for sentence in verdicts),
        tag("dl", *figures),
        id="top",
    )


def _contents(shown: Sequence[Section], *, absent: bool) -> Markup:
    named = [(one.name, one.title) for one in shown] + ([(ABSENT, "Not shown")] if absent else [])
    links = (tag("li", tag("a", title, href=f"#{name}")) for name, title in named)
    return tag("nav", tag("ul", *links), aria_label="Sections")


def _absent(sections: Sequence[tuple[Section, str]]) -> Markup:
    """Sections without data, and why: one line each."""
    reasons = (tag("div", tag("dt", one.title), tag("dd", reason), id=one.name) for one, reason in sections)
    body = tag("h2", "Not shown") + tag("dl", *reasons, class_="absent")
    return tag("section", body, id=ABSENT) + Markup("\n") if sections else NOTHING


def _resource(name: str) -> str:
    return resources.files("nearfar.report").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
