"""The model card: what a model is, where it came from, what it is worth and how to use it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nearfar.data import RowType
from nearfar.encoding import Card
from nearfar.encoding.task_model import TaskCard
from nearfar.errors import counted
from nearfar.evaluation.estimate import Estimate
from nearfar.pipeline.data import RunData
from nearfar.pipeline.output import MEAN
from nearfar.recipe import Recipe
from nearfar.recipe.tasks import TaskRecipe

PACKAGES = ("nearfar", "torch", "transformers", "tokenizers", "accelerate", "safetensors")


def versions() -> dict[str, str]:
    """What the numbers were computed with."""
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}


_version = cache(version)
"""Of an installed package; each is read once, because its metadata are parsed for it."""


@dataclass(frozen=True, kw_only=True)
class CardText:
    """What the README of a model folder says, apart from what all of them say."""

    encoder: str
    """The name of the encoder in the recipe."""
    trained: str
    """What it was fine-tuned with or for."""
    tags: tuple[str, ...]
    summary: list[str]
    usage: list[str]
    data: Mapping[str, RunData]
    """The data of each task; that of a plain recipe has no name."""
    results: list[str]
    recipe: str | None = None
    """The recipe, where the README shows it."""
    versions: Mapping[str, str]
    pipeline_tag: str | None = None


def readme_of(text: CardText) -> str:
    """The README of a model folder."""
    local = os.path.isdir(text.encoder)
    name = Path(text.encoder).name if local else _base_name(text.encoder).partition("@")[0]
    base = {"minilm": "sentence-transformers/all-MiniLM-L6-v2"}.get(name, name)
    named = "" not in text.data
    lines = [
        "---",
        "library_name: nearfar",
        *([] if text.pipeline_tag is None else [f"pipeline_tag: {text.pipeline_tag}"]),
        *([f"base_model: {base}"] if "/" in base and not local else []),
        f"tags: [{', '.join(text.tags)}]",
        "---",
        "",
        f"# {base}, fine-tuned {text.trained}",
        "",
        *text.summary,
        "",
        "## Use",
        "",
        *text.usage,
        "",
        "## Data",
        "",
        f"|{' task |' if named else ''} part | source | rows |",
        f"|{'---|' if named else ''}---|---|---|",
        *(
            f"|{f' {task} |' if named else ''} {role} | {_base_name(records.source)} | {len(records):,} |"
            for task, data in text.data.items()
            for role, records in (("train", data.train), ("dev", data.dev), ("test", data.test))
            if records is not None
        ),
        "",
        "## Results",
        "",
        *(text.results or ["No dev or test rows were given, so nothing was measured."]),
        "",
        "## Recipe",
        "",
        "`recipe.toml` in this folder runs this training again.",
        *([] if text.recipe is None else ["", "```toml", text.recipe.strip(), "```"]),
        "",
        "## Versions",
        "",
        ", ".join(f"{package} {number}" for package, number in text.versions.items()) + ".",
        "",
    ]
    return "\n".join(lines)


def model_card(recipe: Recipe, recipe_text: str, data: RunData, card: Card, metrics: dict[str, Any]) -> str:
    """The README of a model of one task."""
    purpose = "text-classification" if data.row_type.has_head else "sentence-similarity"
    measured: dict[str, Any] = {split: metrics[split] for split in ("dev", "test") if split in metrics}
    results = _results(_beside(measured, metrics.get("untrained", {})))
    if "estimate" in metrics:
        results += [""] * bool(results) + [_sentence(str(Estimate(**metrics["estimate"])))]
    if "dev" in metrics and recipe.training.keep != "last":
        results += ["", "The dev rows chose the weights, so their scores flatter the model."]
    if metrics["training"]["untrained"]:
        results += ["", "The weights are those of the untrained encoder: no trained ones had a better dev score."]
    text = CardText(
        encoder=recipe.encoder.name,
        trained=f"with {recipe.objective.name}",
        tags=("nearfar", purpose, "sentence-transformers", recipe.objective.name),
        pipeline_tag=purpose,
        summary=[_summary(data, card), *_class_names(data), *_unlabeled(data)],
        usage=_usage(card),
        data={"": data},
        results=results,
        recipe=_without_folders(recipe, recipe_text),
        versions=card.versions,
    )
    return readme_of(text)


def task_model_card(
    recipe: TaskRecipe, data: Mapping[str, RunData], cards: Sequence[TaskCard], card: Card, metrics: dict[str, Any]
) -> str:
    """The README of a model with several tasks."""
    shared = "a shared layer and " if recipe.shared_layer else ""
    example = '[["some text"]]' if cards[0].reads == "texts" else '[["left text"], ["right text"]]'
    text = CardText(
        encoder=recipe.encoder.name,
        trained=f"for {', '.join(one.name for one in cards)}",
        tags=("nearfar", "multi-task", "sentence-transformers"),
        summary=[
            f"One encoder with {shared}a head for each task.",
            "",
            "| task | reads | head | labels | metric |",
            "|---|---|---|---|---|",
            *(
                f"| {one.name} | {RowType(one.kind).wording} | {one.head['kind']} | {_labels(one)} | {one.metric} |"
                for one in cards
            ),
        ],
        usage=[
            "```python",
            "from nearfar.encoding.task_model import load_tasks",
            "",
            'model = load_tasks("this-folder")',
            f"model.predict({cards[0].name!r}, {example})",
            "```",
            "",
            "The encoder alone opens in `nearfar.load`, `SentenceTransformer` and `AutoModel`.",
        ],
        data=data,
        results=_task_results(cards, metrics),
        versions=card.versions,
    )
    return readme_of(text)


def _labels(card: TaskCard) -> str:
    if card.labels is None:
        return f"{card.low:g} to {card.high:g}"
    return ", ".join(card.labels[:8]) + (" ..." if len(card.labels) > 8 else "")


def _task_results(cards: Sequence[TaskCard], metrics: dict[str, Any]) -> list[str]:
    splits = [split for split in ("dev", "test") if split in metrics]
    if not splits:
        return []
    named = " | ".join(f"{one.name} ({one.metric})" for one in cards)
    lines = [f"| data | {named} | mean |", "|---" * (len(cards) + 2) + "|"]
    for split in splits:
        scores = metrics[split]
        cells = [f"{scores[one.name][one.metric]:.4f}" if one.name in scores else "" for one in cards]
        lines.append(f"| {split} | {' | '.join(cells)} | {f'{scores[MEAN]:.4f}' if MEAN in scores else ''} |")
    if "dev" in splits:
        lines += ["", "The mean on the dev rows chose the weights, so these scores flatter the model."]
    return lines


def _summary(data: RunData, card: Card) -> str:
    if data.row_type.has_text_scores:
        low, high = min(data.train.scores or [0.0]), max(data.train.scores or [0.0])
        return f"A model of the score of a text; the training scores are from {low:g} to {high:g}."
    if not data.classes:
        return "An encoder of texts: the cosine of two vectors says how much their texts have to do with each other."
    names = ", ".join(f"`{label}`" for label in data.classes[:30]) + (" ..." if len(data.classes) > 30 else "")
    texts = "pairs of texts" if card.joined else "texts"
    if data.row_type.multilabel:
        least = sorted(set(card.task.get("thresholds", {}).values()))
        cut = f" A label applies from the probability {least[0]:.4f} on." if len(least) == 1 else ""
        return f"A multi-label classifier of {texts}, any number of {len(data.classes)} labels each: {names}.{cut}"
    return f"A classifier of {texts} into {len(data.classes)} classes: {names}."


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def _beside(reports: dict[str, Any], untrained: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """The reports, each followed by the same scores of the untrained encoder, where these are known."""
    rows: dict[str, Any] = {}
    for split, report in reports.items():
        rows[split] = report
        if split in untrained:
            scores = untrained[split]
            rows[f"{split}, untrained encoder"] = {key: scores[key] for key in report if key in scores}
    return rows


def _unlabeled(data: RunData) -> list[str]:
    """How many texts were trained with whose labels are not their own."""
    if not data.pseudo:
        return []
    texts = f"{counted(data.pseudo, 'unlabeled text')} joined {counted(len(data.labeled), 'labeled one')}"
    return ["", f"{texts} in the training, with the class that a first model gave them."]


def _class_names(data: RunData) -> list[str]:
    """The descriptions of classes that were trained with."""
    if not data.names:
        return []
    names = "; ".join(f"`{label}`: {', '.join(phrases)}" for label, phrases in list(data.names.items())[:30])
    more = " ..." if len(data.names) > 30 else "."
    return ["", f"Class names joined the training texts and the class head: {names}{more}"]


def _results(reports: dict[str, Any]) -> list[str]:
    """A table, or one for each part where dev and test rows are of different kinds and have different scores."""
    named = {"accuracy": "accuracy", "f1_macro": "macro F1", "f1_weighted": "weighted F1", "f1_micro": "micro F1"}
    named |= {"f1_samples": "sample F1", "lrap": "LRAP", "ece": "ECE", "log_loss": "log-loss"}
    lines: list[str] = []
    above: list[str] | None = None
    for split, report in reports.items():
        keys = [key for key in report if key in named] if "f1_macro" in report else list(report)
        keys = [key for key in keys if isinstance(report[key], float)]
        if keys != above:
            lines += [""] * bool(lines)
            lines += [f"| data | {' | '.join(named.get(key, key) for key in keys)} |", f"|---{'|---' * len(keys)}|"]
        lines.append(f"| {split} | {' | '.join(f'{report[key]:.4f}' for key in keys)} |")
        above = keys
    return lines


def _usage(card: Card) -> list[str]:
    if card.task.get("kind") == "text-scores":
        return [
            "```python",
            "from nearfar.encoding.model import load",
            "",
            'model = load("this-folder")',
            'model.scores(["some text", "another text"])',
            "```",
            "",
            'The text vectors come the same from `SentenceTransformer("this-folder")`; for scores outside of nearfar, '
            + _by_hand(card),
        ]
    if card.labels is None:
        return [
            "```python",
            "import nearfar",
            "",
            'model = nearfar.load("this-folder")',
            'model.encode(["some text", "another text"])',
            "```",
            "",
            'The same vectors come from `SentenceTransformer("this-folder").encode`.',
        ]
    example = '[("left text", "right text")]' if card.joined else '["some text"]'
    lines = [
        "```python",
        "import nearfar",
        "",
        'model = nearfar.load("this-folder")',
        f"model.predict({example})",
        f"model.embed({example})",
        "```",
        "",
    ]
    if card.native and not card.joined:
        lines.append(
            'The labels come the same from `pipeline("text-classification", "this-folder")` and '
            "`AutoModelForSequenceClassification.from_pretrained`, the text vectors from `SentenceTransformer`."
        )
    elif card.native:
        lines.append(
            "The labels come the same from `AutoModelForSequenceClassification.from_pretrained` on joined pairs."
        )
    else:
        lines.append(
            'The text vectors come the same from `SentenceTransformer("this-folder")`, its encoder in `AutoModel`.'
            " The class head stands on the pooled text vector, which those tools cannot express: for labels use "
            "`nearfar.load` as above, or " + _by_hand(card)
        )
    return lines


def _by_hand(card: Card) -> str:
    kind = "linear" if card.head is None else card.head["kind"]
    return _COMPUTATIONS[kind].format(pooled=f"the {card.pooling}-pooled vector")


_COMPUTATIONS = {
    "linear": "apply `head.linear.weight` and `head.linear.bias` of `nearfar.safetensors` to {pooled} before "
    "normalization.",
    "logistic": "apply `head.weight` and `head.bias` of `nearfar.safetensors` to {pooled}, L2-normalized.",
    "nearest-center": "find the row of `head.centers` in `nearfar.safetensors` nearest to {pooled}, L2-normalized.",
    "score": "multiply `head.linear.weight` of `nearfar.safetensors` with {pooled} before normalization, add "
    "`head.linear.bias`, multiply with `head.deviation` and add `head.mean`.",
    "ridge": "apply `head.weight` and `head.bias` of `nearfar.safetensors` to {pooled}, L2-normalized.",
    "neighbors": "compare {pooled}, L2-normalized, with the vectors under `head.` in `nearfar.safetensors`.",
}
"""How each head computes logits from a text vector."""


def _base_name(source: str) -> str:
    return Path(source).name if source.startswith("/") else source


def _without_folders(recipe: Recipe, text: str) -> str:
    for value in (recipe.data.train, recipe.data.dev, recipe.data.test, recipe.encoder.name):
        if isinstance(value, str) and value.startswith("/"):
            text = text.replace(value, Path(value).name)
    return text
