"""How far attempts are: remembered by the claim, written by the heartbeat, shown while the claim is valid."""

import time

import pytest

from stator.extensions.problems.reasons import explain
from stator.extensions.progress.models import reached
from stator.models import Progress
from stator.rows.transitions import move_rows
from stator.worker.heartbeat import Heartbeat
from tests.stator.making import change, claim_all, operations_of, put, raw
from tests.testapp.models import Line

pytestmark = pytest.mark.django_db(transaction=True)

LABEL = "testapp.line"


def begun(age=60.0):
    """A claim whose attempt began so many seconds ago."""
    put(Line)
    [claim] = claim_all(operations_of(Line))
    claim.started = time.monotonic() - age
    return claim


def beat(*claims):
    Heartbeat(lambda: list(claims), list, 5.0).show_news()


def said(claim):
    explained = explain(Line, claim.pk, "default")
    return next((one.numbers.get("progress") for one in explained if one.code == "leased"), None)


def test_heartbeat_writes_the_latest_that_an_attempt_has_said_and_nothing_if_that_is_written(django_assert_num_queries):
    claim = begun()
    for page in range(41):
        claim.progress(page, 100, f"page {page} of 100, password=hunter2")
    beat(claim)
    wanted = {"done": 40.0, "total": 100.0, "percent": 40, "text": "page 40 of 100, password=***"}
    assert said(claim) == wanted
    with django_assert_num_queries(0):
        beat(claim)
    claim.progress(2.5)
    beat(claim)
    assert [str(row) for row in Progress.objects.all()] == [f"{LABEL} {claim.pk}: 2.50"]


def test_attempt_that_is_shorter_than_a_beat_or_has_ended_is_not_written(django_assert_num_queries):
    short, ended = begun(age=4.0), begun()
    ended.finished = time.monotonic()
    for claim in (short, ended):
        claim.progress(1, 2)
    with django_assert_num_queries(0):
        beat(short, ended)


def test_progress_counts_only_for_its_own_claim():
    claim = begun()
    claim.progress(1, 2)
    beat(claim)
    change(claim.instance, state_claim=None, state_locked_until=None, state_ready=True)
    [other] = claim_all(operations_of(Line))
    assert (other.pk, said(other)) == (claim.pk, None)
    # The same row is written for the attempt that runs now.
    other.started = claim.started
    other.progress(3)
    beat(other)
    assert said(other)["done"] == 3
    assert Progress.objects.count() == 1
    move_rows(raw(Line).filter(pk=claim.pk), "second")
    assert said(other) is None


def test_claim_that_is_extended_writes_what_was_said():
    claim = begun()
    claim.progress(1, 4, "one")
    assert claim.extend(30)
    assert said(claim)["percent"] == 25


@pytest.mark.parametrize("values", [(-1,), ("1",), (float("nan"),), (1, 0)])
def test_numbers_that_no_bar_can_show_are_refused(values):
    with pytest.raises(ValueError, match=r"progress\(\) takes"):
        reached(*values)


def test_numbers_and_texts_are_written_for_people():
    shown = Progress(done=1500, total=1000, text="")
    assert (shown.percent, shown.described) == (100, "1,500 of 1,000 (100 %)")
    assert Progress(done=7, text="files").described == "7, files"
