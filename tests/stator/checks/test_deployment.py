"""Settings that suit development alone are found before deployment. Security rule S15."""

from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connection

from stator.checks.databases import check_clock, check_primary
from stator.worker.startup import Unusable, check_database
from tests.testapp.models import Line

pytestmark = pytest.mark.django_db


def found(deploy: bool = True) -> list[str]:
    messages = run_checks(tags=["stator"], databases=["default"], include_deployment_checks=deploy)
    return [str(message.id) for message in messages if not message.is_silenced()]


@pytest.mark.needs("related", "events")
def test_debug_is_a_warning_where_it_is_deployed_alone(settings: Any) -> None:
    settings.DEBUG = True
    assert (found(), found(deploy=False)) == (["stator.W401"], [])


@pytest.mark.needs("related", "events")
def test_transactions_around_requests_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert (found(), found(deploy=False)) == (["stator.W402"], [])


@pytest.mark.mariadb
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("zone", ["+01:00", "Europe/London"])
def test_clock_that_is_not_in_utc_is_an_error_for_checks_and_workers(zone: str) -> None:
    """Django has MariaDB's ``now()`` in the zone of the session, and reads it as UTC."""
    assert list(check_clock([Line], "default")) == []
    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = %s", [zone])
    [message] = check_clock([Line], "default")
    assert (message.id, message.hint) == (
        "stator.E305",
        """Set DATABASES['default']["OPTIONS"]["init_command"] = "SET time_zone = '+00:00'".""",
    )
    with pytest.raises(Unusable, match="clock is not in the time zone of its columns"):
        check_database([Line])
    assert list(check_clock([Line], "other")) == []
    connection.close()


def test_database_to_which_nothing_is_written_may_be_a_replica(django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(0):
        assert list(check_primary([Line], "other")) == []
