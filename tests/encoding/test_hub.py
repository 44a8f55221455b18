"""The Hugging Face Hub: real ``huggingface_hub`` code against a stand-in of its API on the loopback interface."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from tests.hub_server import TOKEN, reachable

import nearfar
from nearfar.encoding.model import Model
from nearfar.encoding.model_files import files_of, publish, without_folders
from nearfar.errors import EncoderError, OutputError, SettingError

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub itself
TEXTS = ["where is my parcel", "i was charged twice"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A trained classifier, with things in its folder that are not part of it."""
    from nearfar.pipeline import train
    from nearfar.recipe import build_recipe

    data = tmp_path_factory.mktemp("secret-data") / "train.csv"
    rows = [f"{text} {number},{label}" for label, text in zip("ab", TEXTS, strict=True) for number in range(4)]
    data.write_text("text,label\n" + "\n".join(rows) + "\n")
    out = tmp_path_factory.mktemp("models") / "model"
    recipe = build_recipe(
        {"data": {"train": str(data)}, "encoder": {"name": "toy"}, "training": {"epochs": 1}}, [], where="test"
    )
    train(recipe, out)
    (out / "checkpoints" / "step-1").mkdir(parents=True)
    (out / "checkpoints" / "step-1" / "model.safetensors").write_bytes(b"checkpoint")
    shutil.copy(data, out / "train.csv")
    (out / "train.json").write_text("{}")
    (out / ".saved-token").write_text(TOKEN)
    return out


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A reachable hub, an empty cache, and the token of its user."""
    with reachable(monkeypatch, tmp_path) as running:
        yield running


def test_a_model_comes_back_from_the_hub_as_it_was(folder, hub):
    """Uploaded by one call and downloaded by another, with the same probabilities and vectors, bit for bit."""
    model = nearfar.load(folder)
    address = model.push_to_hub("me/tickets")
    again = Model.from_pretrained("me/tickets")

    assert address.startswith(f"{hub.address}/me/tickets/commit/")
    assert np.array_equal(model.predict_proba(TEXTS), again.probabilities(TEXTS))
    assert np.array_equal(model.embed(TEXTS), again.embed(TEXTS))
    assert again.labels == model.labels


def test_only_the_files_of_the_model_are_uploaded(folder, hub):
    """No checkpoint, no data, no journal, no hidden file; and one commit after that of the new repository."""
    nearfar.load(folder).push_to_hub("me/tickets", commit_message="The first model")
    repository = hub.repositories["me/tickets"]

    assert set(repository.files()) == {".gitattributes", *files_of(folder)}
    assert {"model.safetensors", "nearfar.safetensors", "README.md", "recipe.toml", "1_Pooling/config.json"} <= set(
        repository.files()
    )
    assert not {"train.csv", "train.json", ".saved-token", "journal.jsonl"} & set(repository.files())
    assert not any(name.startswith("checkpoints") for name in repository.files())
    assert repository.messages == ["initial commit", "The first model"]


def test_the_model_card_names_the_repository_and_nothing_names_local_folders(folder, hub):
    nearfar.load(folder).push_to_hub("me/tickets")
    files = hub.repositories["me/tickets"].files()

    assert b'nearfar.load("me/tickets")' in files["README.md"]
    assert b"this-folder" not in files["README.md"]
    assert b'train = "train.csv"' in files["recipe.toml"]
    assert not any(b"secret-data" in content for content in files.values())
    assert not any(TOKEN.encode() in content for content in files.values())


def test_files_of_an_earlier_model_are_deleted_and_others_stay(folder, hub):
    """A head of the model before would otherwise be part of this one."""
    earlier = {"2_Dense/config.json": b"{}", "tasks.safetensors": b"", "notes/model-a.safetensors": b"", "LICENSE": b""}
    hub.add("me/tickets", earlier)
    nearfar.load(folder).push_to_hub("me/tickets")
    files = hub.repositories["me/tickets"].files()

    assert {"LICENSE", "notes/model-a.safetensors"} <= set(files)
    assert not {"2_Dense/config.json", "tasks.safetensors"} & set(files)
    assert len(hub.repositories["me/tickets"].messages) == 2


def test_a_second_upload_of_the_same_model_changes_no_file(folder, hub):
    model = nearfar.load(folder)
    model.push_to_hub("me/tickets")
    before = hub.repositories["me/tickets"].files()
    model.push_to_hub("me/tickets")

    assert hub.repositories["me/tickets"].files() == before


def test_a_revision_is_a_branch_and_is_opened_by_its_name(folder, hub):
    hub.add("me/tickets", {"LICENSE": b""})
    model = nearfar.load(folder)
    model.push_to_hub("me/tickets", revision="v1")

    assert set(hub.repositories["me/tickets"].files("main")) == {"LICENSE"}
    assert np.array_equal(
        nearfar.load("me/tickets", revision="v1").embed(TEXTS), nearfar.load("me/tickets@v1").embed(TEXTS)
    )
    oid = hub.repositories["me/tickets"].branches["v1"]
    assert nearfar.load("me/tickets", revision=oid).labels == model.labels
    with pytest.raises(EncoderError, match="The revision is a branch, a tag or a commit"):
        nearfar.load("me/tickets", revision="v2")
    with pytest.raises(SettingError, match="revision 'v1' is for a model on the hub"):
        nearfar.load(folder, revision="v1")


def test_private_repositories_need_a_token_and_stay_private(folder, hub, monkeypatch, tmp_path):
    from huggingface_hub import constants

    model = nearfar.load(folder)
    model.push_to_hub("me/tickets", private=True)
    assert hub.repositories["me/tickets"].private

    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "other-cache"))
    with pytest.raises(EncoderError, match=r"A private repository needs a token: log in with 'hf auth login'") as error:
        nearfar.load("me/tickets")
    assert TOKEN not in str(error.value)
    assert nearfar.load("me/tickets", token=TOKEN).labels == model.labels


def test_a_public_repository_is_refused_where_a_private_one_is_asked_for(folder, hub):
    hub.add("me/tickets", {"LICENSE": b""})
    with pytest.raises(OutputError, match="exists and is public, and private=True was asked for"):
        nearfar.load(folder).push_to_hub("me/tickets", private=True)
    assert set(hub.repositories["me/tickets"].files()) == {"LICENSE"}


@pytest.mark.parametrize(
    ("repository", "token", "message"),
    [
        ("else/tickets", TOKEN, r"no permission to do this\. Log in with"),
        ("me/tickets", "hf_wrong", "The token is not valid for this repository"),
        ("a/b/c", TOKEN, "A name on the hub is 'name' or 'owner/name'"),
        ("no spaces", TOKEN, "A name on the hub is 'name' or 'owner/name'"),
        ("me/tickets", None, r"uploading needs an access token with write permission\. Log in with 'hf auth login'"),
    ],
)
def test_a_refused_upload_says_what_to_do_and_changes_nothing(folder, hub, monkeypatch, repository, token, message):
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(OutputError, match=message) as error:
        nearfar.load(folder).push_to_hub(repository, token=token)
    assert "hf_" not in str(error.value)
    assert "\n" not in str(error.value)
    assert hub.repositories == {}


def test_without_a_network_uploads_and_downloads_say_so(folder, hub, monkeypatch):
    from huggingface_hub import constants

    model = nearfar.load(folder)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # discard: nobody listens
    with pytest.raises(OutputError, match="Is the hub reachable"):
        model.push_to_hub("me/tickets")
    with pytest.raises(EncoderError, match="is the hub reachable"):
        nearfar.load("me/tickets")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OutputError, match="Unset HF_HUB_OFFLINE"):
        model.push_to_hub("me/tickets")


def test_code_and_pickles_are_never_downloaded(folder, hub):
    files = {name: path.read_bytes() for name, path in files_of(folder).items()}
    extra = {"modeling_toy.py": b"raise SystemExit", "pytorch_model.bin": b"pickle", "checkpoints/a.safetensors": b""}
    hub.add("me/tickets", files | extra)
    nearfar.load("me/tickets")

    fetched = {request.rpartition("/")[2] for request in hub.requests if "/resolve/" in request}
    assert "model.safetensors" in fetched
    assert not {"modeling_toy.py", "pytorch_model.bin", "a.safetensors"} & fetched

    del files["model.safetensors"], files["nearfar.safetensors"]
    hub.add("me/pickled", files | extra)
    with pytest.raises(EncoderError, match="never reads pickled ones"):
        nearfar.load("me/pickled")


def test_a_model_that_brings_its_own_code_is_refused(folder, hub):
    import json

    files = {name: path.read_bytes() for name, path in files_of(folder).items()}
    config = json.loads(files["config.json"]) | {"auto_map": {"AutoModel": "modeling_toy.Toy"}, "model_type": "own"}
    hub.add("me/code", files | {"config.json": json.dumps(config).encode(), "modeling_toy.py": b"raise SystemExit"})
    with pytest.raises(EncoderError):
        nearfar.load("me/code")
    assert not any(request.endswith("modeling_toy.py") for request in hub.requests)


# Estimators


def test_a_classifier_comes_back_with_its_classes_and_settings(hub, tmp_path):
    """Classes that are numbers stay numbers; the folder of its encoder is not published."""
    encoder = tmp_path / "secret-place" / "encoder"
    nearfar.load("toy").save(encoder)
    clf = nearfar.Classifier(str(encoder), epochs=1, random_state=3).fit(TEXTS * 4, [10, 2] * 4)
    clf.push_to_hub("me/numbers", private=True, commit_message="Numbers")
    again = nearfar.Classifier.from_pretrained("me/numbers")

    assert again.classes_.tolist() == [2, 10]
    assert again.get_params() == clf.get_params() | {"encoder": "encoder"}
    assert np.array_equal(again.predict_proba(TEXTS), clf.predict_proba(TEXTS))
    assert not any(b"secret-place" in content for content in hub.repositories["me/numbers"].files().values())
    with pytest.raises(SettingError, match="no class head"):
        nearfar.Classifier.from_pretrained("toy")


def test_an_encoder_comes_back_as_it_was(hub):
    pairs = [("where is my parcel", "track your order"), ("i was charged twice", "billing"), ("hi", "hello")]
    enc = nearfar.Encoder("toy", epochs=1).fit(pairs)
    enc.push_to_hub("me/encoder")
    again = nearfar.Encoder.from_pretrained("me/encoder", revision="main")

    assert np.array_equal(again.encode(TEXTS), enc.encode(TEXTS))
    assert np.array_equal(nearfar.load("me/encoder").encode(TEXTS), enc.encode(TEXTS))


# Folders


def test_save_copies_the_model_and_its_history_and_nothing_else(folder, tmp_path):
    model = nearfar.load(folder)
    model.save_pretrained(tmp_path / "copy")

    copied = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    assert copied == {*files_of(folder), "journal.jsonl"}
    assert all((tmp_path / "copy" / name).read_bytes() == path.read_bytes() for name, path in files_of(folder).items())
    assert np.array_equal(nearfar.load(tmp_path / "copy").embed(TEXTS), model.embed(TEXTS))


def test_save_replaces_a_model_but_no_other_folder(folder, tmp_path):
    earlier = tmp_path / "earlier"
    nearfar.load("toy").save(earlier)
    assert nearfar.load(earlier).labels is None
    (earlier / "2_Dense").mkdir()
    (earlier / "2_Dense" / "config.json").write_text("{}")
    nearfar.load(folder).save(earlier)
    assert nearfar.load(earlier).labels == ("a", "b")
    assert not (earlier / "2_Dense" / "config.json").exists()

    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").touch()
    with pytest.raises(OutputError, match="holds something else than a model of nearfar"):
        nearfar.load(folder).save(tmp_path / "photos")
    with pytest.raises(OutputError, match="this is a file"):
        nearfar.load("toy").save(tmp_path / "photos" / "one.jpg")


def test_save_onto_itself_changes_nothing(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    nearfar.load(folder).save(folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_folder_that_was_replaced_meanwhile_is_not_saved_under_the_name_of_the_model(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "model")
    model = nearfar.load(tmp_path / "model")
    nearfar.load("toy").save(tmp_path / "model")
    with pytest.raises(OutputError, match="has changed since the model was opened"):
        model.save(tmp_path / "copy")


def test_an_encoder_by_name_is_saved_as_a_model_folder(tmp_path):
    encoder = nearfar.load("toy")
    encoder.save(tmp_path / "encoder")
    again = nearfar.load(tmp_path / "encoder")

    assert np.array_equal(again.embed(TEXTS), encoder.embed(TEXTS))
    assert again.labels is None


def test_an_incomplete_folder_is_not_published(folder, tmp_path):
    from nearfar.encoding.hub import Commit

    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / "nearfar.json").unlink()
    with pytest.raises(EncoderError, match=r"holds no nearfar\.json, so it is no complete model"):
        publish(tmp_path / "model", "me/tickets", Commit(message="m", token=TOKEN))


@pytest.mark.parametrize(
    ("line", "public"),
    [
        ('train = "/home/me/train.csv"', 'train = "train.csv"'),
        ('train = "/home/me/all.parquet#train"', 'train = "all.parquet#train"'),
        ('name = "~/encoders/mine/"', 'name = "mine"'),
        (r'train = "C:\\Users\\me\\train.csv"', 'train = "train.csv"'),
        ('train = "data/train.csv"', 'train = "data/train.csv"'),
        ('name = "owner/encoder"  # "a/b"', 'name = "owner/encoder"  # "a/b"'),
        ('files = ["/a/b.csv", "c.csv"]', 'files = ["b.csv", "c.csv"]'),
    ],
)
def test_a_published_recipe_names_no_folders_of_this_machine(line, public):
    assert without_folders(line) == public


# The command


@pytest.mark.slow
def test_the_command_uploads_to_the_endpoint_of_the_environment(folder, hub, tmp_path):
    """As users start it, with HF_ENDPOINT and HF_TOKEN."""
    environment = os.environ | {
        "HF_ENDPOINT": hub.address,
        "HF_HUB_OFFLINE": "0",
        "TRANSFORMERS_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(tmp_path / "home"),
        "HF_TOKEN": TOKEN,
    }
    words = ["push", str(folder), "me/tickets", "--private", "--message", "By command"]
    command = [sys.executable, "-m", "nearfar", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{hub.address}/me/tickets/commit/")
    assert hub.repositories["me/tickets"].private
    assert hub.repositories["me/tickets"].messages[-1] == "By command"


def command(monkeypatch, *words: str) -> int:
    """The exit status of a command in this process."""
    from nearfar.cli import main

    monkeypatch.setattr(sys, "argv", ["nearfar", *words])
    try:
        main()
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def test_commands_read_models_from_the_hub(folder, hub, tmp_path, monkeypatch, capsys):
    assert command(monkeypatch, "push", str(folder), "me/tickets", "--revision", "v1") == 0
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    capsys.readouterr()

    assert command(monkeypatch, "predict", "me/tickets@v1", str(tmp_path / "texts.txt")) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(TEXTS)


def test_the_command_refuses_what_is_no_folder(hub, monkeypatch, capsys):
    assert command(monkeypatch, "push", "no-folder", "me/tickets") == 1
    assert capsys.readouterr().err == (
        "error: no-folder: there is no such folder; give the folder that training saved to.\n"
    )
