"""The picture of the README: embeddings of held-out texts before and after training, as SVG for light and dark pages.

    python -m benchmarks.embedding_map

Trains the default encoder on the sample data without any setting, embeds the test texts with the pretrained and with
the trained encoder, and draws both as maps by t-SNE. The share of the ten nearest neighbors of the same class is
measured in all dimensions of the embeddings.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parents[1] / "docs" / "images"
SIDE, GAP, TOP, KEY = 380, 40, 44, 56
RADIUS = 4.5


class Theme(NamedTuple):
    """The colors of a picture; its background is that of the page."""

    ink: str
    soft: str
    frame: str
    classes: tuple[str, ...]


THEMES = {
    "light": Theme(
        *("#1b1f24", "#59626d", "#dfe2e6"),
        ("#0059b3", "#d55e00", "#009e73", "#c2478e", "#b58900", "#35b6d6", "#6b4fa0", "#5b6770"),
    ),
    "dark": Theme(
        *("#e8eaec", "#a9b1ba", "#343a41"),
        ("#4c8dff", "#ff8c42", "#36c99b", "#e08bbd", "#e3b93c", "#7fe0f5", "#a68be0", "#a0abb4"),
    ),
}


class Panel(NamedTuple):
    """One map: (n, 2) points in the unit square, and the share of neighbors of the same class."""

    title: str
    points: NDArray[np.float64]
    agreement: float


def panel(title: str, vectors: NDArray[np.float32], labels: Sequence[str]) -> Panel:
    """The map of (n, d) embeddings."""
    from sklearn.manifold import TSNE

    from nearfar.report.analysis import neighbor_agreement

    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    perplexity = min(30.0, (len(labels) - 1) / 3)
    points = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(directions).astype(np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    return Panel(title, (points - low) / (high - low), neighbor_agreement(vectors, labels))


def summary(before: Panel, after: Panel) -> str:
    """What the picture shows, in one sentence."""
    return (
        f"Of the ten nearest neighbors of a held-out text, {before.agreement:.0%} have its class before training and "
        f"{after.agreement:.0%} after."
    )


def draw(panels: Sequence[Panel], labels: Sequence[str], theme: Theme) -> str:
    """The panels side by side above a legend."""
    classes = sorted(set(labels))
    color = {name: theme.classes[place % len(theme.classes)] for place, name in enumerate(classes)}
    width, height = len(panels) * SIDE + (len(panels) - 1) * GAP, TOP + SIDE + KEY
    about = f"Embeddings of {len(labels)} held-out texts before and after training. {summary(panels[0], panels[-1])}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="Inter, Helvetica Neue, Segoe UI, Liberation Sans, Arial, sans-serif" role="img">',
        f"<title>{escape(about)}</title>",
    ]
    for place, one in enumerate(panels):
        left = place * (SIDE + GAP)
        lines += [
            f'<text x="{left}" y="18" font-size="17" font-weight="600" fill="{theme.ink}">{escape(one.title)}</text>',
            f'<text x="{left}" y="36" font-size="13" fill="{theme.soft}">'
            f"{one.agreement:.0%} of nearest neighbors have the same class</text>",
            f'<rect x="{left + 0.5}" y="{TOP + 0.5}" width="{SIDE - 1}" height="{SIDE - 1}" rx="8" fill="none" '
            f'stroke="{theme.frame}"/>',
        ]
        inner = SIDE - 6 * RADIUS
        for (x, y), label in zip(one.points, labels, strict=True):
            lines.append(
                f'<circle cx="{left + 3 * RADIUS + x * inner:.1f}" cy="{TOP + 3 * RADIUS + (1 - y) * inner:.1f}" '
                f'r="{RADIUS}" fill="{color[label]}" fill-opacity="0.85"/>'
            )
    columns = 4
    step = width / columns
    for place, name in enumerate(classes):
        x, y = place % columns * step, TOP + SIDE + 22 + place // columns * 22
        lines += [
            f'<circle cx="{x + RADIUS + 1:.1f}" cy="{y}" r="{RADIUS}" fill="{color[name]}"/>',
            f'<text x="{x + 16:.1f}" y="{y + 4.5}" font-size="13" fill="{theme.soft}">{escape(name)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def maps(encoder: str) -> tuple[list[Panel], list[str]]:
    """Train on the sample data, and map its test texts before and after; with their labels."""
    import nearfar
    from nearfar.data import read
    from nearfar.pipeline import train
    from nearfar.recipe import build_recipe

    test = read("sample:helpdesk#test", need="label")
    assert test.labels is not None
    with tempfile.TemporaryDirectory() as folder:
        recipe = {"data": {"train": "sample:helpdesk"}, "encoder": {"name": encoder}}
        train(build_recipe(recipe, [], where="embedding_map"), Path(folder) / "model")
        models = {"Before training": encoder, "After training": Path(folder) / "model"}
        panels = [panel(title, nearfar.load(name).embed(test.texts[0]), test.labels) for title, name in models.items()]
    return panels, list(test.labels)


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--encoder", default="minilm", help="the encoder to train")
    made.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER", help="where the pictures are written")
    options = made.parse_args(arguments)
    panels, labels = maps(options.encoder)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, theme in THEMES.items():
        (options.out / f"embedding-map-{name}.svg").write_text(draw(panels, labels, theme), encoding="utf-8")
    print(summary(panels[0], panels[-1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
