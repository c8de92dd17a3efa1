"""Unlock: what it asks before it ends a claim whose attempt may still run."""

import re

import pytest
from django.test import Client

from stator.db.interface import Claim
from stator.models import Pause, Worker
from stator.rows import columns
from stator.rows.workers import worker_of
from tests.stator.admin.requests import LIST, act, claim, seen_in, set_columns
from tests.stator.making import row
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


def held_by_a_worker(**columns_of_worker: object) -> tuple[Parcel, Claim]:
    """A parcel that a worker process holds."""
    parcel = Parcel.objects.create()
    held = claim(Parcel)
    worker = worker_of(held.token)
    Worker.objects.create(id=worker, host="web-1", pid=41, models=["testapp.parcel"], **columns_of_worker)
    return parcel, held


def confirm(client: Client, asked: object, parcel: Parcel, **data: str) -> str:
    posted = {"action": "stator_unlock", "index": "0", "_selected_action": [parcel.pk], "stator_confirmed": "1"}
    return client.post(LIST, {**posted, "stator_seen": seen_in(asked), **data}, follow=True).content.decode()


def test_tells_before_that_a_live_worker_runs_it(admin_client: Client) -> None:
    parcel, held = held_by_a_worker()
    asked = act(admin_client, "stator_unlock", parcel)
    text = asked.content.decode()
    assert re.search(rf"{parcel.pk}: attempt 1, which began \d+ s ago, is run by worker", text)
    assert "on web-1, process 41, which is alive; its lease has" in text
    assert "does not stop a handler that runs in a thread" in text
    assert 'value="Unlock and pause"' in text
    assert held.still_mine()


def test_unlocked_and_paused_no_worker_claims_it(admin_client: Client) -> None:
    parcel, held = held_by_a_worker()
    asked = act(admin_client, "stator_unlock", parcel)
    told = confirm(admin_client, asked, parcel, stator_and_pause="1", reason="runs wild")
    assert "1 parcel unlocked and paused." in told
    assert not held.still_mine()
    pause = Pause.objects.active().get()
    assert (pause.where, pause.reason, pause.actor) == ({"pk__in": [parcel.pk]}, "runs wild", "admin")
    # Not even by a worker that has not read the pause.
    assert not Parcel.stator.ready().exists()
    assert row(parcel).state_next_attempt is not None


def test_claim_of_another_worker_since_is_left_alone(admin_client: Client) -> None:
    parcel, _ = held_by_a_worker()
    asked = act(admin_client, "stator_unlock", parcel)
    Parcel.stator.unlock()
    later = claim(Parcel)
    told = confirm(admin_client, asked, parcel)
    assert f"0 parcels unlocked. 1 parcel was not changed (since you were asked: {parcel.pk} was claimed anew)" in told
    assert later.still_mine()


def test_worker_that_stopped_and_whose_lease_is_over_is_not_asked_about(admin_client: Client) -> None:
    parcel, held = held_by_a_worker(stopped=columns.after(-60))
    set_columns(parcel, state_locked_until=columns.after(-10))
    assert act(admin_client, "stator_unlock", parcel).status_code == 302
    assert not held.still_mine()
