"""The page: whole, escaped, silent towards the outside, and honest about what it lacks."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from nearfar.errors import OutputError
from nearfar.experiments.records import MAP, PREDICTIONS, TRIALS
from nearfar.report import Source, read_source, render_page
from nearfar.report.comparison import side_by_side
from nearfar.report.page import SECTIONS
from nearfar.report.predictions import total_confusion
from nearfar.report.sources import dev_scores, losses, total_conflicts
from tests.report.studies import CONTENDERS, EVIL, write_study

VOID = {"meta", "br"}
NAMES = (
    "scores", "differences", "size", "classes", "curves", "per-class", "confusion", "hard", "confidence", "calibration",
    "mistakes", "map", "geometry", "labels", "conflicts", "cost", "failed", "settings",
)  # fmt: skip
OF_OTHERS = ("tasks", "sets", "cosines", "layers")
"""Sections that a study of classes has nothing for."""


class Reader(HTMLParser):
    """Reads a page strictly: every element is closed where it should be."""

    def __init__(self, page):
        super().__init__()
        self.open, self.ids, self.attributes, self.texts = [], [], [], {}
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}>"

    def handle_data(self, data):
        if self.ids:
            self.texts[self.ids[-1]] = self.texts.get(self.ids[-1], "") + data


@pytest.fixture(scope="module")
def page(source):
    return render_page(source)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A little study that tests may change."""
    folder = tmp_path_factory.mktemp("small")
    write_study(folder, sets=("cr",), rows=20, contenders={"cross-entropy": 2.0, "supcon": 2.4})
    return folder


def test_every_section_is_there_in_its_order_and_linked(page):
    read = Reader(page)
    assert [name for name in read.ids if name in (*NAMES, *OF_OTHERS)] == [*NAMES, *OF_OTHERS]
    assert len(SECTIONS) == len(NAMES) + len(OF_OTHERS)
    links = [value for tag, name, value in read.attributes if (tag, name) == ("a", "href")]
    assert links == [*(f"#{name}" for name in NAMES), "#absent", "#top"]


def test_every_picture_is_sound_and_says_what_it_shows(page):
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(pictures) > 40
    for picture in pictures:
        tree = ElementTree.fromstring(picture)
        assert tree.attrib["aria-label"]
        assert not re.search(r"\b(nan|inf)\b", picture)


def test_texts_cannot_become_markup(page):
    assert EVIL not in page
    assert page.count("<script>") == 1
    assert "&lt;script&gt;document.title" in page
    assert "&lt;lower the learning rate&gt;" in page


def test_nothing_is_asked_from_outside(page):
    assert not re.search(r"https?:|//[a-z]|@import|url\(|src=", page)
    assert not {tag for tag, _, _ in Reader(page).attributes} & {"link", "img", "iframe", "object", "embed"}


def test_the_policy_names_style_and_script_by_their_hashes_and_nothing_else(page):
    policy = re.search(r'Security-Policy" content="([^"]+)"', page)[1]
    for tag in ("style", "script"):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert not re.search(r'<[^>]+ (style|on[a-z]+)="', page.split("</style>")[1].split("<script>")[0])


def test_the_head_says_what_was_compared_on_what_and_with_which_verdict(page):
    head = re.sub(r"<[^>]+>", "", page[page.index("<header") : page.index("</header>")])
    assert "triple-entropy and supcon against the baseline cross-entropy" in head
    assert "on trec 100, trec 1,000, cr 1,000 and intents 1,000: weighted F1 over 2 seeds × 5 folds." in head
    assert "Of 4 data sets, supcon is better than cross-entropy on" in head
    assert "119 of 120" in head


def test_the_failed_trial_is_shown_with_its_reason(page):
    text = Reader(page).texts["failed"]
    assert "1 of 120 trials failed" in text
    assert "training met NaN at step 12 <lower the learning rate>" in text


def test_the_planted_label_errors_are_suspected(page):
    text = Reader(page).texts["labels"]
    assert "text 0 about " in text
    assert "text 5 about " in text


def test_the_confusion_is_the_sum_of_the_predictions(source, study):
    cell = ("trec", 100)
    labels = source.labels(cell)
    expected = np.zeros((6, 6), dtype=int)
    for path in sorted((study / TRIALS).glob("trec-100-supcon-*")):
        for line in (path / PREDICTIONS).read_text().splitlines():
            row = json.loads(line)
            expected[labels.index(row["label"]), labels.index(row["predicted"])] += 1
    assert total_confusion(source, cell, "supcon").tolist() == expected.tolist()


def test_runs_that_know_other_classes_are_added_by_name(source):
    cell, order = ("trec", 1000), [3, 1, 0, 2, 5, 4]
    [one, two, *_] = source.runs(cell, "supcon")
    turned = replace(
        two, labels=[two.labels[at] for at in order], confusion=np.array(two.confusion)[np.ix_(order, order)].tolist()
    )
    assert turned.confusion != two.confusion
    plain, mixed = (Source(source.plan, runs) for runs in ((one, two), (one, turned)))
    assert total_confusion(mixed, cell, "supcon").tolist() == total_confusion(plain, cell, "supcon").tolist()


def test_conflicts_are_counted_over_all_steps_and_runs(page):
    entries = (
        [{"surgery": {"a / b": {"steps": 1, "conflicts": 1, "cosine": -0.5}}}, {"step": 2},
         {"surgery": {"a / b": {"steps": 1, "conflicts": 0, "cosine": 0.1}, "a / c": {"steps": 0, "conflicts": 0, "cosine": None}}}]
    )  # fmt: skip
    found = total_conflicts(entries)
    assert found["a / b"] == {"steps": 2, "conflicts": 1, "cosine": pytest.approx(-0.2)}
    assert found["a / c"] == {"steps": 0, "conflicts": 0, "cosine": None}
    assert "sst / sts" in Reader(page).texts["conflicts"]


def test_the_steps_of_stages_follow_each_other():
    journal = [
        {"stage": 1, "kind": "step", "step": 1, "loss": 3.0},
        {"stage": 1, "kind": "step", "step": 2, "loss": 2.0},
        {"stage": 2, "kind": "step", "step": 1, "loss": 1.0},
        {"stage": 2, "kind": "evaluation", "step": 1, "scores": {"accuracy": 0.5}, "metric": "accuracy"},
        {"stage": 2, "kind": "step", "step": 2, "loss": None},
    ]
    assert losses(journal) == [(1, 3.0), (2, 2.0), (3, 1.0)]
    assert dev_scores(journal, "f1_weighted") == [(3, 0.5)]


def test_marks_of_one_size_stand_beside_each_other_inside_the_picture():
    moved = side_by_side([10, 10, 10, 200, 390], 0, 400, gap=20)
    assert moved == [0, 20, 40, 200, 390]
    assert max(side_by_side([400] * 50, 0, 400)) <= 400 + 1e-9


def test_a_trial_without_predictions_and_map_leaves_lines_that_say_why(small, tmp_path):
    import shutil

    copy = shutil.copytree(small, tmp_path / "copy")
    for path in copy.glob(f"{TRIALS}/*/*"):
        if path.name in (PREDICTIONS, MAP):
            path.unlink()
    read = Reader(render_page(read_source(copy)))
    for name, why in {
        "confidence": "No run left predictions", "calibration": "No run left predictions", "mistakes": "No run left predictions", "map": "No trial kept vectors",
        "labels": "No trial kept vectors", "classes": "all data sets have 2 classes", "hard": "more than 4 classes",
        "conflicts": "No journal has conflicts", "failed": "None of 20 trials failed",
    }.items():  # fmt: skip
        assert why in read.texts[name]
    assert {"scores", "differences", "curves", "per-class", "confusion", "cost"} <= set(read.ids)


def test_the_same_study_gives_the_same_page(small):
    assert render_page(read_source(small)) == render_page(read_source(small))


def test_a_study_that_has_hardly_begun_is_shown_as_far_as_it_goes(tmp_path):
    write_study(tmp_path, sets=("cr",), rows=10, waiting=29)
    page = render_page(read_source(tmp_path))
    Reader(page)
    assert "No verdict yet" in page
    assert "29 trials of 30 have not run yet" in page


def test_a_study_whose_trials_all_failed_shows_their_reasons(tmp_path):
    write_study(tmp_path, sets=("cr",), rows=10, seeds=(2,), folds=2, failed=6)
    page = render_page(read_source(tmp_path))
    Reader(page)
    assert "6 of 6 trials failed" in page
    assert "No trial finished." in page


def test_a_contender_without_rival_is_shown_alone(tmp_path):
    write_study(tmp_path, sets=("cr",), rows=10, contenders={"supcon": 2.0})
    page = render_page(read_source(tmp_path))
    Reader(page)
    assert "<b>supcon</b> alone" in page


def test_pairs_without_classes_have_tables_and_reasons(small):
    source = read_source(small)
    pairs = Source(
        replace(source.plan, metric="spearman", data=tuple(replace(one, kind="scores") for one in source.plan.data)),
        tuple(
            replace(one, metric="spearman", scores={"spearman": one.score}, labels=[], per_class={}, confusion=[],
                    geometry={}, kind="scores", folder=None if one.folder is None else one.folder.parent)
            for one in source.records
        ),
    )  # fmt: skip
    page = render_page(pairs)
    read = Reader(page)
    assert "Spearman’s ρ × 100" in page
    for name in ("per-class", "confusion", "geometry", "map", "mistakes"):
        assert read.texts[name]


def test_a_folder_without_study_or_run_is_refused_with_a_remedy(tmp_path):
    with pytest.raises(OutputError, match=r"neither a study .* nor a finished run"):
        read_source(tmp_path)
    with pytest.raises(OutputError, match="there is no such folder"):
        read_source(tmp_path / "nowhere")
    write_study(tmp_path, sets=("cr",), waiting=30)
    with pytest.raises(OutputError, match="no trial of the study has ended yet"):
        read_source(tmp_path)


def test_the_fixture_is_what_the_tests_take_it_for(source):
    assert tuple(CONTENDERS) == source.contenders
    assert len(source.records) == 120
