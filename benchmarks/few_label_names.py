"""What the classes of the few-label comparison are called: names that are given to both tools, and wrong ones."""

from __future__ import annotations

from collections.abc import Sequence

NAMES: dict[str, dict[str, str]] = {
    "trec": {
        "ABBR": "abbreviation", "DESC": "description or definition", "ENTY": "entity or thing",
        "HUM": "person or human being", "LOC": "location or place", "NUM": "number or quantity",
    },
    "sst5": {"0": "very negative", "1": "negative", "2": "neutral", "3": "positive", "4": "very positive"},
    "cr": {"0": "negative", "1": "positive"},
    "subj": {"0": "subjective opinion", "1": "objective description"},
    "imdb": {"0": "negative", "1": "positive"},
}  # fmt: skip
"""What the classes are called whose labels are codes; the labels of the other data sets are words."""
FOREIGN: dict[str, dict[str, str]] = {
    "trec": {
        "ABBR": "Abkürzung", "DESC": "Beschreibung oder Definition", "ENTY": "Sache", "HUM": "Mensch oder Person",
        "LOC": "Ort", "NUM": "Zahl oder Menge",
    },
    "sst5": {"0": "sehr negativ", "1": "negativ", "2": "neutral", "3": "positiv", "4": "sehr positiv"},
    "cr": {"0": "schlecht", "1": "gut"},
    "subj": {"0": "subjektive Meinung", "1": "objektive Beschreibung"},
    "imdb": {"0": "schlecht", "1": "gut"},
}  # fmt: skip
"""The same in German, which the encoder has hardly read."""
VARIANTS = ("given", "none", "permuted", "letters", "foreign", "one-wrong")


def names_of(data: str, variant: str) -> dict[str, str] | str:
    """The setting ``data.names`` of a variant: names as they are written down here, or wrong in one of several ways."""
    given = NAMES.get(data, {})
    labels, names = list(given), list(given.values())
    match variant:
        case "none":
            return "none"
        case "permuted":
            names = [*names[1:], *names[:1]]
        case "letters":
            names = [chr(ord("A") + place) for place in range(len(names))]
        case "foreign":
            names = list(FOREIGN.get(data, {}).values())
        case "one-wrong":
            names = [names[-1], *names[1:-1], "furniture"] if names else []
    return dict(zip(labels, names, strict=True)) or "auto"


def spelled(data: str, labels: Sequence[str]) -> dict[str, str]:
    """A name for every label: the one that is written down here, or the words of the label, or the label itself.

    >>> spelled("banking77", ["card_arrival"]), spelled("cr", ["1"])
    ({'card_arrival': 'card arrival'}, {'1': 'positive'})
    """
    from nearfar.pipeline.class_names import words_of

    given = NAMES.get(data, {})
    names = {label: given.get(label) or words_of(label) or label for label in sorted(set(labels))}
    counts = [*names.values()]
    return {label: name if counts.count(name) == 1 else label.replace(":", " ") for label, name in names.items()}
