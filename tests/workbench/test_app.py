import csv
import json
import time
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

import nearfar
from nearfar.workbench.app import Workbench, make_app
from nearfar.workbench.embeddings import Embeddings
from nearfar.workbench.explorer import NOTHING, Explorer
from nearfar.workbench.label_log import LabelLog
from nearfar.workbench.label_queue import BATCH, LEASE, LabelQueue
from nearfar.workbench.project import Project, read_texts
from nearfar.workbench.trainer import Trainer

BASE = "http://127.0.0.1:1"
HEADERS = {"X-Nearfar-Token": "secret", "Origin": BASE}
THINGS = {"fruit": ("apple", "pear", "plum"), "tool": ("hammer", "saw", "drill")}
ADJECTIVES = ("old", "small", "bright", "heavy", "quiet", "green", "new", "dry")


def texts_of(kind):
    return [f"the {adjective} {thing} is here" for thing in THINGS[kind] for adjective in ADJECTIVES]


class Client:
    """The page's requests, for one person."""

    def __init__(self, bench, user):
        self.client = TestClient(make_app(bench), base_url=BASE)
        self.user = user

    def ask(self, verb, status=200, **values):
        answer = self.client.post(f"/api/{verb}", headers=HEADERS, json={"user": self.user, **values})
        assert answer.status_code == status, answer.text
        return answer.json()

    def decide(self, item, kind, label=None):
        return self.ask(
            "decide", changes=[{"row": item["row"], "version": item["version"], "kind": kind, "label": label}]
        )

    def column(self, name, kind):
        return np.frombuffer(self.client.get(f"/api/column/{name}", headers=HEADERS).content, dtype=kind)


def bench_of(folder, rows, *, classes=(), train=True, encoder="toy"):
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    texts = read_texts(str(path))
    project = Project(texts, folder / "out", classes)
    embeddings = Embeddings(encoder, texts.texts, project.folder)
    explorer = Explorer(project, embeddings, method="pca")
    trainer = Trainer(project, encoder, then=explorer.find_suspects, epochs=1) if train else None
    return Workbench(project, embeddings, explorer, LabelQueue(project, embeddings), trainer, token="secret")


def unlabeled():
    return [{"text": text} for kind in THINGS for text in texts_of(kind)]


def labeled():
    return [{"text": text, "label": kind} for kind in THINGS for text in texts_of(kind)]


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    """Labeled texts of which one has the wrong label and one is there twice."""
    rows = labeled()
    rows[3]["label"] = "tool"
    rows.append({"text": rows[0]["text"].upper(), "label": "fruit"})
    folder = tmp_path_factory.mktemp("explored")
    nearfar.Classifier("toy", random_state=1).fit(
        [row["text"] for row in labeled()], [row["label"] for row in labeled()]
    ).save(folder / "model")
    bench = bench_of(folder, rows, train=False, encoder=str(folder / "model"))
    bench.embeddings.compute()
    bench.explorer.compute()
    assert bench.explorer.error is None
    return bench


def test_from_no_label_to_a_saved_model(tmp_path):
    bench = bench_of(tmp_path, unlabeled())
    ann = Client(bench, "ann")
    assert ann.ask("train", status=422)["error"] == "A model needs 2 labels of each of two classes."
    bench.embeddings.compute()
    for number in range(16):
        (item,) = ann.ask("next", count=1)["rows"]
        kind = next(kind for kind in THINGS if item["text"] in texts_of(kind))
        written = ann.decide(item, "label", kind)
        assert written["conflicts"] == []
        assert written["written"][0]["version"] == 1
        if number > 12:
            assert item["guess"][0] in THINGS
            assert ann.ask("next", count=1, having=[0])["guesses"]["0"][0] in THINGS
    bench.trainer.join()
    if bench.trainer.trained < 16:
        assert ann.ask("train")["started"]
        bench.trainer.join()
    state = ann.ask("state")
    assert state["labeled"] == 16
    assert state["training"]["error"] is None
    assert state["training"]["labels"] == 16
    assert 0 <= state["curve"][-1]["low"] <= state["curve"][-1]["accuracy"] <= state["curve"][-1]["high"] <= 1
    model = nearfar.load(tmp_path / "out" / "model")
    assert model.classes_.tolist() == ["fruit", "tool"]
    rows = list(csv.DictReader((tmp_path / "out" / "labeled.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert len(rows) == 16
    assert all(row["text"] in texts_of(row["label"]) for row in rows)


def test_label_errors_are_searched_again_after_a_training(tmp_path):
    """Among the labels that were given on the page; those that somebody has checked are not asked again."""
    bench = bench_of(tmp_path, unlabeled(), classes=[*THINGS])
    ann, texts = Client(bench, "ann"), bench.project.texts.texts
    bench.embeddings.compute()
    bench.explorer.compute()
    assert ann.ask("suspects")["rows"] == []
    wrong = 5

    def change(row, label, **values):
        version = ann.ask("rows", rows=[row])["rows"][0]["version"]
        return {"row": row, "version": version, "kind": "label", "label": label, **values}

    kinds = ["fruit" if text in texts_of("fruit") else "tool" for text in texts]
    kinds[wrong] = "tool"
    ann.ask("decide", changes=[change(row, kind) for row, kind in enumerate(kinds)])
    bench.trainer.join()
    assert ann.ask("state")["training"]["error"] is None
    assert wrong in [each["row"] for each in ann.ask("suspects")["rows"]]
    ann.ask("decide", changes=[change(wrong, "tool", checked=True)])
    assert wrong not in [each["row"] for each in ann.ask("suspects")["rows"]]
    bench.explorer.find_suspects()
    assert wrong not in [each["row"] for each in ann.ask("suspects")["rows"]]
    ann.ask("decide", changes=[change(wrong, "tool")])  # undone: it is asked again
    assert wrong in [each["row"] for each in ann.ask("suspects")["rows"]]
    ann.ask("decide", changes=[change(wrong, "fruit")])  # changed elsewhere: the doubt was of another label
    assert wrong not in [each["row"] for each in ann.ask("suspects")["rows"]]
    bench.project.log.close()
    again = LabelLog(tmp_path / "out" / "labels.jsonl")
    assert again.decision(bench.project.texts.keys[wrong]).version == 4
    assert not again.decision(bench.project.texts.keys[wrong]).checked
    again.close()


def test_two_people_get_different_texts_and_never_overwrite_each_other(tmp_path):
    bench = bench_of(tmp_path, unlabeled(), classes=["fruit", "tool"])
    bench.embeddings.compute()
    ann, bob = Client(bench, "ann"), Client(bench, "bob")
    for_ann, for_bob = ann.ask("next", count=6)["rows"], bob.ask("next", count=6)["rows"]
    assert not {item["row"] for item in for_ann} & {item["row"] for item in for_bob}
    ann.decide(for_ann[0], "label", "fruit")
    answer = bob.decide(for_ann[0], "label", "tool")
    assert [(each["label"], each["user"]) for each in answer["conflicts"]] == [("fruit", "ann")]
    assert answer["written"] == []
    assert bench.project.label(for_ann[0]["row"]) == "fruit"


def test_a_text_that_nobody_decides_on_is_offered_to_another_person_later(tmp_path):
    bench = bench_of(tmp_path, unlabeled()[:4])
    now = [0.0]
    queue = LabelQueue(bench.project, bench.embeddings, clock=lambda: now[0])
    assert len(queue.take("ann", 4)) == 4
    assert queue.take("bob", 4) == []
    now[0] = LEASE + 1
    assert len(queue.take("bob", 4)) == 4


def test_skipped_texts_come_back_when_nothing_else_is_left(tmp_path):
    bench = bench_of(tmp_path, unlabeled()[:3], classes=["fruit"])
    ann = Client(bench, "ann")
    items = ann.ask("next", count=3)["rows"]
    ann.decide(items[0], "skip")
    ann.decide(items[1], "label", "fruit")
    ann.decide(items[2], "none")
    assert [item["row"] for item in ann.ask("next", count=3)["rows"]] == [items[0]["row"]]


def test_what_was_undone_is_open_again(tmp_path):
    bench = bench_of(tmp_path, unlabeled()[:2], classes=["fruit"])
    ann = Client(bench, "ann")
    (item,) = ann.ask("next", count=1)["rows"]
    ann.decide(item, "label", "fruit")
    ann.decide({**item, "version": 1}, "clear")
    assert ann.ask("state")["labeled"] == 0
    assert bench.project.is_open(item["row"])


def test_before_the_vectors_are_there_the_order_is_random_and_complete(tmp_path):
    bench = bench_of(tmp_path, unlabeled())
    rows = bench.queue.take("ann", BATCH)
    assert len(set(rows)) == BATCH
    assert rows != sorted(rows)


def test_vectors_are_kept_for_the_next_start_and_computed_again_for_other_texts(tmp_path):
    bench = bench_of(tmp_path, unlabeled())
    bench.embeddings.compute()
    again = Embeddings("toy", bench.project.texts.texts, tmp_path / "out")
    again._outputs = None  # computing would fail
    again.compute()
    assert (again.vectors == bench.embeddings.vectors).all()
    assert np.allclose(np.linalg.norm(again.vectors, axis=1), 1, atol=1e-5)
    other = Embeddings("toy", ["another text"], tmp_path / "out")
    other.compute()
    assert other.vectors.shape == (1, 64)
    (path,) = [each for each in (tmp_path / "out").glob("vectors-*") if np.load(each).shape[0] == 1]
    path.write_bytes(b"damaged")
    Embeddings("toy", ["another text"], tmp_path / "out").compute()
    assert np.load(path).shape == (1, 64)


def test_an_encoder_that_is_not_there_is_a_sentence_on_the_page(tmp_path):
    bench = bench_of(tmp_path, unlabeled()[:3], encoder="no-such-folder/x/y")
    bench.embeddings.start()
    while bench.embeddings.error is None:
        time.sleep(0.02)
    assert "no-such-folder" in Client(bench, "ann").ask("state")["error"]


def test_columns_are_arrays_with_one_number_for_each_text(explored):
    client = Client(explored, "ann")
    n = len(explored.project.texts)
    assert client.column("place", np.float32).reshape(n, 2).max() <= 1
    assert set(client.column("label", np.uint16)) == {0, 1}
    assert client.column("prediction", np.uint16).shape == (n,)
    assert ((client.column("confidence", np.float32) >= 0.5) & (client.column("confidence", np.float32) <= 1)).all()
    assert client.client.get("/api/column/other", headers=HEADERS).status_code == 404


def test_the_wrong_label_is_the_first_suspect(explored):
    first = Client(explored, "ann").ask("suspects")["rows"][0]
    assert (first["row"], first["suggested"]) == (3, "fruit")


def test_texts_that_differ_in_case_alone_are_duplicates(explored):
    client = Client(explored, "ann")
    groups = client.ask("duplicates")["groups"]
    assert [0, 48] in [sorted({0, 48} & set(group)) for group in groups]
    assert (client.column("duplicate", np.uint16) != NOTHING).sum() == sum(map(len, groups))


def test_search_by_words_by_meaning_and_by_a_text(explored):
    client = Client(explored, "ann")
    texts = explored.project.texts.texts
    assert {texts[row] for row in client.ask("search", query=" OLD  pear")["rows"]} == {"the old pear is here"}
    assert client.ask("search", query="")["rows"] == []
    (first, *_) = client.ask("search", query="the quiet saw is here", by="meaning")["rows"]
    assert texts[first] == "the quiet saw is here"
    assert client.ask("search", row=5)["rows"][0] == 5
    assert "not embedded" in client.ask("search", status=422, row=5000)["error"]


def test_files_for_other_tools(explored):
    import pyarrow.parquet as pq

    files = Client(explored, "ann").ask("files")["files"]
    atlas = pq.read_table(files[0]).to_pylist()
    assert len(atlas) == len(explored.project.texts)
    assert {"text", "label", "prediction", "projection_x", "projection_y", "neighbors"} <= set(atlas[0])
    near = atlas[0]["neighbors"]
    assert near["ids"][0] == 48  # the same text in capitals
    assert near["distances"] == sorted(near["distances"])
    vectors, metadata, config = (Path(path).read_text(encoding="utf-8") for path in files[1:])
    assert len(vectors.splitlines()) == len(metadata.splitlines()) - 1 == len(atlas)
    from google.protobuf import text_format
    from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

    read = text_format.Parse(config, ProjectorConfig())
    assert read.embeddings[0].metadata_path == "metadata.tsv"


@pytest.mark.parametrize(
    ("name", "values", "status", "words"),
    [
        ("nothing", {}, 404, "There is no nothing."),
        ("decide", {"changes": [{"row": 0}]}, 400, "lacks 'version'"),
        ("decide", {"changes": [{"row": 9999, "version": 0, "kind": "skip"}]}, 422, "there is no text 9999"),
        ("decide", {"changes": [{"row": "x", "version": 0, "kind": "skip"}]}, 400, "does not fit"),
        ("decide", {"changes": [{"row": 0, "version": 0, "kind": "label", "label": ""}]}, 422, "1 to 200 characters"),
        ("decide", {"changes": "x"}, 422, "at once"),
        ("class", {"name": "x" * 300}, 422, "1 to 200 characters"),
        ("train", {}, 422, "nearfar label"),
    ],
)
def test_wrong_requests_are_answered_with_a_sentence(explored, name, values, status, words):
    assert words in Client(explored, "ann").ask(name, status=status, **values)["error"]


def test_what_is_no_json_object_is_refused(explored):
    client = Client(explored, "ann").client
    for body in (b"{", b"[]", b"\xff"):
        assert client.post("/api/state", headers=HEADERS, content=body).status_code == 400
