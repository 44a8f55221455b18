"""The model card: what a model is, where it came from, what it is worth and how to use it."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nearfar.assembly.data import RunData
from nearfar.data import Records
from nearfar.encoding import Card
from nearfar.recipe import Recipe

PACKAGES = ("nearfar", "torch", "transformers", "tokenizers", "accelerate", "safetensors")


def versions() -> dict[str, str]:
    """What the numbers were computed with."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def model_card(recipe: Recipe, recipe_text: str, data: RunData, card: Card, metrics: dict[str, Any]) -> str:
    """The README of a model folder."""
    name = _base_name(recipe.encoder.name)
    base = {"minilm": "sentence-transformers/all-MiniLM-L6-v2"}.get(name, name)
    reports = {split: metrics[split] for split in ("dev", "test") if split in metrics}
    lines = [
        "---",
        "library_name: nearfar",
        "pipeline_tag: text-classification",
        *([f"base_model: {base}"] if "/" in base else []),
        "tags: [nearfar, text-classification, sentence-transformers, " + recipe.objective.name + "]",
        "metrics: [accuracy, f1]",
        "---",
        "",
        f"# {base}, fine-tuned with {recipe.objective.name}",
        "",
        f"A classifier of {'pairs of texts' if card.joined else 'texts'} into {len(data.classes)} classes: "
        + ", ".join(f"`{label}`" for label in data.classes[:30])
        + (" ..." if len(data.classes) > 30 else "")
        + ".",
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
        lines += ["| data | accuracy | macro F1 | weighted F1 |", "|---|---|---|---|"]
        lines += [
            f"| {split} | {report['accuracy']:.4f} | {report['f1_macro']:.4f} | {report['f1_weighted']:.4f} |"
            for split, report in reports.items()
        ]
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


def _usage(card: Card) -> list[str]:
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
            "`nearfar.load` as above, or apply `head.linear.weight` and `head.linear.bias` of `nearfar.safetensors` "
            f"to the {card.pooling}-pooled vector before normalization."
        )
    return lines


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
