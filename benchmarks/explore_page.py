"""The page of ``nearfar explore`` with many texts: time to the first paint, frames while panning, memory.

    python -m benchmarks.explore_page                    # 100,000 texts
    python -m benchmarks.explore_page --texts 20000
    python -m benchmarks.explore_page --write            # and append the figures to benchmarks/EXPLORE.md

It needs Chromium and chromedriver, and the extra ``dev``. The texts are made of random words and embedded with the toy
encoder, because their number is what counts. The page is opened when everything is computed. Frames are those that
Chromium draws without a graphics card.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import describe, load
from benchmarks.tables import markdown
from nearfar.seeds import generator

WORDS = ("parcel", "invoice", "lamp", "late", "broken", "charged", "twice", "table", "door", "refund", "green", "where")
SECONDS = 5
PAGE = Path(__file__).parent / "EXPLORE.md"
HEADING = """# The page of `nearfar explore` with many texts

Appended by `python -m benchmarks.explore_page --write`, one section a run.
"""
PAN = f"""
const [canvas, done] = [document.getElementById("map"), arguments[0]];
const send = (kind, x, y) => canvas.dispatchEvent(new PointerEvent(kind,
  {{ clientX: x, clientY: y, pointerId: 1, bubbles: true }}));
canvas.setPointerCapture = () => {{}};
const box = canvas.getBoundingClientRect();
const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
const before = {{ ...nearfarFrames }};
const began = performance.now();
const gaps = [];
let last = began;
send("pointerdown", x, y);
function step(now) {{
  gaps.push(now - last);
  last = now;
  send("pointermove", x + 120 * Math.sin((now - began) / 300), y + 120 * Math.cos((now - began) / 300));
  if (now - began < {1000 * SECONDS}) {{ requestAnimationFrame(step); return; }}
  send("pointerup", x, y);
  gaps.sort((one, other) => one - other);
  const frames = nearfarFrames.count - before.count;
  done({{ frames: frames / (now - began) * 1000, slow: gaps[Math.floor(0.99 * gaps.length)],
    draw: (nearfarFrames.milliseconds - before.milliseconds) / frames }});
}}
requestAnimationFrame(step);
"""


def main(arguments: Sequence[str] | None = None) -> int:
    from tests.workbench.browser import Page, server

    parser = argparse.ArgumentParser(prog="python -m benchmarks.explore_page", description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--write", action="store_true", help=f"append the figures to {PAGE.name}")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_texts(folder / "texts.jsonl", asked.texts)
        words = ("explore", "toy", "texts.jsonl", "--map", "pca", "--out", "project")
        with server(*words, cwd=folder) as (process, url):
            page = Page(folder / "profile")
            try:
                page.driver.set_script_timeout(60)
                page.open(url)
                page.wait(lambda: page.script("return document.body.dataset.ready") == "true", 3_600)
                text = table(measure(page, process.pid, url, asked.texts))
            finally:
                page.driver.quit()
    sys.stdout.write(text + "\n")
    if asked.write:
        before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else HEADING
        PAGE.write_text(f"{before}\n## {asked.texts:,} texts\n\n{text}\n", encoding="utf-8")
    return 0


def write_texts(path: Path, count: int) -> None:
    """Sentences of random words, half of them labeled."""
    draw = generator(0, "explore", "page")
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            words = [WORDS[place] for place in draw.integers(len(WORDS), size=int(draw.integers(4, 14)))]
            label = {"label": words[0]} if number % 2 else {}
            file.write(json.dumps({"text": f"{' '.join(words)} {number}", **label}) + "\n")


def measure(page: Any, process: int, url: str, count: int) -> dict[str, str]:
    """Open the page again, pan the map, and look at memory."""
    page.driver.get("about:blank")
    began = time.perf_counter()
    page.driver.get(url)
    page.wait(lambda: page.find("map").get_attribute("data-points") == str(count))
    drawn = time.perf_counter() - began
    paint = page.script(
        "return performance.getEntriesByType('paint').find((each) => each.name === 'first-contentful-paint').startTime"
    )
    received = page.script(
        "return performance.getEntriesByType('resource').reduce((sum, each) => sum + each.transferSize, 0)"
    )
    pan = page.driver.execute_async_script(PAN)
    heap = page.script("return performance.memory.usedJSHeapSize")
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    resident = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    return {
        "texts": f"{count:,}",
        "first paint": f"{paint / 1000:.2f} s",
        "all points drawn": f"{drawn:.2f} s",
        "received by the page": f"{received / 1e6:.1f} MB",
        "frames a second while panning": f"{pan['frames']:.0f}",
        "one frame, drawing": f"{pan['draw']:.1f} ms",
        "time between frames, 99 %": f"{pan['slow']:.0f} ms",
        "memory of the page (JavaScript)": f"{heap / 1e6:.0f} MB",
        "memory of the server": f"{resident / 1000:.0f} MB",
    }


def table(values: dict[str, str]) -> str:
    """The figures, and the machine, as Markdown."""
    machine = "\n".join(f"- {name}: {value}" for name, value in describe(threads=None, load=load()))
    return f"{machine}\n\n{markdown(['Measure', 'Value'], [list(each) for each in values.items()])}"


if __name__ == "__main__":
    sys.exit(main())
