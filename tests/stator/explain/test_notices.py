"""Notices: groups of ready objects that no live worker serves, as the model itself finds them."""

import pytest

from stator.explain.notices import Notice, notices_of
from tests.testapp.explained import Errand


def test_model_finds_its_own_in_the_database_that_is_asked_for(declare):
    found = Notice("no_worker", "mail", 3, "3 wait.")
    asked = []
    declare(notices=lambda using: asked.append(using) or iter([found]))
    assert notices_of(Errand, "other") == [found]
    assert asked == ["other"]


@pytest.mark.parametrize(("count", "more", "text"), [(3, False, "3"), (1000, True, "1,000+")])
def test_number_that_may_be_larger_has_a_plus(count, more, text):
    assert Notice("no_worker", "mail", count, "They wait.", more=more).counted == text
