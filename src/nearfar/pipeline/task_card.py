"""The model card of a model with several tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearfar.data import RowType
from nearfar.encoding import Card
from nearfar.encoding.task_model import TaskCard
from nearfar.pipeline.tasks import Ready
from nearfar.recipe.tasks import TaskRecipe


def task_readme(
    recipe: TaskRecipe, tasks: Sequence[Ready], cards: Sequence[TaskCard], card: Card, metrics: dict[str, Any]
) -> str:
    """The README of the folder."""
    name = _base_name(recipe.encoder.name)
    base = {"minilm": "sentence-transformers/all-MiniLM-L6-v2"}.get(name, name)
    lines = [
        "---",
        "library_name: nearfar",
        *([f"base_model: {base}"] if "/" in base else []),
        "tags: [nearfar, multi-task, sentence-transformers]",
        "---",
        "",
        f"# {base}, fine-tuned for {', '.join(one.name for one in cards)}",
        "",
        f"One encoder with {'a shared layer and ' if recipe.shared_layer else ''}a head for each task.",
        "",
        "| task | reads | head | labels | metric |",
        "|---|---|---|---|---|",
        *(
            f"| {one.name} | {RowType(one.kind).wording} | {one.head['kind']} | {_labels(one)} | {one.metric} |"
            for one in cards
        ),
        "",
        "## Use",
        "",
        "```python",
        "from nearfar.encoding.task_model import load_tasks",
        "",
        'model = load_tasks("this-folder")',
        f"model.predict({cards[0].name!r}, {_example(cards[0])})",
        "```",
        "",
        "The encoder alone opens in `nearfar.load`, `SentenceTransformer` and `AutoModel`.",
        "",
        "## Data",
        "",
        "| task | part | source | rows |",
        "|---|---|---|---|",
        *(
            f"| {ready.name} | {part} | {_base_name(records.source)} | {len(records):,} |"
            for ready in tasks
            for part, records in (("train", ready.data.train), ("dev", ready.data.dev), ("test", ready.data.test))
            if records is not None
        ),
        "",
        "## Results",
        "",
        *_results(cards, metrics),
        "",
        "`recipe.toml` in this folder runs this training again.",
        "",
        "## Versions",
        "",
        ", ".join(f"{package} {number}" for package, number in card.versions.items()) + ".",
        "",
    ]
    return "\n".join(lines)


def _labels(card: TaskCard) -> str:
    if card.labels is None:
        return f"{card.low:g} to {card.high:g}"
    return ", ".join(card.labels[:8]) + (" ..." if len(card.labels) > 8 else "")


def _example(card: TaskCard) -> str:
    return '[["some text"]]' if card.reads == "texts" else '[["left text"], ["right text"]]'


def _results(cards: Sequence[TaskCard], metrics: dict[str, Any]) -> list[str]:
    splits = [split for split in ("dev", "test") if split in metrics]
    if not splits:
        return ["No dev or test rows were given, so nothing was measured."]
    lines = [
        f"| data | {' | '.join(f'{one.name} ({one.metric})' for one in cards)} | mean |",
        "|---" * (len(cards) + 2) + "|",
    ]
    for split in splits:
        own = metrics[split]
        cells = [f"{own[one.name][one.metric]:.4f}" if one.name in own else "" for one in cards]
        mean = f"{own['mean']:.4f}" if "mean" in own else ""
        lines.append(f"| {split} | {' | '.join(cells)} | {mean} |")
    if "dev" in splits:
        lines += ["", "The mean on the dev rows chose the weights, so these scores flatter the model."]
    return lines


def _base_name(source: str) -> str:
    return Path(source).name if source.startswith("/") else source
