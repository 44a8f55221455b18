"""What requests look like: one description of each field, which reads it and documents it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nearfar.server.errors import empty, invalid, malformed, not_text, too_large

REQUIRED: Any = object()
CHARACTERS = 200_000
"""Characters of a text at most: a model reads some hundred tokens of it."""
Schema = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A type of values: how JSON describes it; subclasses read it."""

    schema: Schema = field(default_factory=dict)

    def read(self, value: Any, place: str) -> Any:
        """The value as the endpoint takes it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Flag(Kind):
    """True or false."""

    schema: Schema = field(default_factory=lambda: {"type": "boolean"})

    def read(self, value: Any, place: str) -> bool:
        """The value."""
        if not isinstance(value, bool):
            raise invalid(f"'{place}' must be true or false.")
        return value


@dataclass(frozen=True)
class Name(Kind):
    """A short string, such as the name of a model."""

    schema: Schema = field(default_factory=lambda: {"type": "string"})

    def read(self, value: Any, place: str) -> str:
        """The value."""
        if not isinstance(value, str) or len(value) > 1_000:
            raise invalid(f"'{place}' must be a string of at most 1,000 characters.")
        return value


@dataclass(frozen=True)
class Choice(Kind):
    """One of some names, in any case."""

    names: tuple[str, ...] = ()

    def read(self, value: Any, place: str) -> str:
        """The name, in lower case."""
        if not isinstance(value, str) or value.lower() not in self.names:
            raise invalid(f"'{place}' must be {' or '.join(map(repr, self.names))}.")
        return value.lower()


@dataclass(frozen=True)
class Positive(Kind):
    """A whole number of at least 1."""

    schema: Schema = field(default_factory=lambda: {"type": "integer", "minimum": 1})

    def read(self, value: Any, place: str) -> int:
        """The value."""
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise invalid(f"'{place}' must be a whole number of at least 1.")
        return value


@dataclass(frozen=True)
class Text(Kind):
    """A text that is not empty."""

    schema: Schema = field(default_factory=lambda: {"type": "string", "minLength": 1})

    def read(self, value: Any, place: str) -> str:
        """The text."""
        return read_text(value, place)


@dataclass(frozen=True)
class Texts(Kind):
    """A list of texts."""

    schema: Schema = field(
        default_factory=lambda: {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
    )

    def read(self, value: Any, place: str) -> list[str]:
        """The texts."""
        if not isinstance(value, list):
            raise invalid(f"'{place}' must be a list of texts.")
        _check_some(value, place)
        return [read_text(text, f"{place}[{number}]") for number, text in enumerate(value)]


@dataclass(frozen=True)
class Inputs(Kind):
    """A text or a list of texts."""

    schema: Schema = field(
        default_factory=lambda: {
            "oneOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
            ]
        }
    )

    def read(self, value: Any, place: str) -> list[str]:
        """The texts."""
        if not isinstance(value, str | list):
            raise invalid(f"'{place}' must be a text or a list of texts.")
        return [read_text(value, place)] if isinstance(value, str) else Texts().read(value, place)


@dataclass(frozen=True)
class Rows(Kind):
    """Texts or pairs in the forms of ``/predict``; what a list of strings means depends on the model."""

    schema: Schema = field(
        default_factory=lambda: {
            "oneOf": [
                {"type": "string", "description": "One text."},
                {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "A pair, for a model that reads pairs; else a list of texts.",
                },
                {
                    "type": "array",
                    "items": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
                    "description": "A list of texts or pairs.",
                },
            ]
        }
    )

    def read(self, value: Any, place: str) -> str | list[str] | list[list[str]]:
        """The value, with its texts checked."""
        if isinstance(value, str):
            return read_text(value, place)
        if not isinstance(value, list):
            raise invalid(f"'{place}' must be a text, a list of texts, or a list of pairs.")
        _check_some(value, place)
        if not isinstance(value[0], list):
            return Texts().read(value, place)
        for number, row in enumerate(value):
            if not isinstance(row, list) or len(row) not in (1, 2) or len(row) != len(value[0]):
                raise invalid(f"'{place}[{number}]' must be a list of one text, or of two for a pair, like the others.")
        return [
            [read_text(text, f"{place}[{number}][{side}]") for side, text in enumerate(row)]
            for number, row in enumerate(value)
        ]


@dataclass(frozen=True)
class Group(Kind):
    """An object with fields of its own."""

    fields: tuple[Field, ...] = ()

    def read(self, value: Any, place: str) -> dict[str, Any]:
        """The values of the fields by name."""
        return read_fields(self.fields, value, f"{place}.")


@dataclass(frozen=True)
class Field:
    """A field of a request."""

    name: str
    kind: Kind
    description: str
    default: Any = REQUIRED
    """None also stands for a field that is left out."""

    def schema(self) -> Schema:
        """The field as OpenAPI describes it."""
        kind = self.kind
        shown = dict(kind.schema)
        if isinstance(kind, Group):
            shown = object_schema(kind.fields)
        elif isinstance(kind, Choice):
            shown = {"type": "string", "enum": list(kind.names)}
        shown["description"] = self.description
        if self.default is not REQUIRED and self.default is not None:
            shown["default"] = self.default
        return shown


def object_schema(fields: Sequence[Field]) -> Schema:
    """An object with these fields as OpenAPI describes it."""
    return {
        "type": "object",
        "required": [field.name for field in fields if field.default is REQUIRED],
        "properties": {field.name: field.schema() for field in fields},
    }


def read_body(fields: Sequence[Field], body: bytes) -> dict[str, Any]:
    """The values of a request by the names of its fields; others are not looked at."""
    if not body.strip():
        raise malformed("the body is empty; send JSON: GET /docs has an example for each path.")
    try:
        value = json.loads(body)
    except RecursionError:
        raise malformed("the body is nested too deeply.") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise malformed(f"the body is not valid JSON: {error.msg} at {place}.") from None
    except UnicodeDecodeError:
        raise malformed("the body is not valid JSON: it is not encoded as UTF-8.") from None
    except ValueError:
        raise malformed("the body is not valid JSON: a number has too many digits.") from None
    return read_fields(fields, value)


def read_fields(fields: Sequence[Field], value: Any, prefix: str = "") -> dict[str, Any]:
    """The values of an object by the names of its fields."""
    if not isinstance(value, Mapping):
        raise invalid(f"'{prefix[:-1]}' must be a JSON object." if prefix else "the body must be a JSON object.")
    values = {}
    for one in fields:
        given = value.get(one.name)
        if given is not None:
            values[one.name] = one.kind.read(given, f"{prefix}{one.name}")
        elif one.default is REQUIRED:
            raise invalid(f"the field '{prefix}{one.name}' is missing: {one.description}{_other_name(one.name, value)}")
        else:
            values[one.name] = one.default
    return values


def _other_name(name: str, value: Mapping[str, Any]) -> str:
    """A hint where the texts are there under the name that other paths have for them."""
    other = {"input": "inputs", "inputs": "input"}.get(name)
    return f" The request calls it '{other}', as other paths do." if other in value else ""


def read_text(value: Any, place: str) -> str:
    """A text that a tokenizer can read."""
    if isinstance(value, int | list) and not isinstance(value, bool):
        raise not_text(
            f"'{place}' must be a text; lists of token ids are not read, since tokenizers differ "
            "(in LangChain: check_embedding_ctx_length=False)."
        )
    if not isinstance(value, str):
        raise not_text(f"'{place}' must be a text.")
    if not value:
        raise empty(f"'{place}' is empty; leave empty texts out.")
    if len(value) > CHARACTERS:
        raise too_large(f"'{place}' has {len(value):,} characters; at most {CHARACTERS:,} are read.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise not_text(f"'{place}' has half of a surrogate pair, which is no text.") from None
    return value


def _check_some(values: list[Any], place: str) -> None:
    if not values:
        raise empty(f"'{place}' is an empty list; give at least one text.")
