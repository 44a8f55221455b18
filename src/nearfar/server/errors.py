"""Refused requests: the status codes and bodies of text-embeddings-inference, and those of OpenAI below ``/v1``."""

from __future__ import annotations

from typing import Any, Literal

Kind = Literal["Validation", "Tokenizer", "Backend", "Overloaded", "Unhealthy", "Empty", "Timeout", "Authentication"]

OPENAI: dict[int, str] = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class RequestError(Exception):
    """A request that is not answered.

    Args:
        status: the HTTP status.
        kind: the ``error_type`` of the body.
        message: one sentence; without any part of the texts, since it is logged.
        headers: further headers of the response.
    """

    def __init__(self, status: int, kind: Kind, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.headers = headers or {}

    def body(self, path: str) -> dict[str, Any]:
        """The body of the response, by the convention of the path."""
        if path.startswith("/v1/"):
            kind = OPENAI.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
            return {"error": {"message": self.message, "type": kind, "param": None, "code": self.kind}}
        return {"error": self.message, "error_type": self.kind}


def empty(message: str) -> RequestError:
    """400: there is no text."""
    return RequestError(400, "Empty", message)


def malformed(message: str) -> RequestError:
    """400: the body is not JSON."""
    return RequestError(400, "Validation", message)


def unauthorized() -> RequestError:
    """401: a key is missing or wrong."""
    message = "this server needs an API key: send the header 'Authorization: Bearer KEY' with a valid one."
    return RequestError(401, "Authentication", message, {"www-authenticate": "Bearer"})


def slow(seconds: float) -> RequestError:
    """408: the body took too long."""
    return RequestError(408, "Timeout", f"the body of the request was not complete after {seconds:g} seconds.")


def too_large(message: str) -> RequestError:
    """413: too many bytes, texts or tokens."""
    return RequestError(413, "Validation", message)


def invalid(message: str) -> RequestError:
    """422: JSON of another shape than the endpoint reads."""
    return RequestError(422, "Validation", message)


def not_text(message: str) -> RequestError:
    """422: something that cannot be tokenized."""
    return RequestError(422, "Tokenizer", message)


def wrong_model(message: str) -> RequestError:
    """424: the model is of another kind."""
    return RequestError(424, "Backend", message)


def failed() -> RequestError:
    """424: the model could not compute this."""
    return RequestError(424, "Backend", "the model failed on these texts; the log of the server has the reason.")


def overloaded(seconds: int) -> RequestError:
    """429: the queue is full."""
    message = f"too many texts are waiting; try again in {seconds} s."
    return RequestError(429, "Overloaded", message, {"retry-after": str(seconds)})


def unhealthy(message: str) -> RequestError:
    """503: the server cannot answer yet, or no longer."""
    return RequestError(503, "Unhealthy", message, {"retry-after": "1"})


def timed_out(seconds: float) -> RequestError:
    """504: the answer took too long."""
    return RequestError(504, "Timeout", f"there was no answer within {seconds:g} seconds; send fewer or shorter texts.")
