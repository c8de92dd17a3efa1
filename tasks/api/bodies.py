"""Parser of request bodies: JSON only, bounded in size and depth, without values that no database can store."""

import json
from typing import Any, NoReturn

from django.http import HttpRequest
from django.utils.datastructures import MultiValueDict
from ninja.parser import Parser

from stator.texts import json_problem
from tasks.api.errors import Invalid, Refused, Unsupported

# The most levels of the whole body. The payloads in it have a limit of their own, a setting.
MAX_DEPTH = 100


class JsonParser(Parser):
    """The parser that ninja uses for bodies and query strings."""

    def parse_body(self, request: HttpRequest) -> Any:
        """Return the JSON of the body; Django's ``DATA_UPLOAD_MAX_MEMORY_SIZE`` bounds its size."""
        if request.content_type != "application/json":
            raise Unsupported("the body must be JSON, sent with Content-Type: application/json")
        try:
            value = json.loads(request.body.decode(), parse_constant=_no_number)
        except RecursionError as error:
            raise Invalid(f"the body is nested more than {MAX_DEPTH} levels deep") from error
        except ValueError as error:
            raise Refused("the body is not valid JSON") from error
        check(value)
        return value

    def parse_querydict(self, data: MultiValueDict, list_fields: list[str], request: HttpRequest) -> dict[str, Any]:
        """Return the checked parameters of the query string."""
        parsed = super().parse_querydict(data, list_fields, request)
        check(parsed)
        return parsed


def check(value: object) -> None:
    """Raise ``Invalid`` for deep nesting and values no database stores: NUL, a lone surrogate, an infinite number."""
    if problem := json_problem(value, MAX_DEPTH):
        raise Invalid(problem)


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)
