"""Check the built site: every link leads to a page and a heading, and nothing is loaded from elsewhere.

    python docs/check_site.py site

mkdocs checks links between Markdown files; this also sees what templates, plugins and hooks have written.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "srcset"}


class Page(HTMLParser):
    """The ids, links and loaded files of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if LOADED.get(tag, "") in values and values.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(values[LOADED[tag]])


def problems(site: Path) -> list[str]:
    """What is wrong with a built site, one line each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site}: there are no pages"]
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name} loads {url}" for url in page.loaded if urlsplit(url).netloc]
        if path.name == "404.html":  # its links begin at the root of a server
            continue
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(site.resolve() / target.relative_to(site.resolve())) or pages.get(target)
            if not target.is_file():
                found.append(f"{name} links to {link}, which does not exist")
            elif parts.fragment and known and parts.fragment not in known.ids and not parts.fragment.startswith("__"):
                found.append(f"{name} links to {link}, which has no such heading")
    return found


if __name__ == "__main__":
    lines = problems(Path(sys.argv[1]).resolve())
    sys.exit("\n".join(lines) if lines else None)
