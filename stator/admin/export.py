"""A list of the admin as CSV or JSON: the rows that its filters find, with its columns."""

import csv
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from html import unescape
from typing import TYPE_CHECKING, Any

from django.contrib.admin import ModelAdmin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import lookup_field
from django.core.exceptions import BadRequest, ObjectDoesNotExist, PermissionDenied
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.html import strip_tags

from stator.texts import COUNTED

if TYPE_CHECKING:
    from stator.admin.listing import AnyAddressAdmin, BoundedChangeList

# The parameter of an address that asks for a file, and the types of files.
AS = "stator_as"
TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json"}

# Rows that are read at once.
PART = 500

# A spreadsheet would run a text that begins with one of these as a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def exported(model_admin: "AnyAddressAdmin", request: HttpRequest) -> StreamingHttpResponse:
    """Return up to ``COUNTED`` rows of a list as a file that is sent while it is read."""
    if not model_admin.has_view_or_change_permission(request):
        raise PermissionDenied
    asked = request.GET.copy()
    kind = asked.pop(AS)[-1]
    asked.pop("p", None)
    request.GET = asked  # type: ignore[assignment]
    if kind not in TYPES:
        raise BadRequest(f"{AS} is {kind!r}; ask for {' or '.join(TYPES)}")
    try:
        shown: Any = model_admin.get_changelist_instance(request)
    except IncorrectLookupParameters as error:
        raise BadRequest("a filter of the list has a value that it cannot have") from error
    names = [getattr(name, "stator_field", name) for name in shown.list_display if name != "action_checkbox"]
    write = _as_csv if kind == "csv" else _as_json
    response = StreamingHttpResponse(write([_named(name) for name in names], _rows(shown, names)), TYPES[kind])
    name = f"{model_admin.opts.label_lower}.{kind}"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _named(name: object) -> str:
    return "object" if name == "__str__" else str(getattr(name, "__name__", name)).removeprefix("stator_")


def _rows(shown: "BoundedChangeList", names: list[str | Callable[..., object]]) -> Iterator[list[object]]:
    for start in range(0, COUNTED, PART):
        part = list(shown.queryset[start : start + PART])
        shown.enrich(part)
        for row in part:
            yield [row.pk, *(_value(row, name, shown.model_admin) for name in names)]
        if len(part) < PART:
            return


def _value(row: Model, name: str | Callable[..., object], model_admin: ModelAdmin) -> object:
    """Return what a column shows, without markup; None for nothing."""
    try:
        _, _, value = lookup_field(name, row, model_admin)
    except ObjectDoesNotExist:
        return None
    if value is None or isinstance(value, bool | int | float | datetime):
        return value
    text = unescape(strip_tags(str(value))).strip()
    return None if text == "\N{EM DASH}" else text


class _Echo:
    """A file for ``csv`` that returns what is written to it."""

    def write(self, text: str) -> str:
        """Return the text."""
        return text


def _as_csv(names: list[str], rows: Iterable[list[object]]) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(["key", *names])
    for row in rows:
        yield writer.writerow([_cell(value) for value in row])


def _cell(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _as_json(names: list[str], rows: Iterable[list[object]]) -> Iterator[str]:
    encoder = DjangoJSONEncoder(ensure_ascii=False)
    before = "["
    for row in rows:
        yield f"{before}\n{encoder.encode(dict(zip(['key', *names], row, strict=True)))}"
        before = ","
    yield "[]\n" if before == "[" else "\n]\n"
