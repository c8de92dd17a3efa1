"""Reads bodies: JSON alone, bounded in bytes and depth, and nothing in it that a database could not keep."""

import json
import math
from typing import Any

from django.http import HttpRequest
from ninja.parser import Parser

from tasks.api.errors import Invalid, Refused, Unsupported

# Of the whole body: the payloads in it have a setting of their own.
MOST_DEPTH = 100


class JsonParser(Parser):
    """What ninja reads bodies with."""

    def parse_body(self, request: HttpRequest) -> Any:
        """The JSON of the body; its size is bounded by Django's ``DATA_UPLOAD_MAX_MEMORY_SIZE``."""
        if request.content_type != "application/json":
            raise Unsupported("the body must be JSON, sent with Content-Type: application/json")
        try:
            value = json.loads(request.body.decode(), parse_constant=_no_number)
        except RecursionError as error:
            raise Invalid(f"the body is nested more than {MOST_DEPTH} levels deep") from error
        except ValueError as error:
            raise Refused("the body is no valid JSON") from error
        check(value)
        return value

    def parse_querydict(self, data: Any, list_fields: list[str], request: HttpRequest) -> Any:
        """What stands after the question mark."""
        found = super().parse_querydict(data, list_fields, request)
        check(found)
        return found


def check(value: Any) -> None:
    """Refuse what is too deep, or what no database keeps: NUL, half a surrogate pair, a number beyond all bounds."""
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                _check_text(item)
            elif isinstance(item, float) and not math.isfinite(item):
                raise Invalid("a number is too large")
            elif isinstance(item, dict):
                below += [*item.keys(), *item.values()]
            elif isinstance(item, list):
                below += item
        if not below:
            return
        level = below
    raise Invalid(f"the JSON is nested more than {MOST_DEPTH} levels deep")


def _check_text(text: str) -> None:
    if "\x00" in text:
        raise Invalid("a text has a NUL character, which databases do not keep")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise Invalid("a text has half a surrogate pair, which is no character")


def _no_number(text: str) -> Any:
    raise ValueError(text)
