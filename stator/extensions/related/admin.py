"""The circle of waiting that an object is in, on its page."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from django.contrib.admin import ModelAdmin
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from stator.admin import detail
from stator.admin.access import Pages
from stator.admin.detail import Moves
from stator.models import StatorModel
from stator.rows.meta import model_named
from stator.rows.problem import Numbers, Problem
from stator.texts import either


@dataclass(frozen=True, slots=True)
class CircleLink:
    """An object of a circle, with its address if the user may see it, and what it waits for the next one to be."""

    name: str
    url: str
    until: str
    here: bool


def circle_of(reasons: Iterable[Problem], pages: Pages) -> list[CircleLink]:
    """Return the circle of waiting that the object of these reasons is in, the object first; empty if there is none."""
    waits: list[Numbers] = next((reason.numbers["waits"] for reason in reasons if reason.code == "circle"), [])
    return [
        CircleLink(
            f"{one['model']} {one['pk']}", pages.page_of(model_named(one["model"]), one["pk"]) if number else "",
            either(one["until"]), not number,
        )
        for number, one in enumerate(waits)
    ]  # fmt: skip


def drawn(
    model_admin: ModelAdmin, request: HttpRequest, row: StatorModel, reasons: list[Problem], moves: Moves
) -> Iterator[SafeString]:
    """Yield the circle with links to its objects, if there is one."""
    if circle := circle_of(reasons, Pages(model_admin.admin_site, request)):
        yield render_to_string("stator/admin/circle.html", {"circle": circle})


# Above the picture.
detail.DRAWN.insert(0, drawn)
