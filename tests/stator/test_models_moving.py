"""Moving objects by hand: what is written, by whom and why, and what is refused."""

import pytest
from asgiref.sync import async_to_sync

from stator.models import History, StatorModel
from tests.stator.holding import claimed, framework
from tests.stator.making import ago, change, raw, row
from tests.testapp.basic import Page, PageGraph

pytestmark = pytest.mark.django_db

ENDED = {"state_claim": None, "state_locked_until": None}


@pytest.mark.parametrize("state", [PageGraph.review, "review"])
def test_transition_perform_moves_the_object_and_shows_it(state):
    page = Page.objects.create(title="a")
    change(page, state_failures=3, state_attempts=7, state_crashes=2, state_next_attempt=ago(-60))
    claim = claimed(Page.objects.create(title="b")).stator
    page.transition_perform(state)
    assert (page.state, page.state_version, page.state_ready) == ("review", 1, True)
    assert (page.state_failures, page.state_attempts, page.state_crashes, page.state_next_attempt) == (0, 0, 0, None)
    assert framework(page)["state"] == "review"
    assert claim.still_mine()


def test_transition_perform_can_be_called_unbound():
    page = Page.objects.create(title="a")
    StatorModel.transition_perform(page, "published")
    Page.transition_perform(page, PageGraph.review)
    assert (row(page).state, row(page).state_version) == ("review", 2)


def test_transition_perform_keeps_unsaved_changes_of_other_fields():
    page = Page.objects.create(title="a")
    page.title = "b"
    page.transition_perform("review")
    assert page.title == "b"
    page.save()
    assert (row(page).title, row(page).state_version) == ("b", 1)


def test_transition_perform_may_lead_anywhere_and_records_who_and_why():
    page = Page.objects.create(title="a", state="published")
    page.transition_perform("draft", actor="eve", reason="typo")
    act = History.objects.get()
    assert (act.model_label, act.object_pk) == ("testapp.page", str(page.pk))
    assert (act.source, act.to, act.version, act.actor, act.reason) == ("published", "draft", 1, "eve", "typo")
    assert str(act) == f"testapp.page {page.pk}: published -> draft"


def test_versions_have_no_gaps():
    page = Page.objects.create(title="a")
    for state in ("review", "draft", "published"):
        page.transition_perform(state)
    page.state = "draft"
    page.save()
    Page.objects.filter(pk=page.pk).update(state="review")
    assert list(History.objects.order_by("version").values_list("version", "source", "to")) == [
        (1, "draft", "review"), (2, "review", "draft"), (3, "draft", "published"), (4, "published", "draft"),
        (5, "draft", "review"),
    ]  # fmt: skip
    assert row(page).state_version == 5


def test_moving_what_is_gone_does_nothing():
    page = Page.objects.create(title="a")
    raw(Page).all().delete()
    page.transition_perform("review")
    assert not History.objects.exists()


@async_to_sync
async def twins():
    page = await Page.objects.acreate(title="a")
    await page.atransition_perform("review", actor="eve")
    assert page.state == "review"
    assert await Page.atransition_perform_queryset(Page.objects.all(), "published", reason="all") == 1
    page.state = "draft"
    await page.asave()
    return page


def test_async_twins_do_the_same():
    found = row(twins())
    assert (found.state, found.state_version) == ("draft", 3)
