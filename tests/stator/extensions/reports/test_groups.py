"""Errors by their fingerprint."""

import pytest

from stator.extensions.reports import groups as errors_module
from stator.extensions.reports.groups import fingerprinted, groups
from stator.models import Report
from stator.querysets import OperatorQuerySet
from stator.survey.looks import Looks
from tests.stator.making import ago, put
from tests.testapp.operators import Letter, Parcel

pytestmark = pytest.mark.django_db


ROWS = {model._meta.label_lower: OperatorQuerySet(model, using="default") for model in (Parcel, Letter)}


def all_groups():
    with Looks("default") as looks:
        return groups("default", ROWS, None, looks)


def failing(fingerprint="aa", error="ValueError", message="no", model=Parcel, at=10, **columns):
    row = put(model, state_ready=False, state_failures=1, **columns)
    report(row, fingerprint, error, message, at)
    return row


def report(row, fingerprint="aa", error="ValueError", message="no", at=10):
    Report.objects.create(
        model_label=row._meta.label_lower, object_pk=str(row.pk), state=row.state, error=error, message=message,
        fingerprint=fingerprint, at=ago(at), times=2,
    )  # fmt: skip


class TestGroups:
    def test_are_of_one_model_and_one_fingerprint_most_failing_first(self):
        few = failing("bb", "KeyError")
        many = [failing("aa"), failing("aa")]
        letter = failing("aa", model=Letter, number="x")
        found, older = all_groups()
        assert [(group.label, group.fingerprint, sorted(group.failing)) for group in found[:1]] == [
            ("testapp.parcel", "aa", [row.pk for row in many])
        ]
        assert {(group.label, group.error, tuple(group.failing)) for group in found[1:]} == {
            ("testapp.parcel", "KeyError", (few.pk,)),
            ("testapp.letter", "ValueError", (letter.pk,)),
        }
        assert not older

    def test_tell_the_latest_message_and_how_often_it_was_said(self):
        failing(message="old", at=500)
        failing(message="new", at=20)
        [[group], _] = all_groups()
        assert (group.message, group.count, group.attempts) == ("new", 2, 4)
        assert 20 <= group.latest < 400

    def test_objects_that_fail_no_more_are_counted_but_not_failing(self):
        report(put(Parcel, state="delivered", state_ready=False))
        report(put(Parcel))
        [[group], _] = all_groups()
        assert (group.count, group.failing) == (2, [])

    def test_keys_that_the_model_cannot_have_any_more_are_left_out(self):
        failing()
        Report.objects.create(model_label="testapp.parcel", object_pk="x-y", error="ValueError", fingerprint="aa")
        [[group], _] = all_groups()
        assert (group.count, len(group.failing)) == (2, 1)

    def test_of_objects_that_fail_no_more_only_the_latest_are_read(self, monkeypatch):
        monkeypatch.setattr(errors_module, "GROUPED", 2)
        report(put(Parcel, state="delivered", state_ready=False), "aa", at=30)
        report(put(Parcel, state="delivered", state_ready=False), "bb", at=20)
        report(put(Parcel, state="delivered", state_ready=False), "cc", at=10)
        found, older = all_groups()
        assert ({group.fingerprint for group in found}, older) == ({"bb", "cc"}, True)

    def test_noisy_model_hides_no_failing_object_of_another(self, monkeypatch):
        monkeypatch.setattr(errors_module, "GROUPED", 2)
        letter = failing("dd", "KeyError", "no stamp", model=Letter, at=500, number="x")
        for _ in range(3):
            failing()
        noisy, other = all_groups()[0]
        assert (noisy.label, len(noisy.failing), noisy.cut) == ("testapp.parcel", 2, True)
        assert (other.failing, other.error, other.message, other.cut) == ([letter.pk], "KeyError", "no stamp", False)


class TestFingerprinted:
    def test_gives_what_fails_in_pages(self):
        rows = [failing() for _ in range(5)]
        failing("bb")
        pages = list(fingerprinted("default", ROWS["testapp.parcel"], "aa", 2))
        assert [len(page) for page in pages] == [2, 2, 1]
        assert sorted(pk for page in pages for pk in page) == [row.pk for row in rows]
