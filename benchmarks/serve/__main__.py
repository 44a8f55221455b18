"""``python -m benchmarks.serve speed|soak|hostile``: load for ``nearfar serve``; ``benchmarks/SERVE.md`` has results.

``speed`` needs FastAPI and sentence-transformers: ``benchmarks/requirements.txt``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import machine
from benchmarks.compare import DATA
from benchmarks.serve import hostile, servers, soak, speed
from benchmarks.texts import Texts

PAGE = Path(__file__).parents[1] / "SERVE.md"
HEADING = """# Load on `nearfar serve`

Appended by `python -m benchmarks.serve`, one section a run. Clients are on the same machine as the server and send the
next request when they have the answer to the last one.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    load = machine.load()
    if options.part == "speed" and machine.busy(load, machine.cores()) and not options.busy:
        print(f"the load average is {load:.2f}: wait until it is quiet, or measure all the same with --busy.")
        return 2
    texts = [row["text"] for row in Texts(options.data, 0).training()]
    text, status = PARTS[options.part](options, texts)
    about = "\n".join(f"- {name}: {value}" for name, value in machine.describe(threads=None, load=load))
    section = f"\n## {options.part.capitalize()}, {options.model}\n\n{about}\n\n{text}\n"
    print(section)
    if options.write:
        before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else HEADING
        PAGE.write_text(before + section, encoding="utf-8")
    return status


def _speed(options: argparse.Namespace, texts: list[str]) -> tuple[str, int]:
    from nearfar.encoding.pretrained import find

    folder = find(options.model).location or options.model
    job = speed.Job(options.model, str(folder), texts, options.seconds, options.repeats, options.python)
    return speed.table(speed.measure(job)), 0


def _soak(options: argparse.Namespace, texts: list[str]) -> tuple[str, int]:
    with servers.nearfar(options.model) as server:
        result = soak.soak(server, texts, minutes=options.minutes)
        status = server.stop()
    good = result.growth() <= soak.GROWTH and status == 0 and set(result.load.statuses) <= {200, 400, 422, 429}
    return soak.describe(result), int(not good)


def _hostile(options: argparse.Namespace, texts: list[str]) -> tuple[str, int]:
    with servers.nearfar(options.model, *hostile.FLAGS) as server:
        result = asyncio.run(hostile.attack(server, texts, options.number, options.seed))
        if server.alive and server.stop() != 0:
            result.faults.append("the server did not end in good order")
    return hostile.describe(result), int(bool(result.faults))


PARTS = {"speed": _speed, "soak": _soak, "hostile": _hostile}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.serve", description=__doc__.partition("\n")[0])
    made.add_argument("part", choices=list(PARTS))
    made.add_argument("--model", default="minilm", help="an encoder or a model folder; minilm")
    made.add_argument("--data", type=Path, default=DATA, help="folder with data sets; else the shipped sample")
    made.add_argument("--seconds", type=float, default=20, help="speed: of each measurement; 20")
    made.add_argument("--repeats", type=int, default=3, help="speed: turns of both servers; 3")
    made.add_argument("--python", default=sys.executable, help="speed: the Python that has FastAPI")
    made.add_argument("--busy", action="store_true", help="speed: measure although somebody computes here")
    made.add_argument("--minutes", type=float, default=30, help="soak: how long; 30")
    made.add_argument("--number", type=int, default=10_000, help="hostile: requests; 10,000")
    made.add_argument("--seed", type=int, default=0, help="hostile: of all random choices; 0")
    made.add_argument("--write", action="store_true", help=f"append the result to {PAGE.name}")
    return made


if __name__ == "__main__":
    sys.exit(main())
