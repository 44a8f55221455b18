"""Screenshots of the documentation: the pages of report, label and explore, in light and dark.

The tests take them with the toy encoder and look at them. ``make screenshots`` takes them with the default encoder and
writes them to docs/images.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

import nearfar
from nearfar.data import read
from tests.docs.blocks import ROOT
from tests.workbench.browser import BROWSER, DRIVER, REASON, Page, server

IMAGES = ROOT / "docs" / "images"
PLACES = {"report": "how-to/reports.md", "label": "how-to/label.md", "explore": "how-to/explore.md"}
"""The pages of the documentation that show them."""
SIZE = (1240, 820)
THEMES = {"light": False, "dark": True}
WRITTEN = os.environ.get("NEARFAR_SCREENSHOTS")
"""The folder to write them to; unset in the tests."""
ENCODER = "minilm" if WRITTEN else "toy"
in_a_browser = pytest.mark.skipif(BROWSER is None or DRIVER is None, reason=REASON)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    page = Page(tmp_path_factory.mktemp("profile"))
    yield page
    page.driver.quit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A trained model, and a file of texts of which some are labeled."""
    folder = tmp_path_factory.mktemp("pages")
    rows, test = read("sample:helpdesk"), read("sample:helpdesk#test")
    model = nearfar.Classifier(ENCODER, estimate=False, max_steps=None if WRITTEN else 2)
    model.fit(rows.texts[0], rows.labels).save(folder / "model")
    with (folder / "texts.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for number, (text, label) in enumerate(zip(test.texts[0], test.labels, strict=True)):
            writer.writerow([text, label if number % 4 == 0 else ""])
    return folder


def take(page: Page, name: str, folder: Path) -> None:
    """Both pictures of what the browser shows, with letters on paper of the color of the theme."""
    from PIL import Image

    target = Path(WRITTEN) if WRITTEN else folder
    page.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    for theme, dark in THEMES.items():
        page.dark(dark)
        page.width(*SIZE)
        shot = target / f"{name}-page-{theme}.png"
        page.driver.save_screenshot(str(shot))
        with Image.open(shot) as image:
            assert image.size == SIZE
            counts = image.convert("L").histogram()
            small = image.convert("RGB").quantize(96)
        small.save(shot, optimize=True)
        paper = counts.index(max(counts))
        assert paper < 60 if dark else paper > 235
        assert sum(counts[level] for level in range(256) if abs(level - paper) > 90) / sum(counts) > 0.002
    page.dark(dark=False)


def show_report(page: Page, path: Path) -> None:
    """The section with the scores of the classes."""
    page.width(*SIZE)
    page.driver.get(path.as_uri())
    headings = "[...document.querySelectorAll('h2')].find(one => one.textContent.startsWith('F1 per class'))"
    page.script(f"{headings}.scrollIntoView()")


@pytest.mark.slow
@in_a_browser
def test_the_page_of_a_report(page, folder):
    model = nearfar.load(folder / "model")
    assert isinstance(model, nearfar.Classifier)
    test = read("sample:helpdesk#test")
    model.report(test.texts[0], test.labels).save(folder / "report.html")
    show_report(page, folder / "report.html")
    take(page, "report", folder)
    page.driver.get("about:blank")


@pytest.mark.slow
@in_a_browser
def test_the_page_of_labels(page, folder):
    with server("label", "texts.csv", "--encoder", ENCODER, "--out", "labels", cwd=folder) as (_, url):
        page.open(url)
        page.wait(lambda: page.script("return document.body.dataset.ready") == "true")
        page.wait(lambda: len(page.text("text")) > 5)
        if WRITTEN:
            page.find("train").click()
            page.wait(lambda: (folder / "labels" / "accuracy.jsonl").is_file(), seconds=900)
            page.script("location.reload()")
            page.wait(lambda: page.script("return document.body.dataset.ready") == "true")
            page.wait(lambda: len(page.text("text")) > 5)
        take(page, "label", folder)
    page.driver.get("about:blank")


@pytest.mark.slow
@in_a_browser
def test_the_page_of_a_map(page, folder):
    words = ("explore", "model", "sample:helpdesk#test", "--compare", ENCODER, "--out", "map")
    with server(*words, cwd=folder) as (_, url):
        page.open(url)
        page.wait(lambda: page.script("return document.body.dataset.ready") == "true")
        page.wait(lambda: page.find("map").get_attribute("data-points") == "160")
        take(page, "explore", folder)
    page.driver.get("about:blank")


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("theme", THEMES)
def test_the_documentation_shows_the_pictures(name, theme):
    from PIL import Image

    path = IMAGES / f"{name}-page-{theme}.png"
    with Image.open(path) as image:
        assert image.size == SIZE
    assert path.stat().st_size < 200_000
    text = (ROOT / "docs" / PLACES[name]).read_text(encoding="utf-8")
    assert f"(../images/{path.name}#only-{theme})" in text
