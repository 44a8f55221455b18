"""The first screen of the README: its results are those of the files, and its picture can be drawn again."""

from __future__ import annotations

import math
import re
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest
from benchmarks.comparisons import COMPARISONS
from benchmarks.few_labels import Case, Pair, Results

from benchmarks import embedding_map, readme

README = readme.README.read_text(encoding="utf-8")


def pair(ours: float, theirs: float, n: int = 8, data: str = "cr", seed: int = 0) -> Pair:
    return Pair(Case(data, n, seed), {"accuracy": ours}, {"accuracy": theirs, "version": "1.2.0"})


# Results


def test_the_results_of_the_readme_are_those_of_the_files():
    assert readme.with_results(README) == README, "run make pages"


def test_the_section_stays_below_its_heading():
    text = readme.with_results("# nearfar\n\n## Results\n\nold\n\n## Install\n\nnew\n")
    assert text.startswith("# nearfar\n\n## Results\n\n**Few labels.**")
    assert text.endswith("\n\n## Install\n\nnew\n")
    assert "\nold\n" not in text
    with pytest.raises(SystemExit, match="no heading"):
        readme.with_results("# nearfar\n")


def test_the_interval_is_that_of_students_t():
    """By hand: differences of 1, 2 and 6 points have the mean 3 and the standard error sqrt(7 / 3)."""
    found = [pair(0.51, 0.5), pair(0.52, 0.5), pair(0.56, 0.5)]
    reach = 4.302652729911275 * math.sqrt(7 / 3)  # the 0.975 quantile for two degrees of freedom
    assert readme.interval(found) == f"+3.0 ({3 - reach:+.1f} to {3 + reach:+.1f})"


def test_the_table_counts_draws_by_size():
    table = readme.few_labels([pair(0.6, 0.5), pair(0.4, 0.5), pair(0.7, 0.7, n=16), pair(0.9, 0.7, n=16, data="trec")])
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert rows[1].startswith("| 8 | 2 | 50.0 | 50.0 | +0.0 (")
    assert rows[1].endswith("| 1, 0, 1 | `--n 8 --names none` |")
    assert rows[2].startswith("| 16 | 2 | 80.0 | 70.0 | +10.0 (")
    assert rows[3].startswith("| all | 4 | 65.0 | 60.0 | +5.0 (")
    assert "the same draws of TREC and CR:" in " ".join(table.split())


def test_draws_are_those_of_the_present_default_once_all_of_them_are_measured(tmp_path):
    present, older = Results(tmp_path / "present.jsonl"), Results(tmp_path / "older.jsonl")
    for seed in (0, 1):
        older.add({"data": "cr", "n": 8, "seed": seed})
    present.add({"data": "cr", "n": 8, "seed": 0})
    assert readme.unnamed(present, older) is older
    present.add({"data": "imdb", "n": 8, "seed": 0})
    assert readme.unnamed(present, older) is older
    present.add({"data": "cr", "n": 8, "seed": 1})
    assert readme.unnamed(present, older) is present


def test_class_names_are_compared_on_the_draws_that_have_both():
    plain = [pair(0.5, 0.5), pair(0.6, 0.5, seed=1), pair(0.9, 0.1, seed=2)]
    named = [pair(0.6, 0.5), pair(0.8, 0.5, seed=1), pair(0.9, 0.5, seed=3)]
    text = " ".join(readme.class_names(named, plain).split())
    assert "On 2 of these draws, 8 texts per class of CR, nearfar was also given the names" in text
    assert "accuracy 70.0, without names 55.0, SetFit without names 50.0; with names the difference" in text
    assert readme.class_names(named[:1], plain) == ""


HEADER = {
    "kind": "turn", "processor": "One, 2 cores; avx2", "memory_gb": 24, "versions": {}, "commit": "abc",
    "threads_asked": None, "quick": False, "texts": "SST-2", "base": None, "kept": True, "why": "", "quality": {},
}  # fmt: skip


def turns(
    day: int, rates: dict[str, tuple[float, ...]], *, busy: bool = False, name: str = "embed"
) -> list[dict[str, object]]:
    """The lines of one run: the rates of each contender by round; for a comparison in ms, milliseconds."""
    key = "milliseconds" if COMPARISONS[name].unit == "ms" else "texts_per_second"
    shared = {
        **HEADER, "run": f"2026-01-0{day}T00:00:00+00:00", "busy": busy, "comparison": name,
        "processor": f"Chip {day}, 2 cores; avx2",
    }  # fmt: skip
    found = [{**shared, "kind": "notes", "contenders": list(rates), "notes": []}]
    for contender, values in rates.items():
        for round_, value in enumerate(values, start=1):
            memory = 500 if contender == "nearfar" else 1000
            found.append({**shared, "contender": contender, "round": round_, key: value, "peak_rss_mb": memory})
    return found


def both(ours: float, *theirs: float) -> dict[str, tuple[float, ...]]:
    return {"nearfar": (ours,) * 3, "sentence-transformers": theirs or (200.0,) * 3}


def test_speeds_are_those_of_the_latest_undisturbed_run():
    text = readme.speed([*turns(1, both(300.0)), *turns(2, both(400.0)), *turns(3, both(50.0), busy=True)])
    assert (
        "| Compute embeddings | 400 texts/s | 200 texts/s, sentence-transformers | 2.00 x (2.00 to 2.00) | - | 500 / 1,000 "
        "| `embed` |" in text
    )
    assert "300" not in text
    limited = [{**line, "processor": "Chip limited to AVX2"} for line in turns(4, both(70.0))]
    assert readme.speed([*turns(2, both(400.0)), *limited]) == readme.speed(turns(2, both(400.0)))
    assert "Chip 2, 2 cores, avx2; 2026-01-02." in text
    assert all(len(line) <= 120 for line in text.splitlines() if not line.startswith("|"))


def test_speeds_have_a_row_for_each_library_with_its_defaults_and_its_best_settings():
    """Fine-tuning beside two libraries, and the whole command in seconds."""
    tuned = {
        "nearfar": (400.0,) * 3,
        "Trainer": (100.0,) * 3,
        "Trainer, grouped by length, bf16": (200.0,) * 3,
        "sentence-transformers": (160.0,) * 3,
        "sentence-transformers, bf16": (250.0,) * 3,
        "nearfar, fp32": (300.0,) * 3,
    }
    whole = {"nearfar": (8_000.0,) * 3, "nearfar --no-estimate": (6_000.0,) * 3, "SetFit": (40_000.0,) * 3}
    rows = readme.speed([*turns(1, tuned, name="finetune"), *turns(1, whole, name="few-labels")]).splitlines()
    assert [row for row in rows if row.startswith("| ")][1:] == [
        "| Fine-tune a classifier | 400 texts/s | 100 texts/s, transformers Trainer | 4.00 x (4.00 to 4.00) "
        "| 2.00 x (2.00 to 2.00) | 500 / 1,000 | `finetune` |",
        "| Fine-tune a classifier | 400 texts/s | 160 texts/s, sentence-transformers | 2.50 x (2.50 to 2.50) "
        "| 1.60 x (1.60 to 1.60) | 500 / 1,000 | `finetune` |",
        "| Train on 64 texts, the whole command | 8 s | 40 s, SetFit | 5.00 x (5.00 to 5.00) | - | 500 / 1,000 "
        "| `few-labels` |",
    ]
    assert set(readme.SPEEDS) <= set(COMPARISONS)


def test_a_ratio_that_is_not_known_well_is_not_quoted():
    text = readme.speed(turns(1, both(300.0, 100.0, 200.0, 300.0)))
    assert "|" not in text
    assert "benchmarks/RESULTS.md" in text


def test_a_library_without_a_turn_that_counts_is_left_out():
    lines = [line for line in turns(1, both(300.0)) if line.get("contender") != "sentence-transformers"]
    assert "|" not in readme.speed(lines)


# Picture


def marks(text: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(text).findall("{http://www.w3.org/2000/svg}circle")


@pytest.mark.parametrize("theme", embedding_map.THEMES)
def test_the_picture_of_the_readme_is_there_and_says_what_the_readme_says(theme):
    name = f"embedding-map-{theme}.svg"
    text = (embedding_map.FOLDER / name).read_text(encoding="utf-8")
    title = unescape(re.search(r"<title>(.*)</title>", text)[1])

    assert f"docs/images/{name}" in README
    assert title.partition("after training. ")[2] in " ".join(README.split())
    assert f"{(len(marks(text)) - 8) // 2} support messages" in README


def test_both_themes_have_the_same_marks_in_other_colors():
    generator = np.random.default_rng(0)
    labels = ["a & b", "c"] * 6
    panels = [embedding_map.panel(name, generator.normal(size=(12, 5)).astype(np.float32), labels) for name in "xy"]
    light, dark = (embedding_map.draw(panels, labels, theme) for theme in embedding_map.THEMES.values())

    assert len(marks(light)) == 2 * 12 + 2
    assert re.sub("#[0-9a-f]{6}", "", light) == re.sub("#[0-9a-f]{6}", "", dark)
    assert not set(re.findall("#[0-9a-f]{6}", light)) & set(re.findall("#[0-9a-f]{6}", dark))
    box = ElementTree.fromstring(light).attrib
    for mark in marks(light):
        assert 0 <= float(mark.attrib["cx"]) <= float(box["width"])
        assert 0 <= float(mark.attrib["cy"]) <= float(box["height"])


@pytest.mark.slow
def test_the_command_draws_the_picture(tmp_path, capsys):
    """The whole way with the toy encoder: training, embeddings, maps."""
    assert embedding_map.main(["--encoder", "toy", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.strip()

    for theme in embedding_map.THEMES:
        text = (tmp_path / f"embedding-map-{theme}.svg").read_text(encoding="utf-8")
        assert len(marks(text)) == 2 * 160 + 8
        assert printed in unescape(text)
