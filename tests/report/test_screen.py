"""The page in a real browser: it is drawn in light and dark mode, and loads nothing."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from urllib.parse import urlsplit

import pytest

from nearfar.report import render_page

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium"),
]
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking",
    "--disable-component-update", "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND",
]  # fmt: skip
BROWSERS_OWN = (".google.com", ".gvt1.com", ".googleapis.com")
DARK = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]


def browse(folder, *flags):
    profile = folder / "profile"
    done = subprocess.run(
        [str(BROWSER), *FLAGS, f"--user-data-dir={profile}", *flags, (folder / "report.html").as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def asked(log):
    """The addresses that were to be opened over the net, without those that the browser asks for on any page."""
    text = log.read_text(encoding="utf-8", errors="replace")
    found = set(re.findall(r'"url":"(https?://[^"]+)"', text))
    return {url for url in found if not (urlsplit(url).hostname or "").endswith(BROWSERS_OWN)}


@pytest.fixture(scope="module")
def folder(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("screen")
    (folder / "report.html").write_text(render_page(source), encoding="utf-8")
    return folder


@pytest.mark.parametrize("dark", [False, True])
def test_a_screenshot_shows_ink_on_paper_in_light_and_light_on_ink_in_dark(folder, dark):
    from PIL import Image

    shot = folder / f"shot-{dark}.png"
    browse(folder, "--window-size=1240,1600", f"--screenshot={shot}", *(DARK if dark else []))
    with Image.open(shot) as image:
        grey = image.convert("L")
        assert grey.size == (1240, 1600)
        counts = grey.histogram()
    paper = counts.index(max(counts))
    assert paper < 40 if dark else paper > 240
    inked = sum(counts[level] for level in range(256) if abs(level - paper) > 100)
    assert 0.005 < inked / sum(counts) < 0.3


def test_scripts_make_tabs_and_the_texts_stay_texts(folder):
    drawn = browse(folder, "--dump-dom")
    assert drawn.count('role="tablist"') >= 6
    assert re.search(r"<title>Objectives on few labels</title>", drawn)
    assert "hacked" in drawn  # as a text to read
    assert "data-tip=" in drawn
    hidden = re.findall(r'<div class="tab"[^>]*hidden', drawn)
    assert len(hidden) > 10


def test_no_request_leaves_for_the_net_and_the_policy_blocks_nothing_of_ours(folder):
    log = folder / "net.json"
    browse(folder, f"--log-net-log={log}", "--virtual-time-budget=2000", "--dump-dom")
    assert asked(log) == set()
    page = (folder / "report.html").read_text(encoding="utf-8")
    planted = page.replace("<main>", '<main><img src="http://planted.example/x.png">')
    blocked = folder / "planted"
    blocked.mkdir()
    (blocked / "report.html").write_text(planted, encoding="utf-8")
    net = blocked / "net.json"
    browse(blocked, f"--log-net-log={net}", "--virtual-time-budget=2000", "--dump-dom")
    assert not [url for url in asked(net) if "planted" in url]
    open_page = re.sub(r"<meta http-equiv[^>]+>", "", planted)
    (blocked / "report.html").write_text(open_page, encoding="utf-8")
    browse(blocked, f"--log-net-log={net}", "--virtual-time-budget=2000", "--dump-dom")
    assert "http://planted.example/x.png" in asked(net)  # the log would have shown it


def test_it_can_be_printed_with_every_tab(folder):
    paper = folder / "report.pdf"
    browse(folder, f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", content)) >= 8


MEASURE = """
const page = document.querySelector("iframe").contentDocument;
const texts = [...page.querySelectorAll("svg.chart text")].filter((one) => one.getClientRects().length);
const sizes = texts.map((one) => {
  const scale = one.getScreenCTM();
  return [parseFloat(getComputedStyle(one).fontSize) * Math.hypot(scale.a, scale.b), one.textContent];
}).sort((one, other) => one[0] - other[0]);
const verdicts = [...page.querySelectorAll("[data-title=Verdict]")].map((one) => one.getBoundingClientRect());
document.querySelector("output").textContent = JSON.stringify({
  width: page.documentElement.scrollWidth, smallest: sizes[0], texts: sizes.length,
  verdicts: verdicts.length, right: Math.max(...verdicts.map((box) => box.right)),
});
"""


def test_on_a_phone_letters_are_large_enough_and_verdicts_are_visible(folder, tmp_path):
    page = re.sub(r"<meta http-equiv[^>]+>", "", (folder / "report.html").read_text(encoding="utf-8"))
    frame = f'<iframe style="width:390px;height:800px;border:0" srcdoc="{escape(page)}"></iframe><output></output>'
    script = f"<script>document.querySelector('iframe').onload = () => {{{MEASURE}}};</script>"
    (tmp_path / "report.html").write_text(f"<!doctype html><body>{frame}{script}", encoding="utf-8")
    drawn = browse(tmp_path, "--virtual-time-budget=3000", "--dump-dom")
    found = re.search(r"<output>(.+?)</output>", drawn)
    assert found, drawn[-2000:]
    measured = json.loads(unescape(found[1]))
    assert measured["width"] <= 390  # nothing but tables and charts is scrolled
    assert measured["texts"] > 100
    assert measured["smallest"][0] >= 9, measured["smallest"]
    assert measured["verdicts"] == 8
    assert measured["right"] <= 390
