"""The web application: one page, and the addresses that it asks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from nearfar.errors import NearfarError, SettingError
from nearfar.workbench.embeddings import Embeddings
from nearfar.workbench.explorer import Explorer
from nearfar.workbench.guard import Guard
from nearfar.workbench.label_log import LONGEST, Change
from nearfar.workbench.label_queue import LabelQueue
from nearfar.workbench.project import Project
from nearfar.workbench.trainer import Trainer

ASSETS = Path(__file__).with_name("assets")
MOST_ROWS = 500
"""Texts that one answer contains at most."""
MOST_CHANGES = 100_000

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Workbench:
    """All parts of the application, and its answers."""

    project: Project
    embeddings: Embeddings
    explorer: Explorer
    queue: LabelQueue
    trainer: Trainer | None = None
    """None where texts are explored and not labeled."""
    token: str = field(default="", repr=False)

    def state(self, _values: Values) -> dict[str, Any]:
        """Everything that the page shows beside the texts."""
        project, trainer = self.project, self.trainer
        labels = project.labels()
        counts = Counter(label for label in labels if label is not None)
        kinds = Counter(decision.kind for decision in project.log.decisions().values())
        training: dict[str, Any] | None = None
        if trainer is not None:
            training = {
                "active": trainer.active,
                "labels": trainer.trained,
                "obstacle": trainer.obstacle(),
                "error": trainer.error,
                "folder": str(project.folder / "model"),
            }
        return {
            "source": project.texts.source,
            "folder": str(project.folder),
            "mode": "explore" if trainer is None else "label",
            "texts": len(labels),
            "classes": [{"name": name, "count": counts[name]} for name in project.classes],
            "labeled": sum(counts.values()),
            "open": int(project.open_rows().sum()),
            "skipped": kinds["skip"],
            "none": kinds["none"],
            "dropped": kinds["drop"],
            "training": training,
            "curve": project.curve(),
            "embedded": self.embeddings.done,
            "error": self.embeddings.error or self.explorer.error,
            "revision": project.log.revision,
            "explorer": self.explorer.state(),
        }

    def next(self, values: Values) -> dict[str, Any]:
        """Texts to label next."""
        having = [int(row) for row in values.get("having", [])][:MOST_ROWS]
        person = str(values.get("session") or _user(values))[:LONGEST]
        rows = self.queue.take(person, min(int(values.get("count", 5)), 50), having=having)
        shown = [row for row in having if 0 <= row < len(self.project.texts)]
        guesses = dict(zip([*rows, *shown], self.queue.guesses([*rows, *shown]), strict=True))
        answers = [self._row(row) | {"guess": guesses[row]} for row in rows]
        return {
            "rows": [each for each in answers if each["label"] is None],  # somebody may have labeled one meanwhile
            "guesses": {str(row): guesses[row] for row in shown},
        }

    def rows(self, values: Values) -> dict[str, Any]:
        """Some texts with everything about them."""
        asked = [int(row) for row in values.get("rows", [])][:MOST_ROWS]
        return {
            "rows": [self._row(row) | self.explorer.row(row) for row in asked if 0 <= row < len(self.project.texts)]
        }

    def decide(self, values: Values) -> dict[str, Any]:
        """Label, skip, drop: written before it is answered; conflicts come back."""
        asked = values.get("changes", [])
        if not isinstance(asked, list) or len(asked) > MOST_CHANGES:
            raise SettingError(f"at most {MOST_CHANGES:,} texts can be labeled at once.")
        keys, changes = self.project.texts.keys, []
        for change in asked:
            row = int(change["row"])
            if not 0 <= row < len(keys):
                raise SettingError(f"there is no text {row}; there are {len(keys):,}.")
            checked = change.get("checked") is True
            changes.append(Change(keys[row], int(change["version"]), change["kind"], change.get("label"), checked))
        conflicts = self.project.log.decide(changes, user=_user(values))
        if self.trainer is not None:
            self.trainer.consider()
        refused = {conflict.key for conflict in conflicts}
        return {
            "conflicts": [self._row(self.project.rows[conflict.key]) for conflict in conflicts],
            "written": [self._row(self.project.rows[each.key]) for each in changes if each.key not in refused][
                :MOST_ROWS
            ],
        }

    def add_class(self, values: Values) -> dict[str, Any]:
        """A new class."""
        return {"name": self.project.log.add_class(str(values.get("name", "")), user=_user(values))}

    def train(self, _values: Values) -> dict[str, Any]:
        """Train now."""
        trainer = self.trainer
        if trainer is None:
            raise SettingError("This page explores texts; 'nearfar label' trains a model.")
        if not trainer.active and (obstacle := trainer.obstacle()) is not None:
            raise SettingError(obstacle)
        return {"started": trainer.start()}

    def export(self, _values: Values) -> dict[str, Any]:
        """Write the labels to files."""
        return {"files": [str(path) for path in self.project.export()], "rows": len(self.project.result_rows())}

    def search(self, values: Values) -> dict[str, Any]:
        """Texts that contain words, or that are nearest to a text in meaning."""
        query = str(values.get("query", "")).strip()
        if values.get("row") is not None:
            found = self.explorer.like(int(values["row"]))
        elif not query:
            found = []
        elif values.get("by") == "meaning":
            found = self.explorer.near(query)
        else:
            found = self.explorer.containing(query)
        return {"rows": found}

    def _row(self, row: int) -> dict[str, Any]:
        decision = self.project.decision(row)
        return {
            "row": row,
            "line": self.project.texts.lines[row],
            "text": self.project.texts.texts[row],
            "label": self.project.label(row),
            "given": self.project.texts.labels[row],
            "kind": decision.kind,
            "version": decision.version,
            "user": decision.user,
        }


def _user(values: Values) -> str:
    return str(values.get("user", ""))[:LONGEST]


def make_app(bench: Workbench, *, names: tuple[str, ...] = ()) -> Starlette:
    """The application of a workbench.

    Args:
        bench: its parts.
        names: names of this machine under which the page may be opened, beside its addresses and ``localhost``.
    """
    answers: dict[str, Callable[[Values], dict[str, Any]]] = {
        "state": bench.state,
        "next": bench.next,
        "rows": bench.rows,
        "decide": bench.decide,
        "class": bench.add_class,
        "train": bench.train,
        "export": bench.export,
        "search": bench.search,
        "suspects": lambda _: {"rows": bench.explorer.suspect_rows()},
        "duplicates": lambda _: {"groups": bench.explorer.duplicate_groups()},
        "files": lambda _: {"files": bench.explorer.write_files()},
    }

    def answer(request: Request, values: Values) -> Response:
        name = request.path_params["name"]
        if name not in answers:
            raise HTTPException(404, f"There is no {name}.")
        try:
            return JSONResponse(answers[name](values))
        except KeyError as cause:
            raise HTTPException(400, f"The request lacks {cause}.") from None

    async def post(request: Request) -> Response:
        from starlette.concurrency import run_in_threadpool

        try:
            values = json.loads(await request.body() or b"{}")
            if not isinstance(values, dict):
                raise TypeError
        except (ValueError, TypeError):
            raise HTTPException(400, "The request is no JSON object.") from None
        return await run_in_threadpool(answer, request, values)

    def page(_request: Request) -> Response:
        return FileResponse(ASSETS / "index.html", media_type="text/html; charset=utf-8")

    def column(request: Request) -> Response:
        name = request.path_params["name"]
        values = bench.explorer.column(name)
        if values is None:
            raise HTTPException(404, f"There is no column {name} yet.")
        return Response(values.tobytes(), media_type="application/octet-stream")

    def sentence(_request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, 422)

    def refused(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": error.detail}, error.status_code)

    def wrong_values(_request: Request, error: Exception) -> Response:
        return JSONResponse({"error": f"The request has a value that does not fit: {error}."}, 400)

    routes = [
        Route("/", page),
        Route("/api/column/{name}", column),
        Route("/api/{name}", post, methods=["POST"]),
        Mount("/assets", StaticFiles(directory=ASSETS)),
    ]
    handlers: dict[Any, Any] = {
        NearfarError: sentence,
        HTTPException: refused,
        TypeError: wrong_values,
        ValueError: wrong_values,
    }
    guard = Middleware(Guard, token=bench.token, names=names)
    return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)
