"""Pages and metrics read the replica that ``READ_ALIAS`` names, which the other database of the tests stands for."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import Client

from stator.overview import replica
from tasks.models import Queue
from tests.stator.admin.overviews import text_of
from tests.stator.admin.requests import LIST, act, move, page_of
from tests.stator.making import put, row
from tests.stator.test_metrics import METRICS, TOKEN
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db(databases=["default", "other"])

NOTE = "Read from the replica 'other'; how far it is behind is not known."
OWN_CHANGE = "Read from the primary database, to show what you have just done."


@pytest.fixture(autouse=True)
def other_is_read(settings: Any) -> Iterator[None]:
    settings.STATOR = {"READ_ALIAS": "other", "TOKEN": TOKEN}
    replica._latest.clear()
    yield
    replica._latest.clear()


@pytest.fixture
def here_and_there() -> tuple[Any, Any]:
    """A parcel of the default database, and one of the other."""
    return put(Parcel, address="here"), Parcel.objects.using("other").create(address="there")


def lag_is(monkeypatch: pytest.MonkeyPatch, lag: float | None) -> None:
    answers = {"default": "0/1", "other": lag}
    monkeypatch.setattr(replica, "_asked", lambda alias, query, parameters=(): answers[alias])


@pytest.mark.usefixtures("here_and_there")
class TestPages:
    def test_list_is_read_from_the_replica_and_says_so(self, admin_client: Client) -> None:
        page = text_of(admin_client, LIST)
        assert "parcel to there" in page
        assert "parcel to here" not in page
        assert NOTE.replace("'", "&#x27;") in admin_client.get(LIST).text
        assert "parcel to there" in text_of(admin_client, f"{LIST}?q=there&condition=ready&o=1")

    def test_overview_is_read_from_the_replica_and_says_so(self, admin_client: Client) -> None:
        put(Parcel)
        Queue.objects.using("other").create(name="dug there", actions_elsewhere=True)
        page = text_of(admin_client)
        assert NOTE in page
        assert "dug there" in page
        assert "packed 1 1 " in text_of(admin_client, part="models")

    def test_metrics_are_of_the_replica_under_the_name_of_its_database(self, client: Client) -> None:
        Parcel.objects.create()
        text = client.get(METRICS, headers={"Authorization": f"Bearer {TOKEN}"}).text
        assert 'stator_ready{model="testapp.parcel"} 1.0' in text
        assert 'stator_workers{database="default",status="alive"}' in text
        assert 'database="other"' not in text

    def test_user_sees_own_move_on_the_list_and_the_page_of_the_object(self, admin_client: Client) -> None:
        parcel = Parcel.objects.get(address="here")
        moved = move(admin_client, parcel)
        page = text_of(admin_client, moved.url)
        assert "parcel to here" in page
        assert OWN_CHANGE in page
        # The message is gone with the page that showed it.
        assert NOTE in text_of(admin_client, LIST)
        assert "delivered" in text_of(admin_client, page_of(parcel))
        assert "delivered" in text_of(admin_client, f"{page_of(parcel).removesuffix('change/')}stator/")

    def test_actions_find_and_change_rows_of_the_primary(self, admin_client: Client) -> None:
        parcel = Parcel.objects.get(address="here")
        assert "parcel to here" in act(admin_client, "stator_pause", parcel).text
        move(admin_client, parcel)
        assert row(parcel).state == "delivered"
        assert set(Parcel.objects.using("other").values_list("state", flat=True)) == {"packed"}


class TestSource:
    def test_no_replica_is_read_without_the_setting(self, settings: Any, admin_client: Client) -> None:
        settings.STATOR = {}
        assert replica.source_of("default") == replica.Source("default")
        assert "Read from" not in text_of(admin_client)

    def test_replica_is_of_the_database_that_it_is_named_for(self, settings: Any) -> None:
        settings.STATOR = {"READ_ALIAS": {"other": "default"}}
        assert replica.source_of("default").alias == "default"
        assert replica.source_of("other").alias == "default"

    @pytest.mark.parametrize(
        ("lag", "alias", "note"),
        [
            (0, "other", "Read from the replica 'other', which is up to date."),
            (2.25, "other", "Read from the replica 'other', 2.2 s behind."),
            (75.5, "default", "Read from the primary database: the replica 'other' is 1 m 15 s behind."),
        ],
    )
    def test_lag_is_shown_and_too_much_of_it_is_not_read(
        self, monkeypatch: pytest.MonkeyPatch, admin_client: Client, lag: float, alias: str, note: str
    ) -> None:
        lag_is(monkeypatch, lag)
        source = replica.source_of("default")
        assert (source.alias, source.note, source.lag) == (alias, note, lag)
        assert note in text_of(admin_client)
        text = admin_client.get(METRICS, headers={"Authorization": f"Bearer {TOKEN}"}).text
        assert f'stator_replica_lag_seconds{{database="default"}} {float(lag)}' in text

    def test_replica_that_is_away_is_replaced_by_the_primary(
        self, monkeypatch: pytest.MonkeyPatch, admin_client: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        put(Parcel, address="here")

        def ask(alias: str, query: str, parameters: Any = ()) -> None:
            if alias == "other":
                raise OperationalError("connection refused")

        monkeypatch.setattr(replica, "_asked", ask)
        for url in (LIST, "/admin/stator/overview/"):
            assert "Read from the primary database: the replica 'other' does not answer" in text_of(admin_client, url)
        assert "parcel to here" in text_of(admin_client, LIST)
        [told] = [one for one in caplog.records if one.message == "stator.replica_away"]
        assert (told.replica, told.why) == ("other", "connection refused")  # type: ignore[attr-defined]

    def test_pages_read_the_primary_if_the_setting_is_wrong(self, settings: Any, client: Client) -> None:
        """A wrong setting is an error of the checks; where these do not run, pages do not fail."""
        settings.STATOR = {"READ_ALIAS": "othr"}
        client.force_login(User.objects.create_superuser("ada"))
        assert client.get(LIST).status_code == 200
        assert replica.source_of("default") == replica.Source("default")
