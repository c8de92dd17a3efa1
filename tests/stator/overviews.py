"""The page of the overview, and objects for it."""

import re
from html import unescape
from typing import Any
from uuid import UUID

from django.test import Client

from stator.models import Report, Worker
from tests.stator.making import ago, put
from tests.testapp.operators import Parcel

URL = "/admin/stator/overview/"
PARCELS = f"{URL}?model=testapp.Parcel"
WORKER = "a1b2c3d4e5f6"
TOKEN = UUID(int=(int(WORKER, 16) << 80) | 7)
HOSTILE = "<script>alert('x')</script>\u202e&\"'"


def failing(fingerprint: str = "aa", message: str = "no", error: str = "ValueError", **columns: Any) -> Any:
    parcel = put(Parcel, state_ready=False, state_failures=1, state_next_attempt=ago(-500), **columns)
    Report.objects.create(
        model_label="testapp.parcel", object_pk=str(parcel.pk), state="packed", error=error, message=message,
        fingerprint=fingerprint,
    )  # fmt: skip
    return parcel


def held(**columns: Any) -> Any:
    return put(
        Parcel, state_ready=False, state_claim=TOKEN, state_attempted=ago(12),
        **{"state_locked_until": ago(-60)} | columns,
    )  # fmt: skip


def worker(**columns: Any) -> Worker:
    given = {"id": WORKER, "host": "example", "pid": 42, "version": "1.2", "models": ["testapp.parcel"]}
    # It has been there for long, so what waits has waited for it.
    return Worker.objects.create(**given | {"database": "default", "started": ago(7200)} | columns)


def retry(client: Client, url: str = PARCELS, **data: Any) -> Any:
    return client.post(url, {"model": "testapp.Parcel", "fingerprint": "aa", "per_minute": "60", **data})


def text_of(client: Client, url: str = PARCELS, part: str = "") -> str:
    """Return the text of the page, or of one section, without markup."""
    page = client.get(url).text
    if part:
        page = re.search(rf'<section[^>]* id="stator-{part}".*?</section>', page, re.DOTALL)[0]  # type: ignore[index]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())
