"""The whole page: one file that asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from nearfar import __version__
from nearfar.errors import counted
from nearfar.report import comparison, embedding_map, predictions, settings, spaces, training_curves
from nearfar.report.markup import Section, listed, said
from nearfar.report.sources import Source
from nearfar.report.tables import conclusion, lines

GENERATOR = "nearfar"
"""By this name a page is known to be a report, which may be written anew."""

ABSENT = "absent"

SECTIONS = (
    comparison.scores, spaces.by_set, comparison.differences, comparison.by_size, comparison.by_classes,
    training_curves.learning_curves, predictions.per_class, predictions.confusion, predictions.hard_labels,
    predictions.confidence, predictions.mistakes, embedding_map.embedding_map, embedding_map.geometry, spaces.cosines,
    spaces.layers, embedding_map.label_errors, training_curves.conflicts, comparison.cost, comparison.failures,
    settings.provenance,
)  # fmt: skip


def render_page(source: Source) -> str:
    """A report as HTML: styles, scripts and pictures are inside, and its policy forbids to load anything."""
    style, script = _resource("page.css"), _resource("page.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    sections = [make(source) for make in SECTIONS]
    shown = "".join(_section(one) for one in sections if not one.empty)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta name="generator" content="{GENERATOR} {said(__version__)}">\n'
        f"<title>{said(source.plan.name)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{_header(source)}\n{_contents(sections)}\n<main>\n{shown}{_absent(sections)}</main>\n"
        f'<footer>Written by nearfar {said(__version__)}. <a href="#top">Back to the top</a></footer>\n'
        f'<div id="tip" role="tooltip" hidden></div>\n<script>{script}</script>\n</body>\n</html>\n'
    )


def lead(source: Source) -> str:
    """What was compared, on what, how: one sentence of markup."""
    plan = source.plan
    if source.single:
        splits = [record.data for record in source.done]
        measured = f", measured on {said(listed(splits))}" if splits else ""
        what = (
            f"on the tasks {said(listed(list(source.tasks)))}" if source.tasks else f"of <b>{said(plan.baseline)}</b>"
        )
        return f"One run {what}{measured}."
    others = [f"<b>{said(name)}</b>" for name in source.contenders[1:]]
    names = [line.name for line in lines(source)]
    sets = said(listed(names)) if 0 < len(names) <= 8 else counted(len(names), "data set")
    against = f"{listed(others)} against the baseline <b>{said(plan.baseline)}</b>" if others else (
        f"<b>{said(plan.baseline)}</b> alone")  # fmt: skip
    how = f"{counted(len(plan.seeds), 'seed')} × {counted(plan.folds, 'fold')}"
    return f"{against} on {sets}: {said(source.metric)} over {how}."


def _header(source: Source) -> str:
    verdicts = conclusion(source)
    if not verdicts and not source.single:
        verdicts = ["Nothing can be said yet: no contender has a finished run in common with the baseline."]
    said_verdicts = "".join(f'<p class="verdict">{said(sentence)}</p>' for sentence in verdicts)
    figures = "".join(
        f"<div><dt>{said(what)}</dt><dd>{said(much)}</dd></div>" for what, much in comparison.summary_line(source)
    )
    kind = "Run" if source.single else "Study"
    return (
        f'<header id="top"><p class="kind">{kind}</p><h1>{said(source.plan.name)}</h1>'
        f'<p class="lead">{lead(source)}</p>'
        f"{said_verdicts}<dl>{figures}</dl></header>"
    )


def _contents(sections: list[Section]) -> str:
    named = [(one.name, one.title) for one in sections if not one.empty]
    named += [(ABSENT, "Not shown")] if len(named) < len(sections) else []
    links = "".join(f'<li><a href="#{name}">{said(title)}</a></li>' for name, title in named)
    return f'<nav aria-label="Sections"><ul>{links}</ul></nav>'


def _absent(sections: list[Section]) -> str:
    """What there is nothing to show of, and why: one line each."""
    empty = [one for one in sections if one.empty]
    if not empty:
        return ""
    reasons = "".join(f'<div id="{one.name}"><dt>{said(one.title)}</dt><dd>{one.body}</dd></div>' for one in empty)
    return f'<section id="{ABSENT}"><h2>Not shown</h2><dl class="absent">{reasons}</dl></section>\n'


def _section(one: Section) -> str:
    return f'<section id="{one.name}"><h2>{said(one.title)}</h2>{one.body}</section>\n'


def _resource(name: str) -> str:
    return resources.files("nearfar.report").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
