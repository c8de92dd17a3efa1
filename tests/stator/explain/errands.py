"""Errands that a worker holds, and the reasons why errands do not move."""

from stator.db.interface import new_token, new_worker_id
from stator.models import Report
from tests.stator.making import ago

WORKER = new_worker_id()


def held(by=WORKER, seconds=60):
    """The columns of a row that a worker holds."""
    return {
        "state_ready": False, "state_claim": new_token(by), "state_locked_until": ago(-seconds),
        "state_attempted": ago(5),
    }  # fmt: skip


def report(errand, **values):
    values = {"state": errand.state, **values}
    return Report.objects.create(model_label="testapp.errand", object_pk=str(errand.pk), **values)


def first(errand):
    return errand.explain()[0]


def codes(errand):
    return [reason.code for reason in errand.explain()]
