"""Errors of the API. The answer to every refused request is ``{"error": code, "detail": sentence}``."""

import logging
import math
from collections.abc import Callable
from typing import Any

from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent
from django.core.exceptions import ValidationError as DjangoValidationError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.request import UnreadablePostError
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

from stator.claims import OUTAGES
from stator.exceptions import StepRefused
from tasks.exceptions import (
    ActionNotAllowed,
    LeaseLost,
    MoveRefused,
    QueuePaused,
    TaskError,
    TooManyWaiting,
    UnknownAction,
)

logger = logging.getLogger("tasks.api")

MAX_DETAIL = 500


class Refused(Exception):
    """A refusal of a request. ``code`` is for programs, ``detail`` for people."""

    status = 400
    code = "bad_request"
    headers: dict[str, str] = {}

    def __init__(self, detail: str, code: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or self.code


class Unauthorized(Refused):
    """No valid token. The answer does not say whether the token is unknown, wrong, expired or disabled."""

    status, code = 401, "unauthorized"
    headers = {"WWW-Authenticate": "Bearer"}

    def __init__(self) -> None:
        super().__init__("send a valid token in the header Authorization: Bearer TOKEN")


class Forbidden(Refused):
    """The token is valid, but does not allow the request."""

    status, code = 403, "forbidden"


class NotFound(Refused):
    """The object does not exist, or the token does not give access to it."""

    status, code = 404, "not_found"


class NotAllowed(Refused):
    """The path does not support this method."""

    status, code = 405, "method_not_allowed"

    def __init__(self, allowed: str) -> None:
        super().__init__(f"this path allows {allowed}")
        self.headers = {"Allow": allowed}


class Conflict(Refused):
    """The current state of the object does not allow the request."""

    status, code = 409, "conflict"


class TooLarge(Refused):
    """The body is larger than the limit."""

    status, code = 413, "too_large"


class Unsupported(Refused):
    """The body is not JSON."""

    status, code = 415, "unsupported_media_type"


class Invalid(Refused):
    """A value that its schema takes is wrong: too large or too deep as JSON, or not right for this queue."""

    code = "invalid"


class Unprocessable(Refused):
    """The body or the query string is not what its schema says."""

    status, code = 422, "invalid"


class TooMany(Refused):
    """A rate limit is used up; the client may try again in ``seconds``."""

    status, code = 429, "rate_limited"

    def __init__(self, detail: str, seconds: float) -> None:
        super().__init__(detail)
        self.headers = {"Retry-After": str(max(1, math.ceil(seconds)))}


class Busy(TooMany):
    """This process is at its limit. The request is valid and nothing was done."""

    status, code = 503, "busy"


class Unavailable(TooMany):
    """The database did not answer, so it is unknown whether the request was carried out."""

    status, code = 503, "unavailable"


class Internal(Refused):
    """An error of the server itself."""

    status, code = 500, "internal"


def answer(refused: Refused) -> HttpResponse:
    """Return the response for a refusal; its sentence is one line of at most 500 characters."""
    detail = " ".join(refused.detail.split())[:MAX_DETAIL]
    body = {"error": refused.code, "detail": detail}
    return JsonResponse(body, status=refused.status, headers=refused.headers)


def register(api: NinjaAPI) -> None:
    """Register a handler for every exception."""
    api.add_exception_handler(Exception, unexpected)
    for kind, refused in ANSWERS.items():
        api.add_exception_handler(kind, _answering(refused))


def _answering(refused: Callable[[Any], Refused]) -> Callable[[HttpRequest, Any], HttpResponse]:
    return lambda request, error: answer(refused(error))


def unexpected(request: HttpRequest, error: Any) -> HttpResponse:
    """Log an unexpected exception, and answer without its details."""
    logger.error("tasks.api_failed", exc_info=error, extra={"method": request.method, "path": request.path})
    if isinstance(error, OUTAGES):
        return answer(Unavailable("the database cannot be used now; try again", 1))
    return answer(Internal("something went wrong on the server; its log has the details"))


def no_such_path() -> NotFound:
    """Return the refusal for a path that the API does not have."""
    return NotFound("the API has no such path; see the path docs")


def _first(error: ValidationError) -> str:
    """Return the first mistake and its place, without the value, which may be large or secret."""
    first = error.errors[0]
    place = ".".join(str(part) for part in first["loc"] if part != "payload")
    more = f" (and {len(error.errors) - 1} more)" if len(error.errors) > 1 else ""
    return f"{place}: {first['msg']}{more}"


def _of_django(error: DjangoValidationError) -> str:
    """Return the first message of a model's validation error."""
    if not hasattr(error, "error_dict"):
        return str(error.messages[0])
    field, messages = next(iter(error.message_dict.items()))
    return f"{field}: {messages[0]}"


def _of_http(error: HttpError) -> Refused:
    """Return the refusal for an error of ninja, which also wraps exceptions raised while it reads a body."""
    if isinstance(error.__cause__, Refused):
        return error.__cause__
    refused = Refused("the body is not valid JSON") if error.status_code == 400 else Refused(str(error))
    refused.status = error.status_code
    return refused


# The answer to each type of exception; the nearest base class applies.
ANSWERS: dict[type[Exception], Callable[[Any], Refused]] = {
    Refused: lambda error: error,
    LeaseLost: lambda error: Conflict(str(error), "lease_lost"),
    ActionNotAllowed: lambda error: Forbidden(str(error), "action_not_allowed"),
    QueuePaused: lambda error: Conflict(str(error), "paused"),
    MoveRefused: lambda error: Conflict(str(error)),
    TooManyWaiting: lambda error: Busy(str(error), 1),
    UnknownAction: lambda error: Conflict(str(error), "unknown_action"),
    TaskError: lambda error: Invalid(str(error)),
    StepRefused: lambda error: Conflict(str(error), "step_refused"),
    ValidationError: lambda error: Unprocessable(_first(error)),
    DjangoValidationError: lambda error: Invalid(_of_django(error)),
    HttpError: _of_http,
    Http404: lambda error: no_such_path(),
    TooManyFieldsSent: lambda error: Refused("the query string has too many parameters"),
    RequestDataTooBig: lambda error: TooLarge("the body is too large"),
    UnreadablePostError: lambda error: Refused("the body is incomplete; send it again"),
}
