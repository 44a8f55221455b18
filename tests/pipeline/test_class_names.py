"""Class names: which are given, which fit the labeled texts, and what they change."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.training.runs import StopAt

from nearfar.cli import main
from nearfar.encoding import build
from nearfar.errors import DataError, Interrupted, RecipeError, SettingError
from nearfar.pipeline.class_names import LEAST_FIT, LEAST_SHARE, ChosenNames, choose_names, read_names, words_of
from nearfar.pipeline.encoder_run import plan_encoder_run
from nearfar.pipeline.heads import NAME_WEIGHT, _named_centers
from nearfar.pipeline.train import plan_recipe, train
from nearfar.recipe import build_recipe, read_recipe
from nearfar.training import Callback

WORDS = {"fruit": ("apple", "plum", "fig", "cherry"), "tool": ("hammer", "wrench", "drill", "chisel")}
NAMES = {"fruit": "an apple, a plum, a fig, a cherry", "tool": "a hammer, a wrench, a drill, a chisel"}
ROWS = [
    (f"{before} {word} {after}", label)
    for label, words in WORDS.items()
    for word in words
    for before, after in (("the", "is good"), ("my", "was cheap"))
]


class Messages(Callback):
    """What a run says."""

    def __init__(self):
        self.texts = []

    def message(self, text):
        self.texts.append(text)

    def of(self, beginning):
        return [text for text in self.texts if text.startswith(beginning)]


def recipe(names="auto", objective="auto", **more):
    values = {
        "data": {"train": "memory:train", "names": names, **more.pop("data", {})},
        "objective": {"name": objective},
        "encoder": {"name": "toy"},
        "training": {"estimate": False},
        **more,
    }
    return build_recipe(values, where="test")


def run(out, names="auto", rows=ROWS, **more):
    messages = Messages()
    train(recipe(names, **more), out, data=rows, callbacks=[messages])
    return messages


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def unnamed(tmp_path_factory):
    out = tmp_path_factory.mktemp("unnamed") / "model"
    messages = run(out, "none")
    assert messages.of("note: class names") == []
    return out


def test_names_that_fit_their_texts_join_the_training_and_the_card_says_so(tmp_path, unnamed):
    out = tmp_path / "model"
    messages = run(out, NAMES)
    (note,) = messages.of("note: class names")
    assert note.startswith("note: class names: used for 2 of 2 classes (fit ")
    assert weights(out) != weights(unnamed)
    assert f"`tool`: {NAMES['tool']}." in (out / "README.md").read_text(encoding="utf-8")
    assert messages.of("rows: train 16; 2 classes")
    assert read_recipe(out / "recipe.toml").data.names == NAMES


def test_the_saved_recipe_runs_the_same_training_again(tmp_path):
    run(tmp_path / "first", NAMES)
    saved = read_recipe(tmp_path / "first" / "recipe.toml")
    train(saved, tmp_path / "second", data=ROWS)
    assert weights(tmp_path / "first") == weights(tmp_path / "second")


def test_a_resumed_run_ends_with_the_same_bytes(tmp_path):
    run(tmp_path / "whole", NAMES)
    with pytest.raises(Interrupted):
        train(recipe(NAMES), tmp_path / "parts", data=ROWS, callbacks=[StopAt(3)])
    train(recipe(NAMES), tmp_path / "parts", data=ROWS, resume=True)
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


def test_names_of_other_classes_are_rejected_and_change_nothing(tmp_path, unnamed):
    swapped = dict(zip(NAMES, reversed(NAMES.values()), strict=True))
    out = tmp_path / "model"
    (note,) = run(out, swapped).of("note: class names")
    assert note.startswith("note: class names: not used, they fit the labeled texts no better than random words (fit -")
    assert note.endswith(f"at least {LEAST_FIT} needed)")
    assert weights(out) == weights(unnamed)
    assert "Class names" not in (out / "README.md").read_text(encoding="utf-8")


def test_names_do_not_change_the_number_of_steps(tmp_path):
    rows = [(f"{text} {n}", label) for n in range(4) for text, label in ROWS]  # 64: one batch
    messages = run(tmp_path / "model", NAMES, rows=rows)
    assert "used for 2 of 2" in messages.of("note: class names")[0]
    assert messages.of("objective: supcon; 1 batch of 64 an epoch, 6 epochs; 6 steps")


def test_labels_that_are_words_are_names_by_themselves():
    plan = plan_encoder_run(recipe(), [(text, f"{label}_box") for text, label in ROWS])
    assert plan.data.names == {"fruit_box": ("fruit box",), "tool_box": ("tool box",)}
    assert plan.recipe.data.names == {"fruit_box": "fruit box", "tool_box": "tool box"}


@pytest.mark.parametrize("labels", [("0", "1"), ("A", "B"), ("HUM", "LOC"), ("class_1", "class_2"), ("x", "fruit")])
def test_codes_are_no_names(labels):
    named = dict(zip(WORDS, labels, strict=True))
    plan = plan_encoder_run(recipe(), [(text, named[label]) for text, label in ROWS])
    assert plan.data.names == {}
    assert plan.recipe.data.names == "auto"


def test_words_are_used_only_where_nothing_else_was_chosen():
    assert plan_encoder_run(recipe(objective="supcon"), ROWS).data.names == {}
    assert plan_encoder_run(recipe(objective="cross-entropy"), ROWS).data.names == {}
    assert plan_encoder_run(recipe("none"), ROWS).data.names == {}
    assert plan_encoder_run(recipe(NAMES, objective="supcon"), ROWS).data.names.keys() == NAMES.keys()


@pytest.mark.parametrize(
    ("names", "more", "message"),
    [
        ({"fruit": "a fruit", "tol": "a tool"}, {}, r"describes 'tol', which is no class .* Did you mean 'tool'"),
        (NAMES, {"objective": "cross-entropy"}, r"cross-entropy with a trained head does not use them"),
        (
            NAMES,
            {"stage": [{"objective": {"name": "supcon"}}]},
            r"a recipe with stages does not use them; leave it out",
        ),
        (NAMES, {"head": {"kind": "neighbors"}, "objective": "proxy-nca"}, r"proxy-nca with a neighbors head"),
    ],
)
def test_names_that_nothing_would_read_are_refused(names, more, message):
    with pytest.raises(SettingError, match=message):
        plan_encoder_run(recipe(names, **more), ROWS)


def test_names_of_several_labels_a_text_are_refused():
    rows = {"text": [text for text, _ in ROWS], "label": ["a;b" if n % 2 else "a" for n in range(len(ROWS))]}
    with pytest.raises(SettingError, match=r"data\.names \(--names\) describes classes, and these rows are .*labels"):
        plan_encoder_run(recipe({"a": "an a"}, data={"label_separator": ";"}), rows)


def test_an_empty_description_is_refused_in_a_recipe_and_in_a_file(tmp_path):
    with pytest.raises(RecipeError, match=r"data\.names\.tool is empty"):
        recipe({"fruit": "a fruit", "tool": ""})
    path = tmp_path / "names.toml"
    path.write_text('fruit = "a fruit"\ntool = [" "]\n', encoding="utf-8")
    with pytest.raises(RecipeError, match=r"names\.toml: the description of 'tool' is empty"):
        read_names(path)


def test_two_classes_with_one_description_are_refused():
    with pytest.raises(RecipeError, match="'fruit' and 'tool' have the same description"):
        plan_encoder_run(recipe({"fruit": "a Thing", "tool": "a  thing"}), ROWS)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("names.toml", 'fruit = ["sweet", "ripe"]\ntool = "sharp"\n'),
        ("names.json", json.dumps({"fruit": ["sweet", "ripe"], "tool": "sharp"})),
        ("names.csv", "label,text\nfruit,sweet\nfruit,ripe\ntool,sharp\n"),
    ],
)
def test_files_of_names(file, text, tmp_path):
    (tmp_path / file).write_text(text, encoding="utf-8")
    assert read_names(tmp_path / file) == {"fruit": ("sweet", "ripe"), "tool": ("sharp",)}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("names.json", "[1]", "class names are a table of labels and descriptions"),
        ("names.json", "{", "not valid JSON"),
        ("names.toml", "fruit = 1", "the name of 'fruit' is not text"),
        ("names.toml", "fruit", "names.toml:1: not valid TOML"),
        ("names.csv", "name,words\nfruit,sweet\n", r"no column .* as the text .*A file of class names has the columns"),
        (
            "names.csv",
            "text,words\nsweet,fruit\n",
            r"no column .* as the label .*A file of class names has the columns",
        ),
    ],
)
def test_files_that_hold_no_names(file, text, message, tmp_path):
    (tmp_path / file).write_text(text, encoding="utf-8")
    with pytest.raises((RecipeError, DataError), match=message):
        read_names(tmp_path / file)


def test_a_file_of_names_that_does_not_exist(tmp_path):
    with pytest.raises(DataError, match=r"none\.toml: the file of class names cannot be read: No such file"):
        plan_encoder_run(recipe(str(tmp_path / "none.toml")), ROWS)


def test_a_name_counts_as_some_texts_of_its_class():
    centers = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    names = np.array([[5.0, 5.5], [5.0, 4.5]], dtype=np.float32)
    joined = _named_centers(centers, np.array([4.0, 12.0]), names, np.array([0, 1]))
    moved = np.array([[0.5, 1.0], [0.5, 0.0]])  # the mean of both centers is 0.5, 0.5
    assert joined[0] == pytest.approx((4 * centers[0] + NAME_WEIGHT * moved[0]) / (4 + NAME_WEIGHT))
    assert joined[1] == pytest.approx((12 * centers[1] + NAME_WEIGHT * moved[1]) / (12 + NAME_WEIGHT))
    assert _named_centers(centers, np.array([4.0, 12.0]), names[:1], np.array([0])) is centers


def test_a_class_without_texts_and_without_a_name_stays_unknown():
    centers = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]], dtype=np.float32)
    names = np.array([[0.0, 1.0], [1.0, 0.0]], dtype=np.float32)
    joined = _named_centers(centers, np.array([4.0, 4.0, 0.0, 0.0]), names, np.array([0, 2]))
    assert joined[2] == pytest.approx([1.0, 0.0])
    assert not joined[3].any()


def test_labels_as_words():
    assert words_of("Refund_not_showing_up") == "Refund not showing up"
    assert words_of("très-bon") == "très bon"
    assert words_of("ok") is None


SMS = {
    "ham": [
        "Ok lar, joking with you only", "I'm gonna be home soon and i don't want to talk about this stuff tonight",
        "Even my brother is not like to speak with me", "Are you coming to the lesson later? Save me a seat",
        "Sorry, i'll call you after the meeting", "What time do you want to eat dinner",
        "I have been searching for the right words to thank you", "Lol your always so convincing",
    ],
    "spam": [
        "WINNER!! You have been selected to receive a 900 pounds prize reward! To claim call 09061701461",
        "Free entry in a weekly competition to win cup final tickets. Text FA to 87121",
        "URGENT! You have won a 1 week free membership in our 100,000 prize jackpot! Txt the word CLAIM",
        "Had your mobile 11 months or more? You are entitled to update to the latest colour mobiles for free",
        "Six chances to win cash! From 100 to 20,000 pounds, txt CSH11 and send to 87575. Cost 150p a day",
        "Private! Your account statement shows 800 unredeemed points. Call 08719899230 identifier code 41685",
        "Thanks for your subscription to ringtone UK, your mobile will be charged 5 pounds a month",
        "Congratulations, your mobile number was awarded a 2000 bonus caller prize, call from a land line",
    ],
}  # fmt: skip
EMOTIONS = {
    "anger": ["I am furious that they lied to me", "He cut me off in traffic and I wanted to shout at him"],
    "fear": ["I heard steps behind me at night and could not breathe", "I was terrified before the operation"],
    "joy": ["We laughed all evening, what a wonderful day", "I passed the exam and danced through the house"],
    "sadness": ["I cried for days when my dog died", "She left and the rooms feel empty"],
}


def chosen(texts: dict[str, list[str]], names: dict[str, str]) -> ChosenNames:
    flat = [(text, number) for number, of_class in enumerate(texts.values()) for text in of_class]
    labels = np.array([number for _, number in flat])
    phrases = {label: (name,) for label, name in names.items()}
    return choose_names(
        build("minilm", classes=None, seed=1), [text for text, _ in flat], labels, phrases, tuple(texts)
    )


@pytest.mark.slow
def test_a_pretrained_encoder_knows_which_names_say_something():
    assert chosen(EMOTIONS, {name: name for name in EMOTIONS}).used.keys() == EMOTIONS.keys()
    order = list(EMOTIONS)
    for shift in (1, 2, 3):
        assert chosen(EMOTIONS, dict(zip(order, order[shift:] + order[:shift], strict=True))).used == {}
    assert chosen(EMOTIONS, dict(zip(order, "ABCD", strict=True))).used == {}
    wrong = chosen(EMOTIONS, {**{name: name for name in EMOTIONS}, "sadness": "triumph"})
    assert wrong.used.keys() == EMOTIONS.keys() - {"sadness"}
    assert wrong.note.endswith("left out, no closer to the texts of their class than other words: 'triumph'")


@pytest.mark.slow
def test_ham_tells_less_than_the_messages_themselves():
    found = chosen(SMS, {"ham": "ham", "spam": "spam"})
    assert found.used == {}
    assert found.share < LEAST_SHARE
    assert "not used" in found.note


def test_names_of_several_tasks_are_refused():
    from nearfar.recipe.tasks import build_task_recipe

    for more in ({"names": NAMES}, {"adapt": True}):
        task = {"name": "kind", "data": {"train": "memory:train", **more}}
        tasks = build_task_recipe({"task": [task], "encoder": {"name": "toy"}}, where="test")
        with pytest.raises(SettingError, match=r"task 'kind': data\.names, data\.unlabeled and data\.adapt are for"):
            plan_recipe(tasks, {"kind": ROWS})


def test_names_without_any_text_are_refused_with_both_remedies(tmp_path, monkeypatch, capsys):
    (tmp_path / "names.toml").write_text('a = "one"\nb = "two"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["nearfar", "train", "--names", "names.toml"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert "class names are given, and no texts" in said
    assert "--unlabeled FILE" in said
