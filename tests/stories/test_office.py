"""People with files from the office: an Excel export, several labels, ratings, German and Chinese texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.stories.desk import ROWS, WORDS, nearfar, read_csv, works, write_csv

openpyxl = pytest.importorskip("openpyxl")


@pytest.fixture(autouse=True)
def _desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_workbook(path: str, rows: list[tuple[object, ...]]) -> None:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)


def test_a_support_lead_labels_an_excel_export() -> None:
    """She has labeled a few tickets, and wants the other ones labeled in a sheet that joins back by ticket number."""
    labeled = [("Ticket No.", "Message", "Category", "Price (€)")]
    labeled += [(1000 + number, text, label, 9.5) for number, (text, label) in enumerate(ROWS)]
    write_workbook("tickets.xlsx", [*labeled, (None, None, None, None)])
    new = [(2000 + number, f"hello, {text}!", number / 2) for number, (text, _) in enumerate(ROWS[:30])]
    write_workbook("new.xlsx", [("Ticket No.", "Message", "Hours"), *new[:15], (2999, None, 1.0), *new[15:]])

    works("check", "tickets.xlsx", "--text", "Message", "--label", "Category", "--encoder", "toy")
    works("train", "tickets.xlsx", "--text", "Message", "--label", "Category", "--encoder", "toy", "--out", "model")
    works("predict", "model", "new.xlsx", "--invalid", "drop", "--out", "done.xlsx")  # the columns are remembered

    sheet = list(openpyxl.load_workbook("done.xlsx").active.values)
    rows = [dict(zip(sheet[0], row, strict=True)) for row in sheet[1:]]
    assert [row["Ticket No."] for row in rows] == [*range(2000, 2015), 2999, *range(2015, 2030)]
    assert all(row["label"] in WORDS for row in rows if row["Ticket No."] != 2999)
    assert rows[15]["label"] is None  # the empty message is still in its place
    assert rows[0]["Hours"] == 0.0
    estimate = json.loads(Path("model/metrics.json").read_text())["estimate"]  # and she knows how good it is
    assert 0 <= estimate["low"] <= estimate["value"] <= estimate["high"] <= 1
    assert estimate["rows"] == len(ROWS)


def test_texts_with_several_labels() -> None:
    """Tags are in one cell, as people type them."""
    tags = {"delivery": "shipping; complaint", "payment": "money", "defect": "complaint"}
    write_csv(Path("tagged.csv"), ("text", "tags"), [(text, tags[label]) for text, label in ROWS])
    works(
        "train", "tagged.csv", "--label", "tags", "--label-separator", ";", "--encoder", "toy", "--no-estimate",
        "--out", "model",
    )  # fmt: skip
    works("predict", "model", "tagged.csv", "--out", "out.csv")
    rows = read_csv(Path("out.csv"))
    assert [row["text"] for row in rows] == [text for text, _ in ROWS]
    assert [row["tags"] for row in rows] == [tags[label] for _, label in ROWS]
    known = {"shipping", "complaint", "money"}
    predicted = [{tag.strip() for tag in row["labels"].split(";") if tag.strip()} for row in rows]
    assert all(tags <= known for tags in predicted)
    assert any(len(tags) == 2 for tags in predicted)


def test_a_rating_for_every_text() -> None:
    """Reviews with stars: the prediction is a number of stars."""
    stars = {"delivery": 4, "payment": 2, "defect": 1}
    write_csv(Path("reviews.csv"), ("review", "stars"), [(text, stars[label]) for text, label in ROWS])
    columns = ("--text", "review", "--score", "stars")
    works("check", "reviews.csv", *columns, "--encoder", "toy")
    works("train", "reviews.csv", *columns, "--encoder", "toy", "--no-estimate", "--out", "model")
    works("predict", "model", "reviews.csv", "--out", "out.csv")
    scores = [float(row["score"]) for row in read_csv(Path("out.csv"))]
    assert len(scores) == len(ROWS)
    assert all(0 < score < 6 for score in scores)
    out, _ = works("evaluate", "model", "reviews.csv", "--json")
    assert json.loads(out)["spearman"] > 0.3


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8-sig", "utf-16"])
def test_a_german_export_of_excel(encoding: str) -> None:
    """Umlauts come back as they were, whatever encoding Excel has chosen."""
    german = {"delivery": "Lieferung", "payment": "Rückzahlung", "defect": "Mängel"}
    rows = [(number, f"Grüße, {text} für 5 €?", german[label]) for number, (text, label) in enumerate(ROWS)]
    write_csv(Path("export.csv"), ("Nr", "Nachricht", "Kategorie"), rows, encoding=encoding, excel=encoding == "cp1252")
    columns = ("--text", "Nachricht", "--label", "Kategorie")
    works("train", "export.csv", *columns, "--encoder", "toy", "--no-estimate", "--out", "model")
    works("predict", "model", "export.csv", "--out", "out.csv")
    written = read_csv(Path("out.csv"))
    assert [row["Nachricht"] for row in written] == [text for _, text, _ in rows]
    assert {row["label"] for row in written} <= set(german.values())


def test_a_chinese_file() -> None:
    """Texts without spaces, and labels that are no Latin letters."""
    topics = {"快递": ("包裹", "快递员", "仓库", "物流"), "付款": ("发票", "退款", "信用卡", "优惠券")}
    rows = [
        (f"请问我的{word}在哪里{number}", topic)
        for number in range(3)
        for topic, words in topics.items()
        for word in words
    ]
    write_csv(Path("工单.csv"), ("text", "label"), rows)
    works("check", "工单.csv", "--encoder", "toy")
    works("train", "工单.csv", "--encoder", "toy", "--no-estimate", "--out", "模型")
    out, _ = works("predict", "模型", "我的退款在哪里")
    answer = json.loads(out)
    assert answer["text"] == "我的退款在哪里"
    assert answer["label"] in topics


def test_a_mistyped_column_is_named_and_nothing_is_left_behind() -> None:
    """After a refusal the same command can be typed again, corrected."""
    write_csv(Path("tickets.csv"), ("Message", "Category"), ROWS)
    code, _, errors = nearfar("train", "tickets.csv", "--text", "Mesage", "--label", "Category", "--encoder", "toy")
    assert code == 1
    assert "Message" in errors
    assert not Path("model").exists()
    works("train", "tickets.csv", "--text", "Message", "--label", "Category", "--encoder", "toy", "--no-estimate")
