"""Fields that a state saves with its outcome."""

import pytest
from django.db import connection

from stator.models import Report
from tests.stator.running import work
from tests.testapp.power import Measure, Written

pytestmark = pytest.mark.django_db(transaction=True)


def measured(**values):
    """The fields of measures by their deed, after a worker has been at them."""
    for deed in values.pop("deeds"):
        Measure.objects.create(deed=deed)
    work(Measure)
    return {measure.deed: measure for measure in Measure.objects.all()}


def test_saved_fields_are_written_with_the_move_and_no_others():
    twin = Written.objects.create(about=1)
    one = measured(deeds=["move"])["move"]
    assert (one.state, one.size, one.found) == ("done", one.pk * 10, {"deed": "move", "\u00fc": [1, None]})
    assert (one.label, one.due, one.twin) == (f'it\'s {{{one.pk}}}, "quoted"', None, twin)
    assert one.not_saved == "kept"


def test_saved_fields_are_written_when_the_object_stays_but_not_after_an_error():
    found = measured(deeds=["wait", "raise"])
    assert (found["wait"].state, found["wait"].size) == ("new", found["wait"].pk * 10)
    assert (found["raise"].size, found["raise"].found, found["raise"].state_failures) == (1, None, 1)


def test_value_that_does_not_fit_is_an_error_of_its_own_object():
    if connection.vendor == "sqlite":
        pytest.skip("SQLite stores text of any length")
    found = measured(deeds=["move", "long"])
    assert (found["move"].state, found["move"].size) == ("done", found["move"].pk * 10)
    assert (found["long"].state, found["long"].label) == ("new", "none")
    assert "too long" in Report.objects.get().message


@pytest.mark.parametrize(("deed", "error"), [("text", "ValueError"), ("json", "TypeError")])
def test_value_that_its_field_does_not_take_is_an_error_of_its_own_object(deed, error):
    found = measured(deeds=["move", deed, "expression"])
    assert (found["move"].state, found["move"].size) == ("done", found["move"].pk * 10)
    # An expression is worked out by the database.
    assert (found["expression"].state, found["expression"].size) == ("done", 6)
    assert (found[deed].state, found[deed].size, found[deed].state_failures) == ("new", 1, 1)
    assert Report.objects.get().error == error
