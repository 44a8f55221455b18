"""The documentation uses the terms of the field: words of a private vocabulary do not come back."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import PAGES, ROOT

AVOIDED = {
    r"classmates?": "positive, same-class example",
    r"lonely": "anchor without a positive",
    r"strangers?": "negatives",
    r"sits? together": "share a batch",
    r"belongs? together": "positive pair, similar texts",
    r"(?:like|unlike) (?:texts|pairs)": "similar or dissimilar texts",
    r"straighten\w*": "whiten",
    r"mend(?:s|ed|ing)?": "fix",
    r"reckon\w*": "compute",
    r"whose turn": "task schedule",
    r"surgeon": "PCGrad",
}
"""What is not written, and what is written instead."""
PATTERN = re.compile(rf"\b(?:{'|'.join(AVOIDED)})\b", re.IGNORECASE)
FILES = [*PAGES, ROOT / "CHANGELOG.md", *sorted((ROOT / "examples").glob("*.toml"))]


@pytest.mark.parametrize("page", FILES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_page_is_written_in_the_terms_of_the_field(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    matches = [
        f"{page.relative_to(ROOT)}:{number}: {line}" for number, line in enumerate(lines, 1) if PATTERN.search(line)
    ]
    assert not matches, f"{matches}; instead: {AVOIDED}"


def test_the_pages_are_all_there():
    assert len(FILES) >= 40


@pytest.mark.parametrize("line", ["Classmates meet.", "texts that belong together", "a mended file", "like pairs"])
def test_an_avoided_word_is_noticed(line):
    assert PATTERN.search(line)
