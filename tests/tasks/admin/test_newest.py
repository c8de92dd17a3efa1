"""Large tables in the admin are searched among their newest rows."""

import pytest

from stator.admin import read_only
from tasks.models import Schedule
from tests.tasks.admin.schedules import LIST

pytestmark = pytest.mark.django_db


def test_search_finds_whole_names_and_parts_of_the_newest(admin_client, schedule, monkeypatch):
    monkeypatch.setattr(read_only, "SEARCHED", 1)
    for entity in ("eight", "nine", "ten"):
        Schedule.objects.create(name=f"of {entity}", entity=entity, queue=schedule.queue, action="act", period=60)

    def found(words):
        return {each.entity for each in admin_client.get(LIST, {"q": words}).context["cl"].result_list}

    assert found("te") == {"ten"}
    assert found("report") == {"seven"}
    assert found("seve") == set()
    assert found("ACT") == {"nine", "ten"}
    assert found("") == {"seven", "eight", "nine", "ten"}
