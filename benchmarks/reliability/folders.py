"""Model folders that are damaged or made to do harm, and what happens when they are opened.

``python -m benchmarks.reliability.folders damaged --number 5000`` damages files of whole model folders: every one must
be refused, or give the same numbers. ``malicious`` makes folders with valid digests whose files were made to do harm:
every one must be opened or refused with a message, within seconds and within memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.reliability.trial import Outcome, attempt

ROWS = [("the parcel is late", "delivery"), ("where is my parcel", "delivery"), ("i was charged twice", "payment"),
        ("the invoice is wrong", "payment"), ("reset my password", "account"), ("locked out", "account")]  # fmt: skip
TEXTS = ["the parcel is late again", "an invoice", "word " * 300]
DIGESTS = "SHA256SUMS"


@dataclass(frozen=True)
class Case:
    """A folder to open, and what was done to it."""

    folder: Path
    about: str


def make_models(place: Path) -> dict[str, Path]:
    """Small models of several kinds: heads of each kind, several tasks, a map, and one of another library."""
    from nearfar.encoding.model import load
    from nearfar.pipeline import train
    from nearfar.pipeline.whitened_model import save_whitened, whiten
    from nearfar.recipe import build_recipe
    from nearfar.recipe.tasks import build_task_recipe

    quick = {"max_steps": 1, "precision": "fp32", "estimate": False}
    made = {name: place / name for name in ("native", "centers", "neighbors", "tasks", "map", "other")}
    settings: dict[str, dict[str, Any]] = {
        "native": {"objective": {"name": "cross-entropy"}},
        "centers": {"objective": {"name": "supcon"}, "head": {"kind": "nearest-center"}},
        "neighbors": {"objective": {"name": "supcon"}, "head": {"kind": "neighbors"}},
    }
    for name, more in settings.items():
        if not made[name].exists():
            values = {"encoder": {"name": "toy"}, "data": {"train": "memory:train", "dev": 0}, **more}
            train(build_recipe({**values, "training": quick}, where=name), made[name], data=ROWS)
    if not made["tasks"].exists():
        task = {"name": "intent", "data": {"train": "memory:train", "dev": 0}}
        both = [task, {**task, "name": "again"}]
        training = {"max_steps": 1, "precision": "fp32"}
        values = {"encoder": {"name": "toy"}, "training": training, "task": both}
        recipe = build_task_recipe(values, where="tasks")
        train(recipe, made["tasks"], data={"intent": ROWS, "again": ROWS})
    if not made["map"].exists():
        mapped, _ = whiten(load(made["native"]), [text for text, _ in ROWS], method="whitening")
        save_whitened(mapped, made["map"], origin=str(made["native"]))
    if not made["other"].exists():
        shutil.copytree(made["native"], made["other"])
        for name in ("nearfar.json", "nearfar.safetensors", DIGESTS, "recipe.toml", "metrics.json", "journal.jsonl"):
            (made["other"] / name).unlink(missing_ok=True)
    return made


# Damage: what disks, networks and copies do to files.


def damage(path: Path, random: Random) -> str:
    """Change a file a little, or cut it; returns what was done."""
    content = bytearray(path.read_bytes())
    size = len(content)
    kind = random.choice(["bit", "bit", "byte", "zeros", "cut", "more", "swap", "repeat"]) if size > 64 else "byte"
    place = random.randrange(max(1, size))
    length = min(size - place, random.choice([1, 4, 64, 512, 4096]))
    if kind == "bit" and size:
        content[place] ^= 1 << random.randrange(8)
    elif kind == "byte" and size:
        content[place] = (content[place] + random.randrange(1, 256)) % 256
    elif kind == "zeros":
        content[place : place + length] = bytes(length)
    elif kind == "cut":
        del content[place:]
    elif kind == "more":
        content += random.randbytes(length or 1)
    elif kind == "swap":
        other = random.randrange(size - length + 1)
        content[place : place + length], content[other : other + length] = (
            content[other : other + length],
            content[place : place + length],
        )
    else:
        content[place : place + length] = content[:length]
    path.write_bytes(content)
    return f"{kind} of {path.name} at {place}"


def damaged(models: Sequence[Path], number: int, seed: int, place: Path) -> Iterator[Case]:
    """Copies of models with one damaged file each; each is in its place until the next is asked for."""
    random = Random(seed)
    for count in range(number):
        model = random.choice(models)
        folder = _copy(model, place / "damaged")
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".jsonl")
        path = random.choice(files)
        before = path.read_bytes()
        about = damage(path, random)
        if path.read_bytes() != before:
            yield Case(folder, f"{count}: {model.name}, {about}")


# Harm: what somebody may put into a folder.

HUGE = (2**31, 2**40, 2**63, 10**18, 10**30, 10**8, 10**7, 100_000, 10_000)
NUMBERS: tuple[Any, ...] = (-1, 0, 1, 2, 3, -(2**40), 1.5, float("nan"), float("inf"), -float("inf"), 1e308, *HUGE)
WORDS: tuple[Any, ...] = ("", "a", "x" * 5_000, "\ud800", "../..", "/dev/zero", "a\x00b", "../" * 2_000, "{}", "[MASK]",
                          "trust_remote_code", "http://localhost:1/x")  # fmt: skip
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None] * 3, {"a": 1}, list(range(1000)))


def deep(levels: int) -> Any:
    """Lists in lists."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def nasty(random: Random) -> Any:
    """A value that hardly belongs anywhere."""
    return random.choice([*NUMBERS, *NUMBERS, *WORDS, *OTHERS, *(deep(levels) for levels in (5, 90))])


def change_json(folder: Path, random: Random) -> str:
    """Replace, remove or add a value somewhere in a settings file."""
    path = random.choice([path for path in _files(folder, "*.json") if path.name != "metrics.json"])
    values = json.loads(path.read_text(encoding="utf-8"))
    places = list(_places(values))
    holder, key, trail = random.choice(places)
    verb = random.choice(["replace", "replace", "replace", "remove", "copy", "add"])
    value = nasty(random)
    if verb == "replace":
        holder[key] = value
    elif verb == "remove":
        del holder[key]
    elif verb == "copy":
        holder[key] = random.choice(places)[0]
        if _loops(values):
            holder[key] = value
    elif isinstance(holder, dict):
        holder[random.choice(["auto_map", "quantization_config", "num_labels", "id2label", "dtype", "model_type"])] = (
            value
        )
    else:
        holder.append(value)
    path.write_text(json.dumps(values), encoding="utf-8")
    return f"{verb} {path.relative_to(folder)} {trail} {str(value)[:40]!a}"


def _files(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder that can be read: an earlier change may have put a pipe or 20 GB in the place of one."""
    found = [path for path in folder.rglob(pattern) if path.is_file() and not path.is_symlink()]
    return sorted(path for path in found if path.stat().st_size < 2**28)


def _places(values: Any, trail: str = "", most: int = 4) -> Iterator[tuple[Any, Any, str]]:
    """Where values are in JSON; of long lists and objects some only."""
    items = list(values.items()) if isinstance(values, dict) else list(enumerate(values))
    for key, value in items[:200]:
        yield values, key, f"{trail}.{key}"
        if isinstance(value, dict | list) and most:
            yield from _places(value, f"{trail}.{key}", most - 1)


def _loops(values: Any) -> bool:
    try:
        json.dumps(values)
    except (ValueError, RecursionError):
        return True
    return False


def change_header(folder: Path, random: Random) -> str:
    """Change what a file of weights says of its tensors."""
    path = random.choice(_files(folder, "*.safetensors"))
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    name = random.choice([key for key in header if key != "__metadata__"])
    about = header[name]
    verb = random.choice(["shape", "dtype", "offsets", "name", "length", "remove", "numbers", "metadata", "size"])
    if verb == "shape":
        shape = about["shape"]
        about["shape"] = random.choice([[0], [], [-1, -1], [2**62, 4], shape[::-1], [shape], None, "x"])
    elif verb == "dtype":
        about["dtype"] = random.choice(["F64", "I64", "U8", "F16", "BOOL", "X", None, "F32\x00"])
    elif verb == "offsets":
        about["data_offsets"] = random.choice([[0, 2**60], [5, 1], [0, 0], [-4, 4], None, [0], [0.5, 4]])
    elif verb == "name":
        header[random.choice(["", "x" * 100_000, "\ud800", "a.b.c", "__class__"])] = header.pop(name)
    elif verb == "remove":
        del header[name]
    elif verb == "numbers":
        start, stop = about["data_offsets"]
        data = data[:start] + b"\xff" * (stop - start) + data[stop:]
    elif verb == "metadata":
        odd: list[Any] = [{"format": "x" * 10_000}, {"format": 5}, deep(90), None, {"a": "\ud800"}]
        header["__metadata__"] = random.choice(odd)
    text = json.dumps(header).encode()
    size = len(text) if verb != "length" else random.choice([0, 2**63, 2**64 - 1, 10**9, len(text) - 1])
    path.write_bytes(struct.pack("<Q", size) + text + (data if verb != "size" else data[: len(data) // 2]))
    return f"{verb} of {name} in {path.name}"


def replace_file(folder: Path, random: Random) -> str:
    """Put something else in the place of a file: a pipe, a link, a device, a folder, something huge, nothing."""
    path = random.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    kind = random.choice(["pipe", "zero", "passwd", "loop", "nothing", "folder", "empty", "sparse", "deep", "binary",
                          "brackets", "long", "missing"])  # fmt: skip
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind in ("zero", "passwd", "loop", "nothing"):
        path.symlink_to({"zero": "/dev/zero", "passwd": "/etc/passwd", "loop": path.name, "nothing": "gone"}[kind])
    elif kind == "folder":
        path.mkdir()
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(20 * 2**30)
    elif kind == "deep":
        path.write_bytes(b"[" * random.choice([1_000, 100_000, 5_000_000]))
    elif kind == "brackets":
        path.write_bytes(b"[" + b"{}," * 4_000_000 + b"{}]")
    elif kind == "long":
        path.write_bytes(b'{"a": "' + b"x" * 15_000_000 + b'"}')
    elif kind != "missing":
        path.write_bytes(random.randbytes(5_000) if kind == "binary" else b"")
    return f"{kind} as {path.relative_to(folder)}"


def _json(folder: Path, name: str, change: Callable[[Any], None]) -> None:
    values = json.loads((folder / name).read_text(encoding="utf-8"))
    change(values)
    (folder / name).write_text(json.dumps(values), encoding="utf-8")


def _sparse_weights(folder: Path) -> None:
    """20 GB that declare one tensor, and take no place on the disk."""
    header = json.dumps({"embeddings.word_embeddings.weight": {
        "dtype": "F32", "shape": [5 * 2**30 // 64, 64], "data_offsets": [0, 20 * 2**30]}}).encode()  # fmt: skip
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 20 * 2**30)
    _json(folder, "config.json", lambda config: config.update(vocab_size=5 * 2**30 // 64))


def _link(folder: Path, name: str, target: str) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)


def _pipe(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)


def _vocabulary(size: int) -> Callable[[Path], None]:
    return lambda folder: _json(
        folder, "tokenizer.json", lambda values: values["model"].update(vocab={f"t{n}": n for n in range(size)})
    )


def _replacements(values: Any) -> None:
    double = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    values["normalizer"] = {"type": "Sequence", "normalizers": [double] * 40}


def _shift_ids(values: Any) -> None:
    values["model"]["vocab"] = {token: 10 * place for token, place in values["model"]["vocab"].items()}


def _settings(name: str, **values: Any) -> Callable[[Path], None]:
    return lambda folder: _json(folder, name, lambda settings: settings.update(values))


KNOWN: dict[str, Callable[[Path], None]] = {
    "deep card": lambda folder: (folder / "nearfar.json").write_text("[" * 100_000),
    "deep config": lambda folder: (folder / "config.json").write_text('{"a":' * 100_000),
    "long names": lambda folder: _json(
        folder, "modules.json", lambda modules: modules[1].update(path="x" * 10_000)),
    "path out of the folder": lambda folder: _json(
        folder, "modules.json", lambda modules: modules[1].update(path="../../../../etc")),
    "negative layers": _settings("config.json", num_hidden_layers=-3),
    "no layers": _settings("config.json", num_hidden_layers=0),
    "many layers": _settings("config.json", num_hidden_layers=10**6),
    "huge numbers": _settings("config.json", hidden_size=10**30),
    "huge width": _settings("config.json", hidden_size=50_000, intermediate_size=50_000),
    "huge positions": _settings("config.json", max_position_embeddings=2**31 - 1),
    "10^8 labels": _settings("config.json", num_labels=10**8, id2label=None),
    "a list as the number of labels": _settings("config.json", num_labels=[1, 2, 3]),
    "a number as architectures": _settings("config.json", architectures=-1),
    "surrogates in labels": _settings("nearfar.json", labels=["a\ud800", "b", "c"]),
    "more labels than classes": _settings("nearfar.json", labels=[f"l{n}" for n in range(50_000)]),
    "token ids beyond the vocabulary": lambda folder: _json(folder, "tokenizer.json", _shift_ids),
    "giant vocabulary": _vocabulary(1_500_000),
    "texts that grow": lambda folder: _json(folder, "tokenizer.json", _replacements),
    "slow pattern": lambda folder: _json(folder, "tokenizer.json", lambda values: values.update(
        pre_tokenizer={"type": "Split", "pattern": {"Regex": "(w+o*)+$"}, "behavior": "Isolated", "invert": False})),
    "fixed padding": lambda folder: _json(folder, "tokenizer.json", lambda values: values.update(
        padding={"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                 "pad_type_id": 0, "pad_token": "[PAD]"})),
    "sparse weights": _sparse_weights,
    "pipe as card": lambda folder: _pipe(folder, "nearfar.json"),
    "pipe as config": lambda folder: _pipe(folder, "config.json"),
    "pipe as weights": lambda folder: _pipe(folder, "model.safetensors"),
    "endless card": lambda folder: _link(folder, "nearfar.json", "/dev/zero"),
    "endless tokenizer": lambda folder: _link(folder, "tokenizer.json", "/dev/zero"),
    "file outside": lambda folder: _link(folder, "config.json", "/etc/hostname"),
    "rows of neighbors": _settings("nearfar.json", head={"kind": "neighbors", "rows": 10**12}, native=False),
    "code": _settings("config.json", auto_map={"AutoModel": "evil.Model", "AutoConfig": "evil.Config"}),
    "adapter": lambda folder: (folder / "adapter_config.json").write_text(
        '{"base_model_name_or_path": "/dev", "peft_type": "LORA"}'),
    "long limit": _settings("nearfar.json", max_length=100_000),
    "chunks": _settings("config.json", chunk_size_feed_forward=7),
    "no types": _settings("config.json", type_vocab_size=10**9),
}  # fmt: skip
"""The cases that once ended in a traceback or without an end, and their kin."""
CHANGES = (change_json, change_json, change_json, change_header, replace_file)


def malicious(models: Sequence[Path], number: int, seed: int, place: Path) -> Iterator[Case]:
    """Folders that were made to do harm: those of ``KNOWN`` first, then drawn ones."""
    random = Random(seed)
    for count in range(number):
        model = random.choice(models)
        known = list(KNOWN)[count] if count < len(KNOWN) else None
        if known is not None:
            model = models[0]
        folder = _copy(model, place / "malicious")
        digests = random.random() < 0.5
        (folder / DIGESTS).unlink(missing_ok=True)
        try:
            if known is not None:
                KNOWN[known](folder)
                about = known
            else:
                about = "; ".join(random.choice(CHANGES)(folder, random) for _ in range(random.choice([1, 1, 2, 3])))
        except (
            KeyError,
            IndexError,
            TypeError,
            ValueError,
            OSError,
            RecursionError,
            struct.error,
        ) as cause:  # two changes that do not go together
            about = f"half: {type(cause).__name__}"
        if digests:
            _sign(folder)
        yield Case(folder, f"{count}: {model.name}, {about}")


def _sign(folder: Path) -> None:
    """Give a folder the digests of what is in it, as whoever makes one can."""
    from nearfar.encoding.digests import digest_lines

    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    small = {name: path for name, path in files.items() if not path.is_symlink() and path.stat().st_size < 2**28}
    (folder / DIGESTS).write_text(digest_lines(small), encoding="utf-8")


def _copy(model: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return Path(shutil.copytree(model, folder, ignore=shutil.ignore_patterns("journal*")))


def use_model(folder: Path) -> str:
    """Open a folder by all ways that lead to it; the numbers that it gives, as text."""
    import numpy as np

    import nearfar
    from nearfar.encoding import build
    from nearfar.encoding.task_model import holds_tasks

    holds_tasks(folder)
    model = nearfar.load(folder)
    answers: list[Any] = []
    if hasattr(model, "tasks"):
        answers += [str(model.predict(TEXTS, task=name)) for name in list(model.tasks)]
    elif hasattr(model, "predict_proba"):
        answers += [list(map(str, model.predict(TEXTS))), np.round(model.predict_proba(TEXTS), 6).tolist()]
    else:
        answers += [np.round(model.encode(TEXTS), 5).tolist()]
    build(str(folder), classes=("a", "b"), seed=0)
    return json.dumps(answers, default=str)


def run(kind: str, number: int, seed: int, place: Path) -> tuple[Counter[str], list[tuple[str, Outcome]]]:
    """Try many folders; how often each end was met, and the cases that ended badly."""
    models = make_models(place / "models")
    whole = {name: attempt(lambda folder=folder: use_model(folder)) for name, folder in models.items()}
    for name, outcome in whole.items():
        if outcome.end != "answered":
            raise SystemExit(f"the model {name} cannot be used: {outcome}")
    signed = [folder for name, folder in models.items() if name != "other"]
    cases = damaged(signed, number, seed, place) if kind == "damaged" else malicious(
        list(models.values()), number, seed, place)  # fmt: skip
    ends: Counter[str] = Counter()
    bad: list[tuple[str, Outcome]] = []
    for case in cases:
        outcome = attempt(lambda case=case: use_model(case.folder))
        if kind == "damaged" and outcome.end == "answered":
            expected = whole[case.about.split(": ")[1].split(",")[0]].answer
            outcome = replace(outcome, end="same numbers" if outcome.answer == expected else "other numbers")
        ends[outcome.end] += 1
        if outcome.end not in ("refused", "answered", "same numbers"):
            bad.append((case.about, outcome))
    return ends, bad


def main() -> None:
    """Run one of the two campaigns and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("damaged", "malicious"))
    parser.add_argument("--number", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # processes are forked
    with tempfile.TemporaryDirectory() as place:
        ends, bad = run(options.kind, options.number, options.seed, Path(place))
    for about, outcome in bad:
        print(f"{outcome.end}: {about}\n    {outcome.answer[-300:]!a}")
    print(f"{options.kind} folders: {sum(ends.values()):,}; {dict(ends)}")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
