"""Class names as data: which a recipe gives, and which of them fit the labeled texts of their class.

A name is compared with the words of the encoder's vocabulary. Let M be the (c, d) class means of the labeled texts
minus their mean, all by the untrained encoder. A name that says something of its class has a larger inner product with
the row of its class than most words have: docs/why/class-names.md has the reasons and the measurements.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Layout, RowType, read
from nearfar.encoding import Built, tokenize
from nearfar.errors import DataError, Problem, RecipeError, SettingError, counted, did_you_mean
from nearfar.evaluation import embed_table
from nearfar.evaluation.vectors import directions
from nearfar.pipeline.data import RunData, remedied
from nearfar.pipeline.defaults import TRAINED, are_few
from nearfar.recipe import Recipe
from nearfar.recipe.objectives import Auto
from nearfar.recipe.reader import parse

LEAST_FIT = 0.5
"""Standard deviations above the words of the vocabulary from which on the names of a run are used."""
LEAST_SHARE = 0.65
"""Names that tell the labeled texts apart less well than this share of what the texts do have little to add."""
CERTAIN_FIT = 4.0
"""From this fit on, names are used whatever the share."""
MOST_SHARE = 9.99
"""Where texts do not tell each other apart at all, names have any share."""
TEXTS_A_CLASS = 16
"""Labeled texts of a class that its name is compared with: reading more of them takes time and changes little."""
WORDS, MOST_FREQUENT, LETTERS = 256, 12_000, 4
"""Words of the vocabulary that names are compared with: so many, evenly spaced among the most frequent long ones."""
FEWEST_WORDS = 64
"""A vocabulary of fewer words has nothing to compare with; the words of the labeled texts take its place."""
SHOWN = 4
COLUMNS = 'A file of class names has the columns label and text; or write TOML or JSON: label = "description".'
_PART = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")

Names = dict[str, tuple[str, ...]]
"""The descriptions of classes by their labels."""


def words_of(label: str) -> str | None:
    """A label as words, or None for a code: digits, single letters, short words in capitals.

    >>> words_of("card_arrival"), words_of("lostCard"), words_of("ENTY:animal")
    ('card arrival', 'lost Card', 'animal')
    >>> words_of("B"), words_of("NUM"), words_of("class_1"), words_of("7")
    (None, None, None, None)
    """
    if any(sign.isdigit() for sign in label):
        return None
    parts = [part for part in _PART.findall(_CAMEL.sub(" ", label)) if not (part.isupper() and len(part) < 5)]
    return " ".join(parts) if any(len(part) > 2 for part in parts) else None


def class_names(given: Recipe, chosen: Recipe, data: RunData) -> Names:
    """The names that a run may use: those that its recipe gives, or labels that are words.

    Args:
        given: the recipe as it was written.
        chosen: the recipe with nothing left open.
        data: the labeled texts.
    """
    names = given.data.names
    if names == "none":
        return {}
    problem = unsuitable(given, chosen, data)
    if names == "auto":
        few = isinstance(given.objective, Auto) and are_few(len(data.train), len(data.classes))
        if problem is not None or not few:
            return {}
        words: Names = {label: (found,) for label in data.classes if (found := words_of(label)) is not None}
        return words if len(words) > 1 else {}
    if problem is not None:
        raise SettingError(f"data.names (--names) describes classes, and {problem}; leave it out.")
    phrases = read_names(Path(names)) if isinstance(names, str) else described(names, "data.names")
    strange = [label for label in phrases if label not in data.classes]
    if strange:
        known = ", ".join(data.classes[:12]) + (" ..." if len(data.classes) > 12 else "")
        raise SettingError(
            f"data.names (--names) describes {strange[0]!r}, which is no class of the training texts."
            f"{did_you_mean(strange[0], data.classes)} There are: {known}."
        )
    return phrases


def unsuitable(given: Recipe, chosen: Recipe, data: RunData) -> str | None:
    """Why class names, and texts without labels, cannot join this training, to end a sentence with."""
    does = chosen.objective.does
    if data.row_type is not RowType.LABELED:
        return f"these rows are {data.row_type.wording}"
    if data.train.shape != "texts":
        return "these rows are pairs of texts"
    if given.stage:
        return "a recipe with stages does not use them"
    if chosen.head.kind in TRAINED or does.trains_head or not does.needs_positives or does.second_views:
        return f"{chosen.objective.name} with a {chosen.head.kind} head does not use them (supcon does)"
    return None


def read_names(path: Path) -> Names:
    """The descriptions in a TOML or JSON file, ``label = "description"`` or a list of them, or in rows with labels."""
    where = str(path)
    if path.suffix.lower() not in (".toml", ".json"):
        try:
            records = read(where, Layout(), need="label")
        except DataError as error:
            raise remedied(error, COLUMNS) from None
        names: dict[str, list[str]] = {}
        for label, text in zip(records.labels or (), records.texts[0], strict=True):
            names.setdefault(label, []).append(text)
        return described(names, where)
    try:
        raw = path.read_bytes()
    except OSError as error:
        message = f"the file of class names cannot be read: {error.strerror}"
        raise DataError([Problem(where, message, "Check --names (data.names).")]) from None
    if path.suffix.lower() == ".toml":
        return described(parse(raw, where)[0], where)
    try:
        values = json.loads(raw)
    except ValueError as error:
        message = f"not valid JSON: {error}"
        raise DataError([Problem(where, message, 'Write {"label": "description"}.')]) from None
    return described(values, where)


def described(values: Any, where: str) -> Names:
    """Descriptions by label, each of them checked."""
    remedy = 'Write label = "description", or a list of descriptions, for each class.'
    if not isinstance(values, Mapping) or not values:
        raise RecipeError([Problem(where, "class names are a table of labels and descriptions", remedy)])
    names: Names = {}
    owner: dict[str, str] = {}
    problems = []
    for label, value in values.items():
        phrases = [value] if isinstance(value, str) else value
        if not isinstance(phrases, Sequence) or not all(isinstance(phrase, str) for phrase in phrases):
            problems.append(Problem(where, f"the name of {label!r} is not text", remedy))
            continue
        if not phrases or not all(phrase.strip() for phrase in phrases):
            problems.append(Problem(where, f"the description of {label!r} is empty", remedy))
            continue
        for phrase in phrases:
            if owner.setdefault(" ".join(phrase.split()).casefold(), label) != label:
                other = owner[" ".join(phrase.split()).casefold()]
                message = f"{other!r} and {label!r} have the same description"
                problems.append(Problem(where, message, "Describe what tells them apart.", value=phrase))
        names[label] = tuple(dict.fromkeys(phrases))
    if problems:
        raise RecipeError(problems)
    return names


@dataclass(frozen=True)
class ChosenNames:
    """Which names a run uses, and why."""

    used: Names
    left_out: Names
    fit: float
    """How well all names fit the texts of their classes, in standard deviations above words of the vocabulary."""
    share: float
    """How well names tell the labeled texts apart, as a share of how well other labeled texts do."""

    @property
    def note(self) -> str:
        """The decision and its figures, in one sentence."""
        fit = f"fit {self.fit:.1f}, at least {LEAST_FIT} needed"
        if self.fit < LEAST_FIT:
            return f"class names: not used, they fit the labeled texts no better than random words ({fit})"
        figures = f"{fit}; share {self.share:.2f}, at least {LEAST_SHARE} needed"
        if not self.used:
            return f"class names: not used, they tell the texts apart less well than other texts do ({figures})"
        number = len(self.used) + len(self.left_out)
        line = f"class names: used for {len(self.used)} of {counted(number, 'class', 'classes')} ({figures})"
        if not self.left_out:
            return line
        some = ", ".join(f"{phrases[0]!r}" for phrases in list(self.left_out.values())[:SHOWN])
        more = " ..." if len(self.left_out) > SHOWN else ""
        return f"{line}; left out, no closer to the texts of their class than other words: {some}{more}"


def choose_names(
    built: Built, texts: Sequence[str], labels: NDArray[np.int64], names: Names, classes: Sequence[str]
) -> ChosenNames:
    """Compare names with words of the vocabulary, and with the labeled texts, by the vectors of the encoder.

    Args:
        built: the encoder before its training.
        texts: the labeled texts.
        labels: (n,) the class of each.
        names: the descriptions of classes.
        classes: the labels in their order.
    """
    numbers = [number for number, label in enumerate(classes) if label in names and (labels == number).any()]
    if len(numbers) < 2:
        return ChosenNames({}, names, 0.0, 0.0)
    some = np.concatenate([np.flatnonzero(labels == number)[:TEXTS_A_CLASS] for number in numbers])
    of_class = np.searchsorted(numbers, labels[some])  # from 0 to m - 1, of the m classes with a name
    phrases = [(place, phrase) for place, number in enumerate(numbers) for phrase in names[classes[number]]]
    words = vocabulary_words(built.tokenizer, texts)
    vectors = _embedded(built, [*(texts[row] for row in some), *(phrase for _, phrase in phrases), *words])
    of_texts, of_phrases, of_words = np.split(vectors, [len(some), len(some) + len(phrases)])
    owner = np.array([place for place, _ in phrases])
    own = class_means(of_phrases, owner, len(numbers))
    own -= own.mean(axis=0)
    rows = class_means(of_texts, of_class, len(numbers))
    rows -= rows.mean(axis=0)
    spread = np.maximum((of_words @ rows.T).std(axis=0), 1e-12)
    fits = (own * rows).sum(axis=1) / spread
    fit = float((spread * fits).sum() / np.sqrt((spread**2).sum()))
    share = told_apart(of_texts @ own.T, of_class) / max(text_margins(of_texts, of_class), 1e-12)
    fitting = fit >= LEAST_FIT and (share >= LEAST_SHARE or fit >= CERTAIN_FIT)
    kept = {classes[number] for number, one in zip(numbers, fits.tolist(), strict=True) if fitting and one > 0}
    return ChosenNames(
        used={label: phrases for label, phrases in names.items() if label in kept},
        left_out={label: phrases for label, phrases in names.items() if label not in kept},
        fit=fit,
        share=max(-MOST_SHARE, min(share, MOST_SHARE)),
    )


def class_means(vectors: NDArray[np.float64], labels: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """(c, d) the mean of the vectors of each class."""
    return np.stack([vectors[labels == number].mean(axis=0) for number in range(classes)])


def told_apart(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """How far (n, c) scores of the right class are above those of others: the mean, in standard deviations."""
    scores = scores - np.mean([scores[labels == number].mean(axis=0) for number in np.unique(labels)], axis=0)
    own = scores[np.arange(len(labels)), labels]
    margins = own - (scores.sum(axis=1) - own) / (scores.shape[1] - 1)
    return float(margins.mean() / max(margins.std(), 1e-12))


def text_margins(vectors: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """The same of the class means of all other labeled texts; texts that are alone in their class do not count."""
    sizes = np.bincount(labels).astype(np.float64)
    means = class_means(vectors, labels, len(sizes))
    scores = (vectors - means.mean(axis=0)) @ (means - means.mean(axis=0)).T
    rows, mine = np.arange(len(labels)), sizes[labels]
    without = (mine[:, None] * means[labels] - vectors) / np.maximum(mine - 1, 1)[:, None]
    scores[rows, labels] = ((vectors - means.mean(axis=0)) * (without - means.mean(axis=0))).sum(axis=1)
    several = mine > 1
    return told_apart(scores[several], labels[several]) if np.unique(labels[several]).size > 1 else 0.0


def vocabulary_words(tokenizer: Any, texts: Sequence[str]) -> list[str]:
    """Whole words of a vocabulary, evenly spaced among the most frequent; else the words of the texts."""
    tokens = sorted((number, token) for token, number in tokenizer.get_vocab().items())
    marked = [token[1:] for _, token in tokens if token[:1] in ("▁", "Ġ")]  # where a mark begins a word
    plain = marked or [token for _, token in tokens if not token.startswith("##")]
    words = [word for word in plain if word.isalpha() and len(word) >= LETTERS][:MOST_FREQUENT]
    if len(words) < FEWEST_WORDS:
        words = sorted({word.casefold() for text in texts for word in _PART.findall(text)})
    if len(words) <= WORDS:
        return words
    return [words[place] for place in np.linspace(0, len(words) - 1, WORDS).astype(int)]


def _embedded(built: Built, texts: list[str]) -> NDArray[np.float64]:
    table = tokenize(built.tokenizer, [texts], max_length=built.max_length)
    return directions(embed_table(built.model, table, batch_size=64))
