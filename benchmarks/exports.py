"""What exports cost and gain: accuracy by format, texts per second, and the start of a process.

    python -m benchmarks.exports accuracy --source DATA --sets trec cr --formats onnx-int8 static
    python -m benchmarks.exports start --source DATA
    python -m benchmarks.exports speed --source DATA

``accuracy`` trains one classifier a data set (MiniLM, 64 texts a class, one draw), exports it and tests both; models
are kept in the folder of --work and not trained again. ``start`` runs a new process for each model: load it, predict
one text, and say how long that took and how much memory it had; torch and ONNX take turns. ``speed`` predicts many
texts. Every line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import nearfar
from benchmarks.few_labels import pool_and_test
from nearfar.data import per_class

SETS = ("trec", "sst5", "cr", "subj", "mr", "mpqa", "banking77", "goemotions")
FORMATS = ("onnx", "onnx-int8", "openvino", "static")
PROCESS = """
import sys, time
began = time.perf_counter()
import nearfar
model = nearfar.load(sys.argv[1])
model.predict([sys.argv[2]])
seconds = time.perf_counter() - began
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(seconds, int(status["VmHWM"].split()[0]) / 1024)  # getrusage would have the peak of the process that started this
"""


def trained(source: Path, work: Path, name: str, n: int) -> tuple[Path, list[str], list[str], list[str]]:
    """The folder of the classifier of a data set, its training texts, and texts and labels to test on."""
    pool, test = pool_and_test(source / name)
    assert pool.labels is not None
    assert test.labels is not None
    train = pool.take(per_class(pool, n, seed=0))
    folder = work / f"{name}-{n}"
    if not (folder / "nearfar.json").is_file():
        assert train.labels is not None
        nearfar.Classifier(estimate=False).fit(train.texts[0], train.labels).save(folder)
    return folder, train.texts[0], test.texts[0], [str(label) for label in test.labels]


def exported(folder: Path, kind: str, texts: list[str]) -> Path:
    """The export of a model, which is made again."""
    from nearfar.encoding import load
    from nearfar.exports.onnx_graph import export_onnx
    from nearfar.exports.static_export import export_static

    out = folder.with_name(f"{folder.name}-{kind}")
    if kind == "static":
        export_static(load(folder), out, texts)
    elif kind == "openvino":
        from nearfar.exports.openvino_export import export_openvino

        export_openvino(load(folder), out)
    else:
        export_onnx(load(folder), out, int8=kind == "onnx-int8")
    return out


def accuracy(arguments: argparse.Namespace) -> None:
    """One line a data set: the accuracy of the model in fp32 and of its exports, in percent."""
    for name in arguments.sets:
        folder, train, texts, labels = trained(arguments.source, arguments.work, name, arguments.n)
        line: dict[str, Any] = {"data": name, "n": arguments.n, "texts": len(texts)}
        line["model"] = _right(nearfar.load(folder, precision="fp32").predict(texts), labels)
        for kind in arguments.formats:
            line[kind] = _right(nearfar.load(exported(folder, kind, train)).predict(texts), labels)
        _say(line)


def _right(found: Any, labels: list[str]) -> float:
    return round(100 * float(np.mean(np.asarray(found).astype(str) == np.array(labels))), 2)


def start(arguments: argparse.Namespace) -> None:
    """Seconds and megabytes of a process that loads a model and predicts one text, the median of several."""
    folder, train, texts, _ = trained(arguments.source, arguments.work, "trec", arguments.n)
    places = {"model": folder, **{kind: exported(folder, kind, train) for kind in arguments.formats}}
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in places}
    for _ in range(arguments.repeats):
        for name, place in places.items():
            run = subprocess.run(
                [sys.executable, "-c", PROCESS, str(place), texts[0]], capture_output=True, text=True, check=True
            )
            seconds, megabytes = map(float, run.stdout.split())
            seen[name].append((seconds, megabytes))
    for name, values in seen.items():
        seconds, megabytes = (statistics.median(column) for column in zip(*values, strict=True))
        _say({"format": name, "seconds": round(seconds, 3), "megabytes": round(megabytes)})


def speed(arguments: argparse.Namespace) -> None:
    """Texts per second of predict on many texts, and the milliseconds of one, in turns."""
    folder, train, texts, _ = trained(arguments.source, arguments.work, "trec", arguments.n)
    models: dict[str, Any] = {"model": nearfar.load(folder), "model fp32": nearfar.load(folder, precision="fp32")}
    models |= {kind: nearfar.load(exported(folder, kind, train)) for kind in arguments.formats}
    many = (texts * (-(-arguments.texts // len(texts))))[: arguments.texts]
    for _ in range(arguments.repeats):
        for name, model in models.items():
            model.predict(many[:64])
            began = time.perf_counter()
            model.predict(many)
            seconds = time.perf_counter() - began
            single = []
            for text in many[:100]:
                first = time.perf_counter()
                model.predict([text])
                single.append(time.perf_counter() - first)
            _say(
                {"format": name, "texts/s": round(len(many) / seconds), "ms": round(1e3 * statistics.median(single), 3)}
            )


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("accuracy", "start", "speed"))
    parser.add_argument("--source", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--work", type=Path, default=Path("runs/exports"), help="folder of the models")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--formats", nargs="+", default=["onnx-int8", "static"], choices=FORMATS)
    parser.add_argument("--n", type=int, default=64, help="texts a class")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--texts", type=int, default=5_000)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    {"accuracy": accuracy, "start": start, "speed": speed}[arguments.what](arguments)


if __name__ == "__main__":
    main()
