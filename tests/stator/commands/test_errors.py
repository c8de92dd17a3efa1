"""``stator errors``: the errors of objects that still fail, in groups."""

import pytest

from stator.models import Report
from tests.stator.commands.errands import LABEL, asked, refused, run, undo_line
from tests.stator.making import ago, put, raw
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)


def test_errors_are_grouped_and_one_group_is_retried_at_a_rate():
    errands = [put(Errand, state_ready=False, state_failures=1, state_next_attempt=ago(-3600)) for _ in range(3)]
    for errand, error in zip(errands, ("OSError", "OSError", "KeyError"), strict=True):
        Report.objects.create(
            model_label="testapp.errand", object_pk=str(errand.pk), state="new", error=error, message="gone",
            fingerprint=error,
        )  # fmt: skip
    assert [(one["id"], one["failing"]) for one in asked("errors", LABEL)] == [("OSError", 2), ("KeyError", 1)]
    assert f"stator retry {LABEL} --error OSError --per-minute 60" in run("errors")
    told = run("retry", LABEL, "--error", "OSError", "--per-minute", 30)
    assert told == f"2 of {LABEL} become due within 4 s, 30 a minute.\n{undo_line()}"
    assert [raw(Errand).get(pk=errand.pk).state_failures for errand in errands] == [0, 0, 1]
    assert "--error chooses the objects by itself" in refused("retry", LABEL, "--error", "OSError", "--failed")
