"""Times in columns without a zone: those of the database and those of Python are in the same one."""

from datetime import timedelta

import pytest
from django.db import connection, connections
from django.utils import timezone

from stator.checks.databases import check_rows
from stator.models import History, Pause, Report, Stats
from stator.rows.clock import Now, seconds_ahead
from stator.survey.depths import depths
from stator.testing import drain
from stator.worker.startup import clock_remedy
from tests.stator.making import put, raw
from tests.testapp.basic import Step
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db
ZONES = ["America/St_Johns", "Australia/Sydney"]


@pytest.fixture(params=ZONES)
def naive(settings, request):
    settings.USE_TZ = False
    settings.TIME_ZONE = request.param
    assert timezone.is_naive(timezone.now())
    return request.param


@pytest.fixture(params=ZONES)
def kept_in(settings, request):
    """A site with time zones, whose database is in one of its own."""
    if connection.vendor == "mysql":
        pytest.skip("its session would have to be in that zone, too")
    before = connection.settings_dict["TIME_ZONE"]
    set_zone(request.param)
    yield request.param
    set_zone(before)


def set_zone(name):
    database = connections["default"]
    database.settings_dict["TIME_ZONE"] = name
    for cached in ("timezone", "timezone_name"):
        database.__dict__.pop(cached, None)
    database.ensure_timezone()


def check():
    """An object that is due in an hour, its age, and whatever else the database says of the time."""
    early = Parcel.objects.create()
    bulk, late = Parcel.objects.bulk_create([Parcel(), Parcel(state_next_attempt=timezone.now() + timedelta(hours=1))])
    soon = Parcel.objects.create(state_next_attempt=timezone.now() - timedelta(seconds=5))
    for parcel in (early, bulk, late):
        assert 0 <= raw(Parcel).get(pk=parcel.pk).state_age < 60
        assert 0 <= parcel.state_age < 60
    assert set(Parcel.stator.ready()) == {early, bulk, soon}
    recent = Parcel.objects.filter(state_changed__gte=timezone.now() - timedelta(minutes=1))
    assert recent.count() == Parcel.objects.count()
    assert 3500 < next(r for r in late.explain() if r.code == "not_due").numbers["next_attempt_in"] <= 3600
    failing = Parcel.objects.create(orders="fail", address="no number")
    drain(Parcel)
    assert raw(Parcel).get(pk=late.pk).state == "packed"
    assert not raw(Parcel).filter(state="packed").exclude(pk__in=[late.pk, failing.pk]).exists()
    early.refresh_from_db()
    assert 0 <= early.state_age < 60
    Parcel.stator.pause(seconds=3600)
    pause = Pause.objects.get()
    raw(Parcel).filter(pk=late.pk).update(state_next_attempt=None)
    put(Step)
    Step.stator.move("done", actor="ada")
    moments = {
        "pause": pause.until - timedelta(hours=1), "created": pause.created, "history": History.objects.latest("pk").at,
        "now": Parcel.objects.values_list(Now(), flat=True)[0], "report": Report.objects.get().at,
    }  # fmt: skip
    for name, moment in moments.items():
        assert abs((timezone.now() - moment).total_seconds()) < 60, name
    # Of the month: hours are whole ones of UTC, and some zones are half an hour off.
    assert Stats.get_for_model(Parcel).most_recent_handled()[2] >= 3


def test_site_without_time_zones(naive):
    if connection.vendor == "mysql" and seconds_ahead(connection):
        pytest.skip("its session has to be in that zone, too, as E305 says")
    check()


def test_database_in_a_zone_of_its_own(kept_in):
    check()


def test_remedy_names_the_zone(settings):
    assert clock_remedy("default").endswith("'+00:00'\"")
    settings.USE_TZ, settings.TIME_ZONE = False, "Australia/Sydney"
    assert clock_remedy("default").endswith("'Australia/Sydney'\"")


@pytest.mark.sqlite
@pytest.mark.parametrize("text", ["2020-01-01", "2020-01-01T10:00:00+00:00", "2020-01-01T10:00:00.123456"])
def test_times_that_another_program_wrote_are_read_in_all_forms_of_sqlite(text):
    """On SQLite a time is text; Django's own difference of two times fails at these."""
    moving, due = Parcel.objects.create(), Parcel.objects.create(state_next_attempt=timezone.now() + timedelta(hours=1))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_parcel SET state_changed = %s", [text])
        cursor.execute("UPDATE testapp_parcel SET state_next_attempt = '2100-01-01' WHERE id = %s", [due.pk])
    years = (timezone.now() - timezone.now().replace(year=2020, month=1, day=1)).total_seconds()
    assert list(check_rows([Parcel], "default")) == []
    [packed] = [one for one in depths(Parcel.stator.all()).states.values() if one.count]
    assert abs(packed.oldest - years) < 2 * 86400
    drain(Parcel)
    assert raw(Parcel).get(pk=moving.pk).state != "packed"
    assert abs(Stats.get_for_model(Parcel).time_in_states()["packed"].longest - years) < 2 * 86400
