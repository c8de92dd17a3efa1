"""No page of the admin takes more statements when there are more rows, and none counts all of them."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin import ModelAdmin
from django.db.models import Value
from django.test import Client
from django.utils import timezone

from stator.db.looks import bounded
from stator.extensions.admin import sections
from stator.extensions.pauses.models import MAX_OBJECTS
from stator.models import Depth, History, Pause, Report, StatorModel, Stats, Worker
from stator.rows.meta import managed
from stator.survey import looks
from tests.queries import statements, unbounded
from tests.sizes import PATIENCE
from tests.stator.admin.requests import LIST
from tests.stator.making import ago, raw
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db

KEPT, LABEL = "/admin/stator/", "testapp.parcel"
OVERVIEW = f"{KEPT}overview/"
WORKER = 0xA1B2C3D4E5F6
# Of each; fewer and more than a page has.
FEW, MANY, PAGE = 1, 12, 10
# Of each so many: ready, stuck, failing, quarantined, parked and ended ones, and one that no code knows.
KINDS: tuple[dict[str, Any], ...] = (
    {"state_ready": True},
    {"state_ready": True, "state_changed": ago(8000)},
    {"state_ready": False, "state_failures": 1, "state_next_attempt": ago(-50000)},
    {"state_ready": False, "state_crashes": 3},
    {"state_ready": False, "state_next_attempt": ago(-90000), "state_changed": ago(8000)},
    {"state_ready": False, "state": "sent"},
    {"state_ready": False, "state": Value("smuggled")},
)
HELD = {
    "state_ready": False, "state_claim": UUID(int=WORKER << 80), "state_locked_until": ago(-50000),
    "state_attempted": ago(12),
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelAdmin, "list_per_page", PAGE)


@pytest.fixture(autouse=True)
def patient_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no look be cut short: on a busy machine, the one at all models may take 3 s, and then each is read alone."""
    for module in (looks, sections):
        monkeypatch.setattr(module, "bounded", partial(bounded, lock=PATIENCE, most=PATIENCE))


def fill(count: int) -> None:
    """So many parcels of each kind, as many that a worker holds, and as many rows of each list of what is kept."""
    keys: list[int] = []
    for kind in (*KINDS, HELD):
        parcels = raw(Parcel).bulk_create(Parcel() for _ in range(count))
        keys += [parcel.pk for parcel in parcels]
        raw(Parcel).filter(pk__in=keys[-count:]).update(**kind)
    own, failed = {"model_label": LABEL}, {"error": "ValueError", "message": "no such street", "state": "packed"}
    first, hour = first_key(), timezone.now().replace(minute=0, second=0, microsecond=0)
    last = keys[-count:]
    reports = [Report(**own, **failed, object_pk=key, fingerprint=key % 7) for key in keys]
    moves = [History(**own, object_pk=key, version=1, source="packed", to="stamped", stay=5.0) for key in last]
    errors = [History(**own, object_pk=first, version=key, source="packed", kind="error") for key in last]
    stats = [Stats(**own, hour=hour, source="packed", to=f"to {key}", handled=5, failed=1) for key in last]
    depths = [Depth(**own, minute=ago(60 * key), queued=key) for key in last]
    pauses = [Pause(**own, state="stamped", until=ago(-500)) for _ in last]
    workers = [Worker(id=f"{WORKER + key:x}", host="h", pid=1, version="1", models=[LABEL]) for key in last]
    for rows in (reports, moves, errors, stats, depths, pauses, workers):
        type(rows[0])._base_manager.bulk_create(rows)


def first_key() -> int:
    return int(raw(Parcel).order_by("pk")[0].pk)


def count_of(request: Callable[[], Any], status: int = 200, *, again: bool = False) -> int:
    """How many statements a request takes once what is cached per process is: at once if it was made before."""
    if not again:
        request()
    asked = statements(request, status)
    assert not unbounded(asked)
    return len(asked)


OF_KEPT: dict[str, Any] = {model._meta.model_name: model for model in (History, Report, Worker)}
LISTS = [
    LIST, f"{LIST}?state=packed", f"{LIST}?o=1",
    *(f"{LIST}?condition={each}" for each in ("leased", "failing", "stuck")),
    *(f"{KEPT}{each}/" for each in OF_KEPT),
    f"{KEPT}history/?kind=error", f"{KEPT}report/?q=ValueError",
]  # fmt: skip
PAGES = [
    "/admin/", *(f"{LIST}{{first}}/{each}/" for each in ("change", "history")), f"{LIST}add/", OVERVIEW,
    f"{OVERVIEW}?model=testapp.Parcel&period=month",
]  # fmt: skip


def counts_of(client: Client, urls: Iterable[str], *, again: bool = False) -> dict[str, int]:
    return {url: count_of(lambda: client.get(url), again=again) for url in urls}  # noqa: B023 (called at once)


def test_list_takes_no_more_statements_for_more_rows(admin_client: Client) -> None:
    """One more where there is more than one page: how many pages there are; and one for another page than the first."""
    fill(FEW)
    few = counts_of(admin_client, LISTS)
    fill(MANY)
    many = counts_of(admin_client, LISTS, again=True)
    second = {url: f"{url}{'&' if '?' in url else '?'}p=2" for url in LISTS}
    further = counts_of(admin_client, second.values(), again=True)
    assert {url: (few[url], count) for url, count in many.items() if count > few[url] + 1} == {}
    assert {url: further[second[url]] for url in LISTS if further[second[url]] > few[url] + 2} == {}


def test_page_takes_no_more_statements_for_more_rows(admin_client: Client) -> None:
    fill(FEW)
    urls = [url.format(first=first_key()) for url in PAGES]
    urls += [f"{KEPT}{name}/{model._base_manager.first().pk}/change/" for name, model in OF_KEPT.items()]
    few = counts_of(admin_client, urls)
    # All models are read together.
    assert few[OVERVIEW] < len(managed(StatorModel.subclasses))
    fill(MANY)
    assert counts_of(admin_client, urls, again=True) == few


@pytest.mark.parametrize(("name", "across"), [("stator_move", "1"), ("stator_pause", "0")])
def test_confirmation_takes_no_more_statements_for_more_rows(admin_client: Client, name: str, across: str) -> None:
    """For chosen rows, and for all rows that a filter finds."""

    def ask() -> Any:
        given = {"action": name, "index": "0", "select_across": across, "_selected_action": keys}
        return admin_client.post(LIST, given)

    fill(FEW)
    keys = list(raw(Parcel).values_list("pk", flat=True))
    few = count_of(ask)
    fill(MANY)
    keys = list(raw(Parcel).values_list("pk", flat=True)[:MAX_OBJECTS])
    # As in the list, for the act is done to what is in it.
    assert count_of(ask, again=True) <= few + 1
