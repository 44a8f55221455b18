"""The model card: what a model is, where it came from, what it is worth and how to use it."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nearfar.data import Records
from nearfar.encoding import Card
from nearfar.pipeline.data import RunData
from nearfar.recipe import Recipe

PACKAGES = ("nearfar", "torch", "transformers", "tokenizers", "accelerate", "safetensors")


def versions() -> dict[str, str]:
    """What the numbers were computed with."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def model_card(recipe: Recipe, recipe_text: str, data: RunData, card: Card, metrics: dict[str, Any]) -> str:
    """The README of a model folder."""
    name = _base_name(recipe.encoder.name)
    base = {"minilm": "sentence-transformers/all-MiniLM-L6-v2"}.get(name, name)
    reports: dict[str, Any] = {split: metrics[split] for split in ("dev", "test") if split in metrics}
    lines = [
        "---",
        "library_name: nearfar",
        f"pipeline_tag: {'text-classification' if data.classes else 'sentence-similarity'}",
        *([f"base_model: {base}"] if "/" in base else []),
        f"tags: [nearfar, {'text-classification' if data.classes else 'sentence-similarity'}, sentence-transformers, "
        f"{recipe.objective.name}]",
        "---",
        "",
        f"# {base}, fine-tuned with {recipe.objective.name}",
        "",
        _summary(data, card),
        "",
        "## Use",
        "",
        *_usage(card),
        "",
        "## Data",
        "",
        "| part | source | rows |",
        "|---|---|---|",
        *(f"| {role} | {_base_name(records.source)} | {len(records):,} |" for role, records in _parts(data)),
        "",
        "## Results",
        "",
    ]
    if reports:
        lines += _results(reports)
        if "dev" in reports:
            lines += ["", "The dev rows chose the weights, so their scores flatter the model."]
    else:
        lines.append("No dev or test rows were given, so nothing was measured.")
    lines += [
        "",
        "## Recipe",
        "",
        "`recipe.toml` in this folder runs this training again.",
        "",
        "```toml",
        _without_folders(recipe, recipe_text).strip(),
        "```",
        "",
        "## Versions",
        "",
        ", ".join(f"{package} {number}" for package, number in card.versions.items()) + ".",
        "",
    ]
    return "\n".join(lines)


def _summary(data: RunData, card: Card) -> str:
    if not data.classes:
        return "An encoder of texts: the cosine of two vectors says how much their texts have to do with each other."
    names = ", ".join(f"`{label}`" for label in data.classes[:30]) + (" ..." if len(data.classes) > 30 else "")
    return f"A classifier of {'pairs of texts' if card.joined else 'texts'} into {len(data.classes)} classes: {names}."


def _results(reports: dict[str, Any]) -> list[str]:
    """A table, or one for each part where dev and test rows are of different kinds and have different scores."""
    named = {"accuracy": "accuracy", "f1_macro": "macro F1", "f1_weighted": "weighted F1"}
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
    if card.labels is None:
        return [
            "```python",
            "import nearfar",
            "",
            'model = nearfar.load("this-folder")',
            'model.embed(["some text", "another text"])',
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
    kind = (card.head or {}).get("kind", "linear")
    pooled = f"the {card.pooling}-pooled vector"
    if kind == "linear":
        return (
            "apply `head.linear.weight` and `head.linear.bias` of `nearfar.safetensors` "
            f"to {pooled} before normalization."
        )
    if kind == "logistic":
        return f"apply `head.weight` and `head.bias` of `nearfar.safetensors` to {pooled}, L2-normalized."
    if kind == "nearest-center":
        return f"find the row of `head.centers` in `nearfar.safetensors` nearest to {pooled}, L2-normalized."
    return f"compare {pooled}, L2-normalized, with the vectors under `head.` in `nearfar.safetensors`."


def _parts(data: RunData) -> list[tuple[str, Records]]:
    named = (("train", data.train), ("dev", data.dev), ("test", data.test))
    return [(role, records) for role, records in named if records is not None]


def _base_name(source: str) -> str:
    return Path(source).name if source.startswith("/") else source


def _without_folders(recipe: Recipe, text: str) -> str:
    for value in (recipe.data.train, recipe.data.dev, recipe.data.test, recipe.encoder.name):
        if isinstance(value, str) and value.startswith("/"):
            text = text.replace(value, Path(value).name)
    return text
