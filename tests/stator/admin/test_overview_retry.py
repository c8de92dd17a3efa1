"""The overview: the retry of one kind of error."""

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from stator.admin import overview as module
from stator.models import History
from tests.stator.admin.overviews import failing, retry
from tests.stator.making import ago, raw, row
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


def said(response: Any) -> str:
    return unescape(re.search(r'<ul class="messagelist">(.*?)</ul>', response.text, re.DOTALL)[1])  # type: ignore[index]


class TestRetry:
    def test_spreads_what_fails_with_one_error_over_time(self, operator: Client) -> None:
        parcels = [failing("aa") for _ in range(3)]
        other = failing("bb")
        response = operator.get(retry(operator, per_minute="2").url)
        assert "3 parcels become due over the next 2 minutes, 2 a minute." in said(response)
        due = [-(ago(0) - row(one).state_next_attempt).total_seconds() for one in parcels]
        assert [round(seconds, -1) for seconds in due] == [0, 30, 60]
        assert row(other).state_failures == 1
        assert {act.actor for act in History.objects.all()} == {"view_overview+view_parcel+change_parcel"}

    def test_ends_at_the_most_of_one_request_and_says_so(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MAX_RETRIED", 2)
        for _ in range(3):
            failing()
        assert "repeat it for the rest" in said(operator.get(retry(operator).url))
        assert raw(Parcel).filter(state_failures=0).count() == 2
        retry(operator)
        assert raw(Parcel).filter(state_failures=0).count() == 3

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ({"per_minute": "0"}, "per_minute: Ensure this value is greater than or equal to 0.1."),
            ({"per_minute": "1e9"}, "per_minute: Ensure this value is less than or equal to 1000000."),
            ({"model": "auth.User"}, "model: there is no managed model with this label"),
            ({"fingerprint": "x" * 17}, "fingerprint: Ensure this value has at most 16 characters"),
        ],
    )
    def test_refuses_nonsense_in_one_line(self, operator: Client, data: dict[str, str], message: str) -> None:
        parcel = failing()
        answer = said(operator.get(retry(operator, **data).url))
        assert f"Nothing was retried: {message}" in answer
        assert row(parcel).state_failures == 1
