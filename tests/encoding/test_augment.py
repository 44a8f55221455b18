"""Augmentations: what they may change and what they must not, how often, and the same again for the same seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from nearfar.encoding import TokenTable, tokenize
from nearfar.encoding.augment import (
    AUGMENTATIONS,
    CharacterMask,
    SpanMask,
    Synonyms,
    TokenizedTexts,
    WordDeletion,
    make_augment,
)
from nearfar.encoding.lexicon import Lexicon
from nearfar.encoding.pretrained import toy_tokenizer
from nearfar.encoding.tokens import Padding
from nearfar.errors import SettingError

TEXTS = ["a car and a small dog", "", "go", "the quick car, the lazy dog and the old car by the river", "car car"]
GROUPS = {"car": ("car", "auto"), "dog": ("dog", "hound", "domestic dog"), "old": ("old", "aged")}
LEXICON = Lexicon(lambda word: GROUPS.get(word, ()))
MASK = 9
MANY = 4000


@pytest.fixture(scope="module")
def toy():
    return toy_tokenizer()


def rows_of(table: TokenTable) -> list[tuple[int, ...]]:
    return [
        tuple(table.ids[start:stop].tolist()) for start, stop in zip(table.offsets, table.offsets[1:], strict=False)
    ]


def ids_of(tokenizer, texts) -> list[tuple[int, ...]]:
    return [tuple(tokenizer(text)["input_ids"]) for text in texts]


def tokenized(texts: list[str], tokenizer, max_length: int) -> TokenizedTexts:
    table = tokenize(tokenizer, [texts], max_length=max_length)
    return TokenizedTexts(texts=texts, table=table, tokenizer=tokenizer, max_length=max_length)


def table_of(rows: list[list[int]]) -> TokenTable:
    flat = np.array([token for row in rows for token in row], dtype=np.int32)
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    return TokenTable(flat, np.arange(len(flat), dtype=np.int32), offsets, 0, Padding(0, 0, left=False))


def masked_in_all_ways(row: tuple[int, ...], special: set[int], length: int) -> set[tuple[int, ...]]:
    """Every row that a span may leave: the longest spans that fit and leave a token of the text."""
    real = [token not in special for token in row]
    for size in range(min(length, sum(real) - 1), 0, -1):
        starts = [at for at in range(len(row) - size + 1) if all(real[at : at + size])]
        if starts:
            return {row[:at] + (MASK,) * size + row[at + size :] for at in starts}
    return {row}


@given(
    st.lists(st.lists(st.integers(0, 8), max_size=9), max_size=5), st.integers(1, 12), st.sets(st.integers(0, 8)),
    st.integers(0, 2**62), st.data(),
)  # fmt: skip
def test_a_span_is_one_of_those_that_fit(rows, length, special, seed, data):
    """Inside the text, in one piece, of the right length, nothing special touched, a token left, the rest as it was."""
    table = table_of(rows)
    before = table.ids.copy()
    places = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6)) if rows else []
    spans = SpanMask(table=table, special_ids=special, mask_id=MASK, length=length)
    taken, changed = table.take(places), spans(np.array(places, dtype=np.int64), seed)

    assert np.array_equal(changed.offsets, taken.offsets)
    assert np.array_equal(changed.types, taken.types)
    assert changed.ids.dtype == np.int32
    assert np.array_equal(table.ids, before)
    for row, masked in zip(rows_of(taken), rows_of(changed), strict=True):
        assert masked in masked_in_all_ways(row, special, length)


@pytest.mark.parametrize("row", [[0, 3, 4, 5, 6, 7, 1], [0, 3, 4, 1, 5, 6, 7, 1], [3, 4, 5, 6]])
def test_every_span_is_equally_likely(row):
    """The first and the last included, in joined pairs as well."""
    ways = masked_in_all_ways(tuple(row), {0, 1}, 2)
    spans = SpanMask(table=table_of([row]), special_ids=[0, 1], mask_id=MASK, length=2)
    seen = Counter(rows_of(spans(np.zeros(MANY, dtype=np.int64), 5)))
    expected = MANY / len(ways)

    assert len(ways) > 2
    assert set(seen) == ways
    assert all(abs(count - expected) < 4.5 * expected**0.5 for count in seen.values())


def every_augment(tokenizer):
    data = tokenized(TEXTS, tokenizer, 32)
    return {
        **{name: make_augment(name, data) for name in ("spans", "words")},
        "synonyms": make_augment("synonyms", data, lexicon=LEXICON),
        "characters": make_augment("spans", data, mode="characters"),
    }


@pytest.mark.usefixtures("untouched_generator")
def test_the_same_places_and_seed_give_the_same_table_and_another_seed_another(toy):
    """Whatever was asked for in between, and nothing global is drawn from."""
    places = np.array([3, 0, 3, 4] * 4)
    every = every_augment(toy)
    assert set(every) >= set(AUGMENTATIONS)
    for name, augment in every.items():
        first, other, again = (rows_of(augment(places, seed)) for seed in (1, 2, 1))

        assert len(first) == len(places)
        assert first == again, name
        assert first != other, name
        assert len(set(first[::4])) > 1, name  # one text twice in a batch is changed in two ways


@pytest.mark.parametrize("places", [[], [1], [1, 2, 1]])
def test_texts_without_words_or_of_one_stay(toy, places):
    """And so does a batch without texts."""
    for augment in every_augment(toy).values():
        assert rows_of(augment(np.array(places, dtype=np.int64), 3)) == ids_of(toy, [TEXTS[at] for at in places])


def test_the_factory_masks_unknown_words_and_spares_the_ends(toy):
    """An unknown token stands for a word; the ends, and a separator typed into the text, are no words."""
    texts = ["☃ ☃ ☃", "a [SEP] b"]
    spans = make_augment("spans", tokenized(texts, toy, 32), length=2)
    snow, separated = rows_of(spans(np.array([0, 1]), 0))

    assert sorted(snow[1:-1]) == sorted([toy.unk_token_id, toy.mask_token_id, toy.mask_token_id])
    assert separated in ids_of(toy, ["[MASK] [SEP] b", "a [SEP] [MASK]"])
    assert (snow[0], snow[-1]) == (toy.cls_token_id, toy.sep_token_id)


def test_characters_are_masked_as_published(toy):
    """Any span but the very last, at the first place where its characters stand, with blanks around the mask."""
    text = "abcdefghij abcdefghij klmnopqrst"
    drawn = [text[at : at + 4] for at in range(len(text) - 4)]
    ways = [text.replace(piece, " [MASK] ", 1) for piece in drawn]
    spans = CharacterMask(data=tokenized([text, text[:30], text[:29]], toy, 64), length=4)

    assert set(rows_of(spans(np.zeros(MANY, dtype=np.int64), 1))) == set(ids_of(toy, ways))
    assert rows_of(spans(np.array([2]), 1)) == ids_of(toy, [text[:29]])
    assert rows_of(spans(np.array([1]), 1)) != ids_of(toy, [text[:30]])
    unchanged = CharacterMask(data=tokenized([text], toy, 64), length=99)(np.array([0]), 1)
    assert rows_of(unchanged) == ids_of(toy, [text])


def test_words_are_dropped_as_often_as_asked(toy):
    """Each with the same probability, the others in their order."""
    (whole,) = ids_of(toy, ["a b c d e f g h"])
    deletion = WordDeletion(data=tokenized(["a b c d e f g h"], toy, 32), share=0.25)
    dropped = rows_of(deletion(np.zeros(MANY, np.int64), 4))
    seen = Counter(token for row in dropped for token in row[1:-1])

    assert all(abs(seen[token] / MANY - 0.75) < 0.03 for token in whole[1:-1])
    assert all(tuple(token for token in whole if token in row) == row for row in dropped)


def test_one_word_always_stays_and_each_is_equally_likely_to_be_it(toy):
    """However many are to go."""
    ways = ids_of(toy, ["a", "b", "c"])
    deletion = WordDeletion(data=tokenized(["a b c"], toy, 9), share=1 - 1e-9)
    seen = Counter(rows_of(deletion(np.zeros(MANY, np.int64), 4)))

    assert set(seen) == set(ways)
    assert all(abs(seen[way] / MANY - 1 / 3) < 0.035 for way in ways)


def test_what_is_not_changed_keeps_its_spacing(tiny):
    """For a tokenizer that reads blanks and lines; a dropped first word takes its blank along."""
    cased = AutoTokenizer.from_pretrained(tiny("modernbert"))
    text = " a  b\nc "
    data = tokenized([text], cased, 32)
    thinned = rows_of(WordDeletion(data=data, share=0.4)(np.zeros(MANY, np.int64), 1))

    assert rows_of(WordDeletion(data=data, share=1e-9)(np.array([0]), 1)) == ids_of(cased, [text])
    assert set(thinned) == set(ids_of(cased, [text, "a  b", "a\nc", "b\nc", "a", "b", "c"]))
    assert rows_of(Synonyms(data=data, share=1, lexicon=LEXICON)(np.array([0]), 1)) == ids_of(cased, [text])


def test_words_with_synonyms_are_replaced_and_nothing_else(tiny):
    """Punctuation, spacing, case and words without synonyms stay; hyphens and apostrophes belong to words."""
    cased = AutoTokenizer.from_pretrained(tiny("modernbert"))
    text = "A Car,  a car-wash\nand the CAR's old_car: old car2 car."
    expected = "A Auto,  a car-wash\nand the CAR's aged_auto: aged auto2 auto."
    one_each = Lexicon(lambda word: {"car": ("car", "auto"), "old": ("aged", "old")}.get(word, ()))
    synonyms = Synonyms(data=tokenized([text], cased, 128), share=1, lexicon=one_each)

    assert rows_of(synonyms(np.array([0]), 1)) == ids_of(cased, [expected])


def test_synonyms_come_as_often_as_asked(toy):
    """A word is replaced with its probability, by each of its synonyms equally often."""
    ways = ids_of(toy, ["dog", "hound", "domestic dog"])
    synonyms = Synonyms(data=tokenized(["dog"], toy, 9), share=0.5, lexicon=LEXICON)
    seen = Counter(rows_of(synonyms(np.zeros(MANY, np.int64), 2)))

    assert set(seen) == set(ways)
    assert [seen[way] / MANY for way in ways] == pytest.approx([0.5, 0.25, 0.25], abs=0.035)


def test_changed_texts_are_cut_at_the_limit(toy):
    """Longer synonyms do not make a text longer than the encoder reads."""
    synonyms = Synonyms(data=tokenized(["dog " * 9], toy, 8), share=1, lexicon=LEXICON)

    assert synonyms(np.array([0]), 0).lengths.tolist() == [8]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("span", {}, "no augmentation 'span'; take one of spans, synonyms, words. Did you mean 'spans'"),
        ("spans", {"length": 0}, "length of 1 or more, got 0"),
        ("spans", {"length": 0, "mode": "characters"}, "length of 1 or more, got 0"),
        ("spans", {"mode": "letters"}, "mode must be tokens or characters, got 'letters'"),
        ("spans", {"share": 0.1}, "'spans' has no setting 'share'; it reads length and mode"),
        ("words", {"length": 5}, "'words' has no setting 'length'; it reads share"),
        ("words", {"share": 0}, "above 0 and below 1, got 0"),
        ("words", {"share": 1}, "above 0 and below 1, got 1"),
        ("synonyms", {"share": 1.5, "lexicon": LEXICON}, "above 0 and at most 1, got 1.5"),
    ],
)
def test_impossible_settings_are_refused(toy, name, settings, message):
    """With the value and what fits."""
    with pytest.raises(SettingError, match=message.replace(".", r"\.")):
        make_augment(name, tokenized(TEXTS, toy, 32), **settings)


def test_texts_of_another_table_are_refused(toy):
    with pytest.raises(SettingError, match="4 texts, but 5 in the table"):
        make_augment("words", replace(tokenized(TEXTS, toy, 32), texts=TEXTS[1:]))


@pytest.mark.parametrize("mode", ["tokens", "characters"])
def test_a_tokenizer_without_a_mask_token_cannot_mask(mode):
    """The message names the augmentations that work."""
    maskless = toy_tokenizer()
    data = tokenized(TEXTS, maskless, 32)
    maskless.mask_token = None
    with pytest.raises(SettingError, match=r"has none; take an encoder .* words, synonyms\."):
        make_augment("spans", data, mode=mode)
