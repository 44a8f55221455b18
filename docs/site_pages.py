"""Pages of the site that are files of the repository: a hook of mkdocs (``hooks`` in mkdocs.yml).

The changelog, the guide for contributors and the results of the benchmarks are written where a reader of the repository
looks for them. On the site they are pages like the others, with their links changed: to a page of the site where there
is one, to plain text otherwise.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "results/speed.md": "benchmarks/RESULTS.md",
    "results/accuracy.md": "benchmarks/STUDIES.md",
    "results/reliability.md": "benchmarks/RELIABILITY.md",
    "results/server.md": "benchmarks/SERVE.md",
    "results/explore.md": "benchmarks/EXPLORE.md",
    "results/labels.md": "benchmarks/LABELING.md",
    "results/archive.md": "benchmarks/ARCHIVE.md",
}
"""The page of the site, and the file that it is."""
README_RESULTS = "<!-- results: readme -->"
"""Where the section "Results" of the README is inserted."""
_LINK = re.compile(
    r"^ *```.*?^ *```|`[^`\n]+`|(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)", re.MULTILINE | re.DOTALL
)
"""Code, which stays as it is, or a link."""
_ROW, _SPAN = re.compile(r"^\|.*$", re.MULTILINE), re.compile(r"`[^`\n]+`")
_SHORT = re.compile(r"<code>([^<]{1,20})</code>")


def moved(text: str, source: str, page: str) -> str:
    """The text of a file as a page of the site, with links that lead to pages of the site.

    Links of pages in ``docs`` that lead elsewhere are left to mkdocs, which refuses them.

    >>> moved("[Why](docs/why/resume.md#how) [code](src/x.py) [web](https://a.b)", "README.md", "results.md")
    '[Why](why/resume.md#how) code [web](https://a.b)'
    """

    def replaced(found: re.Match[str]) -> str:
        target, _, anchor = (found["target"] or "").partition("#")
        if not target or target.startswith(("https://", "mailto:")):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        inside = {file: name for name, file in PAGES.items()}.get(path)
        if inside is None and source.startswith("docs/"):
            return found[0]
        if inside is None and path.startswith("docs/") and path.endswith(".md"):
            inside = path.removeprefix("docs/")
        if inside is None:
            return found["text"]
        link = posixpath.relpath(inside, posixpath.dirname(page) or ".")
        return f"[{found['text']}]({link}{'#' if anchor else ''}{anchor})"

    return _LINK.sub(replaced, text)


def plain_bars(text: str) -> str:
    r"""A page with plain bars in the code of tables: GitHub wants them escaped, mkdocs would show the backslash.

    >>> plain_bars(r"| `a\|b` | c\|d |")
    '| `a|b` | c\\|d |'
    """
    return _ROW.sub(lambda row: _SPAN.sub(lambda code: code[0].replace(r"\|", "|"), row[0]), text)


def results_of_the_readme() -> str:
    """The section "Results", without its heading."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [section] = re.findall(r"^## Results\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    return str(section).strip()


def on_files(files: Any, config: Any) -> Any:
    """Add the files to the pages of the site."""
    from mkdocs.structure.files import File

    for page, source in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=moved(text, source, page)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Insert the results of the README, and lead links to files of the repository to their pages."""
    uri = page.file.src_uri
    markdown = plain_bars(markdown)
    if uri in PAGES:
        return markdown
    inserted = moved(results_of_the_readme(), "README.md", uri) if README_RESULTS in markdown else ""
    parts = [moved(part, f"docs/{uri}", uri) for part in markdown.split(README_RESULTS)]
    return inserted.join(parts)


def on_page_content(html: str, **_: Any) -> str:
    """Mark code of few characters, which docs/site.css keeps on one line in tables."""
    return _SHORT.sub(r'<code class="short">\1</code>', html)
