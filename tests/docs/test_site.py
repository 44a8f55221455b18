"""The documentation as a site: it builds without a warning, links and spelling hold, and a browser shows it."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import sysconfig
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.docs.blocks import ROOT
from tests.docs.test_concepts import script
from tests.workbench.browser import BROWSER, DRIVER, REASON, Page

pytestmark = pytest.mark.slow
SHOWN = ("index", "tutorial/few-shot", "concepts/contrastive-losses", "reference/cli", "reference/api", "results",
         "papers/triple-entropy", "coming-from/sentence-transformers")  # fmt: skip
PHONE = 390
in_a_browser = pytest.mark.skipif(BROWSER is None or DRIVER is None, reason=REASON)


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that prints nothing."""

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The built documentation; a warning of mkdocs is an error."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site):
    """A server of the site, which search needs."""
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def page(tmp_path):
    """A browser without memory of what a reader has chosen before."""
    page = Page(tmp_path)
    yield page
    page.driver.quit()


def test_links_of_the_site_hold(site):
    check = script("check_site")
    assert check.problems(site) == []
    assert len(list(site.rglob("*.html"))) > 90


def test_words_are_spelled_correctly():
    """As in make docs."""
    [line] = [line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "/codespell " in line]
    program = Path(sysconfig.get_path("scripts")) / "codespell"
    done = subprocess.run([str(program), *line.split()[1:]], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["docstrings", "site_pages"])
def test_examples_of_the_hooks_hold(name):
    """They are outside of the folders whose doctests pytest collects."""
    failed, attempted = doctest.testmod(script(name))
    assert attempted >= 1
    assert failed == 0


def test_examples_of_docstrings_are_code(site):
    text = (site / "reference" / "api.html").read_text(encoding="utf-8")
    assert text.count('<span class="gp">&gt;&gt;&gt; </span>') > 60
    assert "<blockquote>" not in text
    assert ":meth:" not in text
    assert ":class:" not in text
    changed = script("docstrings").as_markdown("See :meth:`fit`.\n\n>>> [[1]][0][0]\n1\n\nMore.")
    assert changed == "See `fit`.\n\n```pycon\n>>> [[1]][0][0]\n1\n```\n\nMore."


def test_code_of_tables_has_no_backslashes(site):
    assert '<code class="short">RECIPE|FILE</code>' in (site / "reference" / "cli.html").read_text(encoding="utf-8")


@in_a_browser
def test_pages_fit_on_a_phone_and_load_nothing_from_elsewhere(address, page):
    """Wide tables, code and figures scroll in themselves."""
    page.width(PHONE)
    for name in SHOWN:
        page.driver.get(f"{address}/{name}.html")
        assert page.script("return document.documentElement.scrollWidth") <= PHONE, name
        assert page.errors() == [], name
    assert {url for url in page.addresses() if not url.startswith(address)} == set()


@in_a_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_site_follows_the_mode_of_the_system(address, page, dark):
    """Colors, and of each figure the one that is drawn for them."""
    page.dark(dark)
    page.driver.get(f"{address}/concepts/contrastive-losses.html")
    background = page.script("return getComputedStyle(document.body).backgroundColor")
    levels = [int(level) for level in re.findall(r"\d+", background)[:3]]
    assert max(levels) < 60 if dark else min(levels) > 235
    shown = page.script(
        "return [...document.querySelectorAll('img[src*=svg]')].filter(one => one.getClientRects().length)"
        ".map(one => one.src.split('#only-')[1])"
    )
    assert len(shown) >= 3
    assert set(shown) == {"dark" if dark else "light"}
    page.dark(not dark)
    page.driver.get(f"{address}/index.html")
    changed = page.script("return getComputedStyle(document.body).backgroundColor")
    assert changed != background


@in_a_browser
def test_search_finds_headings_and_keys(address, page):
    page.driver.get(f"{address}/index.html")
    for words, found in (("hard negatives", "concepts/hard-negatives.html"), ("in-batch negatives", "how-to/pairs.html"),
                         ("OMP_NUM_THREADS", "how-to/devices.html")):  # fmt: skip
        page.script("const field = document.querySelector('[data-md-component=search-query]');"
                    "field.focus(); field.value = ''")  # fmt: skip
        page.type(words)
        links = "return [...document.querySelectorAll('.md-search-result__link')].map(one => one.href).join(' ')"
        page.wait(lambda found=found, links=links: found in page.script(links), seconds=60)


@in_a_browser
def test_the_chosen_tab_is_kept_on_the_next_page(address, page):
    """A reader who has chosen Python sees Python."""
    page.driver.get(f"{address}/tutorial/few-shot.html")
    page.script("[...document.querySelectorAll('.tabbed-labels label')].find(one => one.innerText == 'Python').click()")
    chosen = (
        "return [...document.querySelectorAll('.tabbed-set')].map(one => [...one.querySelectorAll('.tabbed-labels label')]"
        "[[...one.querySelectorAll('input')].findIndex(input => input.checked)].innerText)"
    )
    assert set(page.script(chosen)) == {"Python"}
    page.driver.get(f"{address}/tutorial/semantic-search.html")
    page.wait(lambda: set(page.script(chosen)) == {"Python"}, seconds=20)
