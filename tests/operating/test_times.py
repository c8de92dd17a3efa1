"""Times in one form on pages and in commands: the site's zone, or UTC by choice, with the zone named; JSON in UTC."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import override_settings
from django.urls import reverse
from django.utils import timezone

from stator.models import Pause, moment_text
from tasks.models import Queue, Schedule
from tests.operating.tools import overview, shell
from tests.stator.making import ago, put
from tests.testapp.operators import Letter, Parcel

pytestmark = pytest.mark.django_db

# A time with a date, as people read it; and any other way to write one.
MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}"
OTHER = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?!:\d\d [+-]\d{4})|\b(?:a\.m\.|p\.m\.|noon|midnight)|\d\s+(?:minute|hour)s?\b"
ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?"

ZONES = [(False, "+0545"), (True, "+0000")]


@pytest.fixture(params=ZONES, ids=["site", "UTC"])
def offset(request, settings):
    """The offset of the times that people read; the site is in Nepal, which is 5 h 45 m ahead."""
    settings.TIME_ZONE = "Asia/Kathmandu"
    is_utc, offset = request.param
    settings.STATOR = {**getattr(settings, "STATOR", {}), "UTC": is_utc}
    return offset


@pytest.fixture
def site():
    """Something with a time on each page: pauses, a manual action, a schedule, an object that is due far away."""
    letter, far = (
        put(Letter, number="7"),
        put(Parcel, state="stamped", state_ready=False, state_next_attempt=ago(-30 * 86400)),
    )
    Pause.objects.create(model_label="testapp.letter", until=timezone.now() + timedelta(days=3), actor="ada")
    queue = Queue.objects.create(name="deliver", actions_elsewhere=True)
    queue.claim_paused, queue.pause_until = True, timezone.now() + timedelta(days=3)
    queue.save()
    schedule = Schedule.objects.create(name="nightly", queue=queue, action="add", cron="0 3 * * *")
    shell("stator", "retry", "testapp.Letter", str(letter.pk))
    return letter, far, queue, schedule


def addresses(site):
    letter, far, queue, schedule = site
    return [
        reverse("admin:stator_overview_changelist"), reverse("admin:testapp_letter_changelist"),
        reverse("admin:testapp_letter_change", args=[letter.pk]),
        reverse("admin:testapp_parcel_change", args=[far.pk]),
        reverse("admin:stator_pause_changelist"), reverse("admin:stator_action_changelist"),
        reverse("admin:tasks_queue_change", args=[queue.pk]),
        reverse("admin:tasks_schedule_change", args=[schedule.pk]),
    ]  # fmt: skip


def test_pages_have_times_in_one_form(site, offset, admin_client):
    ahead = f'data-stator-ahead="{"345" if offset == "+0545" else "0"}"'
    for number, address in enumerate(addresses(site)):
        page = admin_client.get(address).text
        # Everything that goes on showing when it was updated has the zone for its script.
        live = page.count("data-stator-live=") + page.count("data-stator-list=")
        assert number == 0 or page.count(ahead) == live, address
        # What a form has to be filled in with is Django's.
        shown = re.sub(r"<form.*?</form>|<fieldset.*?</fieldset>|<script.*?</script>", "", page, flags=re.DOTALL)
        texts = re.sub(r"<[^>]+>", " ", shown)
        assert {moment[-5:] for moment in re.findall(MOMENT, texts)} <= {offset}, address
        assert re.findall(OTHER, texts) == [], address
        for written, told in re.findall(rf'datetime="({ISO}\+00:00)"[^>]*title="({MOMENT})"', page):
            assert moment_text(datetime.fromisoformat(written)) == told
    [updated] = re.findall(rf"Updated ({MOMENT})", " ".join(overview().split()))
    assert updated.endswith(offset)


def test_commands_print_the_same_form_and_json_is_in_utc(site, offset):
    explain = ("stator", "explain", "testapp.Parcel", str(site[1].pk))
    for given in (("stator", "status"), explain, ("tasks", "queues"), ("tasks", "schedules")):
        text = shell(*given)
        assert {moment[-5:] for moment in re.findall(MOMENT, text)} <= {offset}
        assert re.findall(OTHER, text) == []
        found = re.findall(rf"{ISO}(\S*?)\"", shell(*given, "--json"))
        assert {*found} <= {"+00:00"}


def test_moment_without_a_zone_is_of_the_site(settings):
    settings.TIME_ZONE = "Asia/Kathmandu"
    naive = timezone.make_naive(datetime(2026, 1, 31, 6, 15, tzinfo=UTC))
    assert moment_text(naive) == "2026-01-31 12:00:00 +0545"
    with override_settings(STATOR={"UTC": True}):
        assert moment_text(naive) == "2026-01-31 06:15:00 +0000"
        assert moment_text(naive.replace(tzinfo=UTC)) == "2026-01-31 12:00:00 +0000"
    assert json.loads(shell("stator", "doctor", "--json"))
