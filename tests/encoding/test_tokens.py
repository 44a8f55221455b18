"""Token tables: what the tokenizer gives text by text, flat, and padded again batch by batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors
from transformers import AutoTokenizer

from nearfar.encoding import tokenize, tokens
from nearfar.encoding.pretrained import toy_tokenizer
from nearfar.errors import SettingError

FAMILIES = ["bert", "roberta", "distilbert", "electra", "xlnet", "modernbert"]
TEXTS = ["a cat", "", "the quick brown fox jumps over the lazy dog", "x", "two words", "¿qué? 猫 ☃", "   ", "a\nb\tc"]
OTHERS = ["b", "a much longer second text", "", "y", "zz", "?", "one", "   "]


def row_of(table, place: int) -> list[int]:
    return table.ids[table.offsets[place] : table.offsets[place + 1]].tolist()


@pytest.fixture(scope="module")
def toy():
    return toy_tokenizer()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("joined", [False, True])
def test_the_table_holds_what_the_tokenizer_gives_text_by_text(tiny, family, joined):
    """Ids, lengths, type ids and the number of cut texts, for single texts and joined pairs."""
    tokenizer = AutoTokenizer.from_pretrained(tiny(family))
    columns = [TEXTS, OTHERS] if joined else [TEXTS]
    table = tokenize(tokenizer, columns, max_length=12)
    rows = list(zip(*columns, strict=True))
    one_row = [[[side] for side in row] for row in rows]  # not as bare strings: an empty second one would be left out
    alone = [{name: ids[0] for name, ids in tokenizer(*row, truncation=True, max_length=12).items()} for row in one_row]
    whole = [len(tokenizer(*row)["input_ids"][0]) for row in one_row]

    assert len(table) == len(TEXTS)
    assert [row_of(table, place) for place in range(len(TEXTS))] == [given["input_ids"] for given in alone]
    assert table.lengths.tolist() == [min(length, 12) for length in whole]
    assert table.truncated == sum(length > 12 for length in whole) > 0
    if table.types is None:
        assert all("token_type_ids" not in given for given in alone)
    else:
        assert table.types.tolist() == [kind for given in alone for kind in given["token_type_ids"]]
        assert set(table.types.tolist()) == ({0, 1} if joined else {0})


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_is_padded_as_the_tokenizer_pads(tiny, family):
    """On its side, with its ids, to the longest text of the batch and no farther."""
    tokenizer = AutoTokenizer.from_pretrained(tiny(family))
    assert tokenizer.padding_side == ("left" if family == "xlnet" else "right")
    table = tokenize(tokenizer, [TEXTS, OTHERS], max_length=30)
    for rows in ([2, 0, 3], [1], [5, 5], list(range(len(TEXTS)))):
        texts = [[column[row] for row in rows] for column in (TEXTS, OTHERS)]
        expected = tokenizer(*texts, truncation=True, max_length=30, padding=True, return_tensors="pt")
        batch = table.padded(rows).tensors

        assert set(batch) == set(expected)
        assert all(torch.equal(batch[name], expected[name]) for name in batch)
        assert all(tensor.dtype == torch.long for tensor in batch.values())


@given(st.lists(st.text("ab c", max_size=9), min_size=1, max_size=6), st.booleans(), st.randoms(use_true_random=False))
def test_a_batch_gives_back_its_rows(texts, left, random):
    """The masked-in ids of every row are the row's, the rest is padding, on one side only."""
    tokenizer = toy_tokenizer()
    tokenizer.padding_side = "left" if left else "right"
    table = tokenize(tokenizer, [texts], max_length=6)
    rows = np.array(random.choices(range(len(texts)), k=3))
    batch = table.padded(rows).tensors

    assert batch["input_ids"].shape[1] == table.lengths[rows].max()
    for row, ids, mask in zip(rows, batch["input_ids"], batch["attention_mask"], strict=True):
        assert ids[mask == 1].tolist() == row_of(table, row)
        assert (ids[mask == 0] == tokenizer.pad_token_id).all()
        assert mask.tolist() == sorted(mask.tolist(), reverse=not left)


def test_only_texts_beyond_the_limit_count_as_cut(toy):
    """A text of exactly the limit is whole; one more token and it is not."""
    texts = [" ".join(["a"] * words) for words in range(1, 8)]  # with both ends, words + 2 tokens
    table = tokenize(toy, [texts], max_length=6)

    assert table.lengths.tolist() == [3, 4, 5, 6, 6, 6, 6]
    assert table.truncated == 3


def test_a_long_list_is_read_in_chunks_without_seams(toy, monkeypatch):
    """Chunks of three texts or all at once: the same table."""
    whole = tokenize(toy, [TEXTS, OTHERS], max_length=9)
    monkeypatch.setattr(tokens, "CHUNK", 3)
    pieces = tokenize(toy, [TEXTS, OTHERS], max_length=9)

    for name in ("ids", "types", "offsets"):
        assert np.array_equal(getattr(pieces, name), getattr(whole, name))
    assert pieces.truncated == whole.truncated == 3


@pytest.mark.parametrize("columns", [[[]], [[], []]])
def test_no_texts_make_an_empty_table(toy, columns):
    """Of length zero, with a batch of no rows."""
    table = tokenize(toy, columns, max_length=9)

    assert (len(table), table.truncated, table.lengths.tolist()) == (0, 0, [])
    assert table.padded([]).tensors["input_ids"].shape[0] == 0


def test_a_text_of_unknown_signs_is_a_text(toy):
    """It becomes unknown tokens between the two ends, and is neither dropped nor counted as cut."""
    table = tokenize(toy, [["☃☃ ☃", "猫"]], max_length=9)

    assert row_of(table, 0) == [toy.cls_token_id, toy.unk_token_id, toy.unk_token_id, toy.sep_token_id]
    assert row_of(table, 1) == [toy.cls_token_id, toy.unk_token_id, toy.sep_token_id]
    assert table.truncated == 0


@pytest.mark.parametrize(("columns", "special"), [([["a long text"]], 2), ([["a long text"], ["another one"]], 3)])
def test_a_limit_below_the_special_tokens_is_refused(toy, columns, special):
    """Tokenizers would then cut nothing, and the texts would be longer than the encoder reads."""
    with pytest.raises(SettingError, match=rf"max_length is {special - 1}, but .* has {special} special tokens"):
        tokenize(toy, columns, max_length=special - 1)
    assert tokenize(toy, columns, max_length=special).lengths.tolist() == [special]


def test_a_text_without_any_token_is_refused(toy):
    """There is nothing to make a vector of."""
    inner = toy.backend_tokenizer
    before, inner.post_processor = inner.post_processor, processors.TemplateProcessing(single="$A", pair="$A $B")
    try:
        assert tokenize(toy, [["a", "b c"]], max_length=8).lengths.tolist() == [1, 2]
        with pytest.raises(SettingError, match=r"text 1 has no tokens, .*: ' '\. Leave such texts out"):
            tokenize(toy, [["a", " "]], max_length=8)
    finally:
        inner.post_processor = before


def test_a_third_column_is_refused(toy):
    """One column, or two to join."""
    with pytest.raises(SettingError, match="one column of texts, or two to join, got 3"):
        tokenize(toy, [["a"], ["b"], ["c"]], max_length=9)


WORDS = ["cat", "jumping", "x" * 150, "猫猫", "it's", "10,000", "naïve", "e\u0301", "\u00a0", "\n", "\x1c", "...", "ΑΣ"]


@pytest.mark.parametrize("family", FAMILIES)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=200), st.sampled_from([" ", "  ", " \n", "\t", ""]))
def test_a_long_text_has_the_tokens_it_has_when_it_is_not_shortened(tiny, family, words, between):
    """Whatever is cut off before the tokenizer reads it would have been truncated by it."""
    tokenizer = AutoTokenizer.from_pretrained(tiny(family))
    text = between.join(words)
    settings = {"truncation": True, "max_length": 12}
    whole = tokenizer(text, **settings)["input_ids"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "LONG", 20)
        table = tokenize(tokenizer, [[text]], max_length=12)
        part = tokens.shortened(tokenizer, text, 12)
    assert table.ids.tolist() == whole
    assert text.startswith(part)
    assert table.truncated == (len(tokenizer(text)["input_ids"]) > 12)


def test_a_text_of_many_words_is_shortened_and_one_without_spaces_is_not(toy):
    text = "word " * 1_000_000
    assert len(tokens.shortened(toy, text, 64)) <= tokens.LONG
    assert tokens.shortened(toy, "x" * 200_000, 64) == "x" * 200_000
    toy.truncation_side = "left"
    try:
        assert tokens.shortened(toy, text, 64) == text
    finally:
        toy.truncation_side = "right"


def test_few_long_texts_are_tokenized_at_a_time(monkeypatch):
    monkeypatch.setattr(tokens, "CHARS", 10)
    assert [each.stop for each in tokens.chunks([["four"] * 5, ["x"] * 5])] == [2, 4, 5]
    assert [each.stop for each in tokens.chunks([["x" * 50, "y", "z" * 50]])] == [1, 2, 3]
    assert list(tokens.chunks([[]])) == []
