"""Troubles: what stands still or needs people, one value for each cause."""

from stator.explain.troubles import Trouble, own_troubles
from tests.testapp.explained import Errand

TROUBLE = Trouble("stuck", "error", "testapp.Errand", "1 is stuck", "testapp.errand", detail="7")


def test_model_finds_its_own_in_the_database_that_is_asked_for(declare):
    asked = []
    declare(troubles=lambda using: asked.append(using) or iter([TROUBLE]))
    assert own_troubles(Errand, "other") == [TROUBLE]
    assert asked == ["other"]


def test_detail_follows_the_sentence_for_people_who_may_see_all_objects():
    assert TROUBLE.text == "1 is stuck: 7"
    assert Trouble("stuck", "error", "testapp.Errand", "1 is stuck").text == "1 is stuck"
