"""The scanner: it finds the line of every key that tomllib finds."""

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.recipe.keys import key_literal, literal
from nearfar.recipe.validation import DEEPEST, key_lines

TEXT = '''\
# a comment with [brackets] = "and quotes
top = 1
"quoted key" = 2
'literal "key"' = 3
"esc\\u0061ped" = 4
a.b . "c d" = 5
[table]   # behind a header
text = """
not = "a key"
[not.a.table]
"""
quotes = """"two quotes""""" # end
raw = \'\'\'
x = 1 \\
\'\'\'
after = "a # b ] } \\" ="
list = [
  1, # one ]
  "two",
  [3,
   4],
]
[ table . "sub" ]
inline = { one = 1, two.three = [ { four = 4 } ], text = "}" }
[[many]]
x = 1
[many.inner]
y = 2
[[many]]
x = 3
[[many.deep]]
z = 4
[[many.deep]]
z = 5
when = 1979-05-27 07:32:00
'''

EXPECTED = {
    ("top",): 2,
    ("quoted key",): 3,
    ('literal "key"',): 4,
    ("escaped",): 5,
    ("a",): 6,
    ("a", "b"): 6,
    ("a", "b", "c d"): 6,
    ("table",): 7,
    ("table", "text"): 8,
    ("table", "quotes"): 12,
    ("table", "raw"): 13,
    ("table", "after"): 16,
    ("table", "list"): 17,
    ("table", "list", 0): 18,
    ("table", "list", 1): 19,
    ("table", "list", 2): 20,
    ("table", "list", 2, 0): 20,
    ("table", "list", 2, 1): 21,
    ("table", "sub"): 23,
    ("table", "sub", "inline"): 24,
    ("table", "sub", "inline", "one"): 24,
    ("table", "sub", "inline", "two"): 24,
    ("table", "sub", "inline", "two", "three"): 24,
    ("table", "sub", "inline", "two", "three", 0): 24,
    ("table", "sub", "inline", "two", "three", 0, "four"): 24,
    ("table", "sub", "inline", "text"): 24,
    ("many",): 25,
    ("many", 0): 25,
    ("many", 0, "x"): 26,
    ("many", 0, "inner"): 27,
    ("many", 0, "inner", "y"): 28,
    ("many", 1): 29,
    ("many", 1, "x"): 30,
    ("many", 1, "deep"): 31,
    ("many", 1, "deep", 0): 31,
    ("many", 1, "deep", 0, "z"): 32,
    ("many", 1, "deep", 1): 33,
    ("many", 1, "deep", 1, "z"): 34,
    ("many", 1, "deep", 1, "when"): 35,
}


def paths(value, path=()):
    """All paths of parsed values."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, below in inner:
        yield (*path, part)
        yield from paths(below, (*path, part))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_form_of_key_has_its_line(newline):
    text = TEXT.replace("\n", newline)
    assert set(paths(tomllib.loads(text))) == set(EXPECTED)
    assert key_lines(text) == EXPECTED


def test_a_header_wins_over_the_mention_of_its_table():
    assert key_lines("[a.b]\nx = 1\n[a]\ny = 1\n")["a",] == 3


def test_an_empty_text_has_no_lines():
    assert key_lines("") == {}
    assert key_lines("# nothing\n\n") == {}


def test_very_deep_keys_share_a_line_with_their_ancestors():
    deep = ".".join(["a"] * 2000)
    lines = key_lines(f"x = 1\n{deep} = 1\n[b.{deep}]\ny = 1\n[[c.{deep}]]\nz = {{ {deep} = 1 }}\n")
    assert max(map(len, lines)) == DEEPEST
    assert lines["a", "a"] == 2


KEYS = st.text(st.characters(codec="utf-8"), max_size=6)
VALUES = st.recursive(
    st.integers(-99, 99) | st.booleans() | st.text(st.characters(codec="utf-8"), max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=5), st.sampled_from(["", "\n", "# [x]\n"]))
def test_statements_are_found_whatever_their_values(values, between):
    text = "".join(f"{key_literal(key)} = {literal(value)}\n{between}" for key, value in values.items())
    assert tomllib.loads(text) == values
    lines = key_lines(text)
    assert {path for path in lines if len(path) <= DEEPEST} == set(paths(values))
    for at, key in enumerate(values):
        assert lines[key,] == 1 + at * (1 + between.count("\n"))
