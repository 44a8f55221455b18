"""The page in a real browser: labeling by keyboard, exploring, fixing labels, a killed server, colors and widths."""

import csv
import json
import re
import time

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from tests.workbench.browser import BROWSER, DRIVER, REASON, Page, server
from tests.workbench.test_app import THINGS, labeled, texts_of, unlabeled

import nearfar

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None or DRIVER is None, reason=REASON)]
EVIL = '<img src=x onerror="document.title=1"><script>document.title=1</script> & old apple'


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    page = Page(tmp_path_factory.mktemp("profile"))
    yield page
    page.driver.quit()


def kind_of(text):
    return next((kind for kind in THINGS if text in texts_of(kind)), "fruit")


def test_labels_by_keyboard_from_none_to_a_model_with_a_crash_between(page, tmp_path):
    rows = [*unlabeled(), {"text": EVIL}]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("label", "texts.jsonl", "--encoder", "toy", "--map", "pca", "--out", "project")
    log = tmp_path / "project" / "labels.jsonl"

    def count():
        return len(log.read_text().splitlines()) if log.exists() else 0

    with server(*words, cwd=tmp_path) as (process, url):
        page.open(url)
        keys = {}
        for number in range(6):
            text = page.wait(lambda: len(page.text("text")) > 5 and page.text("text"))
            kind = kind_of(text)
            if kind in keys:
                page.press(keys[kind])
            else:  # a new class on the fly
                page.press("/")
                page.type(kind, Keys.ENTER)
                keys[kind] = str(len(keys) + 1)
            page.wait(lambda text=text: page.text("text") != text)
            page.wait(lambda number=number: count() == number + 1 + len(keys))
        assert len(keys) == 2
        page.press(Keys.BACKSPACE)
        page.wait(lambda: page.text("text") == text)
        page.wait(lambda: count() == 9)
        page.press(keys[kind])
        page.wait(lambda: count() == 10)
        page.press(" ", "0")
        page.wait(lambda: count() == 12)
        text = page.wait(lambda: len(page.text("text")) > 5 and page.text("text"))
        assert page.errors() == []
        process.kill()  # in the middle
        process.wait()
        page.press("1")
        page.wait(lambda: "not written" in page.text("error"))
        assert "server does not answer" in page.text("error")
        time.sleep(4)  # the page asks for the state every second, and for more texts after three
        assert "not written" in page.text("error")
        assert page.text("text") == text
        page.errors()
    assert count() == 12
    with server(*words, cwd=tmp_path) as (process, url):
        page.open(url)
        page.wait(lambda: page.text("progress"))
        page.errors()  # of the page whose server was gone
        assert page.text("progress") == "6 of 49 texts labeled, 1 fit no class, 1 skipped."
        while count() < 12 + 6:
            text = page.wait(lambda: len(page.text("text")) > 5 and page.text("text"))
            before = count()
            page.press(keys[kind_of(text)])
            page.wait(lambda before=before: count() == before + 1)
            page.wait(lambda text=text: page.text("text") != text)
        page.wait(lambda: page.text("accuracy").startswith("About"))
        page.wait(lambda: page.find("train").is_enabled())
        page.find("train").click()
        page.wait(lambda: "of 12 labels" in page.text("accuracy"))
        assert page.find("curve").find_elements(By.TAG_NAME, "circle")
        page.find("export").click()
        page.wait(lambda: "labeled.csv" in page.text("status"))
        assert page.errors() == []
        assert all(address.startswith("http://127.0.0.1:") for address in page.addresses())
        assert page.script("return document.title") == "texts.jsonl – nearfar"
    model = nearfar.load(tmp_path / "project" / "model")
    assert set(model.classes_) == set(THINGS)
    lines = (tmp_path / "project" / "labeled.jsonl").read_text().splitlines()
    assert len(lines) == 12
    assert all(json.loads(line)["label"] == kind_of(json.loads(line)["text"]) for line in lines)


def test_labeling_in_light_and_dark_and_on_a_phone(page, tmp_path):
    """With a long text, a word that is wider than the page, many classes and long names of them."""
    texts = ["a long text " * 200, "w" * 300, "a short one"]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    names = ",".join([f"class number {number}" for number in range(12)] + ["x" * 150])
    with server("label", "texts.jsonl", "--encoder", "toy", "--classes", names, cwd=tmp_path) as (_, url):
        page.open(url)
        page.wait(lambda: page.script("return document.body.dataset.ready") == "true")
        for _ in texts:
            before = page.wait(lambda: len(page.text("text")) > 5 and page.text("text"))
            for dark in (False, True):
                for width in (390, 1240):
                    check_look(page, tmp_path, dark=dark, width=width)
            page.press(" ")
            page.wait(lambda before=before: page.text("text") != before)
    page.driver.get("about:blank")


def test_the_page_works_on_another_machine_and_sigterm_writes_the_files(page, tmp_path):
    """Without https, a browser has less of ``crypto`` for pages of other machines."""
    rows = "".join(json.dumps(row) + "\n" for row in unlabeled())
    (tmp_path / "texts.jsonl").write_text(rows)
    page.driver.get("about:blank")
    page.errors()  # of pages whose server was gone
    less = {"source": "delete Crypto.prototype.randomUUID"}
    script = page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", less)
    try:
        with server("label", "texts.jsonl", "--encoder", "toy", "--classes", "a,b", cwd=tmp_path) as (process, url):
            page.open(url)
            text = page.wait(lambda: len(page.text("text")) > 5 and page.text("text"))
            page.press("2")
            log = tmp_path / "texts.nearfar" / "labels.jsonl"
            page.wait(lambda: log.exists() and log.read_text().count("\n") == 1)
            assert page.errors() == []
            page.driver.get("about:blank")
            process.terminate()
            assert "1 labeled text in " in process.communicate(timeout=60)[1]
            assert process.returncode == 0
    finally:
        page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    assert json.loads((tmp_path / "texts.nearfar" / "labeled.jsonl").read_text()) == {"text": text, "label": "b"}


def check_look(page, folder, *, dark, width):
    """Letters on paper of the asked color, and nothing beside the page."""
    from PIL import Image

    page.dark(dark)
    page.width(width)
    shot = folder / "shot.png"
    page.driver.save_screenshot(str(shot))
    with Image.open(shot) as image:
        counts = image.convert("L").histogram()
    paper = counts.index(max(counts))
    assert paper < 40 if dark else paper > 240
    assert 0.002 < sum(counts[level] for level in range(256) if abs(level - paper) > 90) / sum(counts) < 0.3
    assert page.script("return document.documentElement.scrollWidth") <= width
    page.dark(False)
    page.width(1240)


@pytest.fixture(scope="module")
def explored(page, tmp_path_factory):
    """The page of labeled texts, of which two labels are wrong; yields the folder and the address."""
    folder = tmp_path_factory.mktemp("explored")
    good = labeled()
    nearfar.Classifier("toy").fit([row["text"] for row in good], [row["label"] for row in good]).save(folder / "model")
    rows = [*labeled(), {"text": EVIL}]
    rows[3]["label"], rows[30]["label"] = "tool", "fruit"
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("explore", "model", "data.jsonl", "--compare", "toy", "--out", "out")
    with server(*words, cwd=folder) as (_, url):
        page.driver.get("about:blank")
        page.errors()
        page.open(url)
        page.wait(lambda: page.script("return document.body.dataset.ready") == "true")
        page.wait(lambda: page.find("map").get_attribute("data-points") == "49")
        yield folder, url


def selected(page):
    return int(re.match(r"(\d+|No)", page.text("selected"))[1].replace("No", "0"))


def table(page):
    return [row.find_element(By.TAG_NAME, "td").text for row in page.find("table").find_elements(By.TAG_NAME, "tr")]


def check_filters(page):
    """All texts without a selection, else those of it; together they narrow each other; Clear takes them away."""
    page.find("filter-label").send_keys("fruit")
    page.wait(lambda: selected(page) == 24)
    page.find("filter-text").send_keys("HAMMER")
    page.wait(lambda: selected(page) == 1)  # the one with a wrong label
    page.find("filter-label").send_keys("any")
    page.wait(lambda: selected(page) == 8)
    page.wait(lambda: len(table(page)) == 8 and all("hammer" in text for text in table(page)))
    page.find("clear").click()
    assert page.find("filter-text").get_attribute("value") == ""
    page.wait(lambda: selected(page) == 0)
    page.find("filter-prediction").send_keys("another")
    page.wait(lambda: selected(page) >= 2)
    page.find("filter-confidence").send_keys("0")
    page.wait(lambda: selected(page) == 0)
    page.find("clear").click()
    page.find("filter-label").send_keys("no label")
    page.wait(lambda: selected(page) == 1 and table(page) == [EVIL])
    page.find("clear").click()


def test_the_map_with_lasso_search_confusion_and_export(page, explored):
    folder, _ = explored
    page.find("query").send_keys("hammer", Keys.ENTER)
    page.wait(lambda: selected(page) == 8)
    page.wait(lambda: len(table(page)) == 8)
    page.find("by").send_keys("meaning")
    page.find("query").clear()
    page.find("query").send_keys("the quiet saw is here", Keys.ENTER)
    page.wait(lambda: table(page)[:1] == ["the quiet saw is here"])
    page.find("table").find_element(By.TAG_NAME, "button").click()  # like this one
    page.wait(lambda: table(page)[:1] == ["the quiet saw is here"])
    page.find("clear").click()

    page.find("lasso").click()
    canvas = page.find("map")
    wide, high = canvas.size["width"] // 2 - 4, canvas.size["height"] // 2 - 4
    moves = ActionChains(page.driver, duration=20).move_to_element_with_offset(canvas, -wide, -high).click_and_hold()
    for x, y in ((2 * wide, 0), (0, 2 * high), (-2 * wide, 0)):
        moves.move_by_offset(x, y)
    moves.release().perform()
    page.wait(lambda: selected(page) == 49)
    page.find("lasso").click()

    page.find("csv").click()
    file = folder / "selection.csv"
    download = page.downloads / "selection.csv"
    rows = page.wait(lambda: download.exists() and list(csv.DictReader(download.read_text().splitlines())))
    assert not file.exists()
    assert len(rows) == 49
    assert {row["label"] for row in rows} == {*THINGS, ""}
    assert any(row["text"] == EVIL for row in rows)

    page.find("clear").click()
    check_filters(page)
    wrong = page.find("confusion").find_elements(By.CSS_SELECTOR, "td.wrong button")
    expected = int(wrong[0].text)
    wrong[0].click()
    page.wait(lambda: selected(page) == expected)
    for value in ("prediction", "confidence", "error", "cluster", "label"):
        page.find("color").send_keys(value)
        assert page.find("legend").find_elements(By.TAG_NAME, "button")
    assert page.find("before").is_displayed()
    page.find("before").click()
    assert page.find("before").get_attribute("aria-pressed") == "true"
    page.find("before").click()


def test_the_table_is_no_wider_than_its_box(page, explored):
    """Also with a word that is wider, and the fields of the filters can be read."""
    page.find("query").clear()
    page.find("by").send_keys("words")
    page.find("query").send_keys("onerror", Keys.ENTER)
    page.wait(lambda: table(page) == [EVIL])
    box = "document.querySelector('.scroll')"
    page.script(f"{box}.querySelector('tbody td').textContent = 'w'.repeat(300)")
    assert page.script(f"return {box}.scrollWidth <= {box}.clientWidth")
    for name in ("filter-label", "filter-prediction"):
        assert page.find(name).size["width"] >= 70
    assert page.find("below").size["height"] < 40
    page.find("clear").click()
    page.find("query").clear()


def test_points_are_read_by_pointing_and_clicking_and_escaped(page, explored):
    page.script("document.getElementById('clear').click()")
    place = page.script(
        "const canvas = document.getElementById('map');"
        "return fetch('/api/column/place', {headers: {'X-Nearfar-Token': new URLSearchParams(location.search).get('token')}})"
        ".then((answer) => answer.arrayBuffer()).then((buffer) => [...new Float32Array(buffer).slice(96, 98)])"
    )
    canvas = page.find("map")
    side = min(canvas.size["width"], canvas.size["height"]) * 0.47
    x, y = round(place[0] * side), round(-place[1] * side)
    ActionChains(page.driver).move_to_element_with_offset(canvas, x, y).pause(0.2).perform()
    page.wait(lambda: page.find("tip").is_displayed() and page.text("tip"))
    ActionChains(page.driver).click().perform()
    page.wait(lambda: selected(page) == 1)
    page.wait(lambda: table(page) == [EVIL])
    assert page.script("return document.images.length") == 0
    assert page.script("return document.title") == "data.jsonl – nearfar"
    ActionChains(page.driver).scroll_from_origin(
        __import__(
            "selenium.webdriver.common.actions.wheel_input", fromlist=["ScrollOrigin"]
        ).ScrollOrigin.from_element(canvas),
        0,
        -200,
    ).perform()
    page.find("fit").click()


@pytest.mark.parametrize("view", ["map", "fix"])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1240])
def test_light_and_dark_and_the_width_of_a_phone(page, explored, tmp_path, view, dark, width):
    page.find(f"tab-{view}").click()
    check_look(page, tmp_path, dark=dark, width=width)


def test_label_errors_are_changed_kept_and_dropped_by_keyboard(page, explored):
    folder, _ = explored
    page.find("tab-fix").click()
    before = (folder / "data.jsonl").read_bytes()
    count = page.wait(lambda: re.match(r"(\d+) suspected", page.text("fix-count")))
    assert int(count[1]) >= 2
    first = page.text("fix-text")
    assert first in (texts_of("fruit")[3], texts_of("tool")[6])
    page.press(Keys.ENTER)
    page.wait(lambda: page.text("fix-text") != first)
    page.press(Keys.BACKSPACE)
    page.wait(lambda: page.text("fix-text") == first)
    page.press(Keys.ENTER)
    second = page.wait(lambda: page.text("fix-text") != first and page.text("fix-text"))
    page.press(Keys.DELETE)
    page.wait(lambda: page.text("fix-text") != second)
    page.find("fix-export").click()
    page.wait(lambda: "the original is unchanged" in page.text("status"))
    changes = list(csv.DictReader((folder / "out" / "changes.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert {(row["text"], row["change"]) for row in changes} == {(first, "changed"), (second, "dropped")}
    assert len((folder / "out" / "labeled.jsonl").read_text().splitlines()) == 47
    assert (folder / "data.jsonl").read_bytes() == before


def test_no_request_left_the_machine_and_nothing_went_wrong(page, explored):
    """The last test: it looks at everything that the page has done in this module."""
    origins = {re.match(r"http://127\.0\.0\.1:\d+/", address) is not None for address in page.addresses()}
    assert origins == {True}
    assert page.errors() == []
