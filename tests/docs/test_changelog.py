"""CHANGELOG.md is what the news files say, and the renderer refuses news files that it cannot place."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tests.docs.blocks import ROOT

PAGE = ROOT / "CHANGELOG.md"
SPEC = importlib.util.spec_from_file_location("render_changelog", ROOT / "docs" / "render_changelog.py")
assert SPEC is not None
assert SPEC.loader is not None
changelog = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(changelog)


def test_the_committed_page_is_up_to_date():
    text = PAGE.read_text(encoding="utf-8")
    assert changelog.render(changelog.read_news(changelog.NEWS), text) == text, "Out of date. Run: make changelog"


def test_every_news_file_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    files = changelog.news_files(changelog.NEWS)
    assert len(files) >= 40
    assert len(re.findall(r"^- ", text, re.MULTILINE)) >= len(files)


def test_categories_are_those_of_the_readme():
    readme = (changelog.NEWS / "README.md").read_text(encoding="utf-8")
    listed = re.search(r"category is (.*?)\.", " ".join(readme.split()))
    assert listed is not None
    assert re.findall(r"`(\w+)`", listed[1]) == list(changelog.CATEGORIES)


def write(folder, **news):
    for name, text in news.items():
        (folder / f"{name.strip('_').replace('_', '.')}.md").write_text(text)


def test_news_are_grouped_by_category_newest_first(tmp_path):
    write(tmp_path, _2_added="Two,\nin two lines.", _10_added="Ten.", _3_fixed="Three.", README="not news")
    page = changelog.render(changelog.read_news(tmp_path))
    assert page.endswith("## Unreleased\n\n### Added\n\n- Ten.\n- Two, in two lines.\n\n### Fixed\n\n- Three.\n")


def test_released_sections_are_kept_and_the_unreleased_one_is_replaced(tmp_path):
    write(tmp_path, _1_added="One.")
    released = changelog.render(changelog.read_news(tmp_path), title="0.1.0 (2030-01-01)")
    write(tmp_path, _1_added="Uno.")
    twice = changelog.render(changelog.read_news(tmp_path), changelog.render(changelog.read_news(tmp_path), released))
    assert re.findall(r"^(?:## |- ).*$", twice, re.MULTILINE) == [
        "## Unreleased",
        "- Uno.",
        "## 0.1.0 (2030-01-01)",
        "- One.",
    ]
    assert changelog.render({}, twice) == released


@pytest.mark.parametrize("name", ["7.news.md", "added.md", "7.added.txt", "seven.fixed.md"])
def test_a_misnamed_news_file_is_refused(tmp_path, name):
    (tmp_path / name).write_text("Something.")
    with pytest.raises(ValueError, match=r"NUMBER\.CATEGORY\.md"):
        changelog.read_news(tmp_path)


def test_an_empty_news_file_is_refused(tmp_path):
    write(tmp_path, _7_added=" \n")
    with pytest.raises(ValueError, match="is empty"):
        changelog.read_news(tmp_path)
