"""The list of claims by named workers."""

import re

import pytest

from tasks.models import Run
from tests.stator.making import change
from tests.tasks.admin.pages import RUNS, page, text_of
from tests.tasks.making import claim_one, make_queue, make_task

pytestmark = pytest.mark.django_db


def test_claims_are_listed_and_filtered(admin_client):
    queue = make_queue(same_worker_again=True)
    for number, end in enumerate(("resolve", "fail", "release", "cancel", "")):
        make_task(queue, priority=number)
        claim = claim_one(queue, f"worker-of-{end or 'held'}")
        if end:
            getattr(claim, end)(*(["no such image"] if end == "fail" else []))
        if end:
            change(claim.task, state_ready=False)
    make_task(queue, priority=9)
    lost = claim_one(queue, "worker-of-lost")
    change(lost.task, state_claim=None, state_locked_until=None)
    ends = {"succeeded": "resolve", "failed": "fail", "released": "release", "canceled": "cancel"}
    for outcome, worker in (ends | {"held": "held", "lost": "lost"}).items():
        text = text_of(admin_client.get(RUNS, {"outcome": outcome}))
        assert set(re.findall(r"worker-of-(\w+)", text)) == {worker}
    assert "no such image" in text_of(admin_client.get(RUNS, {"q": "worker-of-fail"}))


def test_claims_are_only_read(admin_client):
    make_task(make_queue(), "running")
    run = Run.objects.get()
    assert admin_client.get(page(run)).status_code == 200
    for url, data in ((page(run), {"worker": "other"}), (f"{RUNS}{run.pk}/delete/", {"post": "yes"})):
        assert admin_client.post(url, data).status_code == 403
    assert Run.objects.get().worker == "maker"
