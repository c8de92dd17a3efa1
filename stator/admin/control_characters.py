"""Admin pages where stored text cannot hide or reorder other text, or move a cursor."""

import re
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpResponse, HttpResponseBase
from django.template.response import SimpleTemplateResponse
from django.urls import URLPattern

from stator.texts import CONTROL_OF_PAGES, spelled_out

_CONTROL = re.compile(f"{CONTROL_OF_PAGES}+")
# Form data that is sent back stays as it is, so that saving changes nothing.
_SHOWN = re.compile(
    rf"(<textarea\b.*?</textarea>|<(?:input|option|button)\b[^>]*>)|{CONTROL_OF_PAGES}+", re.DOTALL | re.IGNORECASE
)


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Shown = TypeVar("Shown", bound=Model, default=Any)

    class _Admin(admin.ModelAdmin[Shown]):
        """Django's class, of the rows of one model."""

else:
    from typing import TypeVar

    Shown = TypeVar("Shown")

    class _Admin(admin.ModelAdmin):
        def __class_getitem__(cls, item):
            """Return the class: ``StatorAdmin[Parcel]`` is for type checkers."""
            return cls


class SpellingAdmin(_Admin[Shown]):
    r"""Shows ``\u202e`` on all of its pages instead of a character that would change the order of those beside it."""

    @property
    def urls(self) -> list[URLPattern]:
        """All URLs, including URLs that subclasses add."""
        patterns = super().urls
        for pattern in patterns:
            # A pattern that includes other patterns has no callback.
            if callback := getattr(pattern, "callback", None):
                pattern.callback = _spelling(callback)
        return patterns


def _spelling(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    @wraps(view)
    def spelling_view(*args: object, **kwargs: object) -> HttpResponseBase:
        response = view(*args, **kwargs)
        if isinstance(response, SimpleTemplateResponse):
            response.add_post_render_callback(_spell_out)
        return response

    return spelling_view


def _spell_out(response: HttpResponse) -> None:
    text = response.content.decode(response.charset)
    if _CONTROL.search(text):
        response.content = _SHOWN.sub(lambda match: match[1] or spelled_out(match), text)
