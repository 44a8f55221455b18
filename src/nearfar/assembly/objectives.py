"""Objectives by name: the one place that turns an objective's table into modules."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.objectives import CrossEntropy, SoftTriple, SupCon, balanced_weights
from nearfar.recipe import CrossEntropySupCon, Objective, TripleEntropy
from nearfar.training import Term


def build_terms(
    settings: Objective, *, classes: tuple[str, ...], dim: int, labels: NDArray[np.int64], seed: int
) -> tuple[list[Term], list[str]]:
    """The terms of an objective, and what the user should know about them. ``seed`` draws centers."""
    counts = np.bincount(labels, minlength=len(classes))
    weights = balanced_weights(torch.from_numpy(counts)) if settings.class_weights == "balanced" else None
    entropy = CrossEntropy(label_smoothing=settings.label_smoothing, class_weights=weights)
    notes: list[str] = []
    if isinstance(settings, TripleEntropy):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            triple = SoftTriple(
                len(classes), dim, centers=settings.centers, gamma=settings.gamma, scale=settings.scale,
                margin=settings.margin, spread=settings.spread,
            )  # fmt: skip
        smallest = int(counts.argmin())
        if settings.centers > counts[smallest]:
            notes.append(
                f"objective.centers is {settings.centers}, but the class {classes[smallest]!r} has only "
                f"{counts[smallest]} texts; fewer centers may do as well"
            )
        return [
            Term("cross_entropy", settings.beta, entropy, "logits"),
            Term("soft_triple", 1 - settings.beta, triple, "tokens" if settings.level == "tokens" else "text"),
        ], notes
    if isinstance(settings, CrossEntropySupCon):
        lonely = [name for name, count in zip(classes, counts, strict=True) if count == 1]
        if lonely:
            notes.append(
                f"{len(lonely)} of {len(classes)} classes have a single text ({', '.join(lonely[:3])}), which has no "
                "classmate to come near to"
            )
        return [
            Term("cross_entropy", 1 - settings.weight, entropy, "logits"),
            Term("supcon", settings.weight, SupCon(temperature=settings.temperature), "text"),
        ], notes
    return [Term("cross_entropy", 1.0, entropy, "logits")], notes
