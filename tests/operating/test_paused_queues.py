"""A queue that nobody can be asked about: the remedy of its pause helps, whoever made it."""

import json

import pytest
from django.contrib.auth.models import User

from tasks.models import Queue
from tests.operating.tools import overview, shell

pytestmark = pytest.mark.django_db


def test_pause_by_somebody_who_is_gone_is_ended_by_its_remedy():
    User.objects.create_user("gone").delete()
    queue = Queue.objects.create(name="encode", actions_elsewhere=True)
    task = queue.publish("resize", {"image": 7}).task
    queue.pause(publish=False, claim=True, reason="the disk is full", author="gone")
    reason = task.explain()[0]
    assert reason.code == "claim_paused"
    assert reason.remedy == "Check whether its reason still holds, then resume."
    assert "Ask the person" not in overview() + shell("stator", "explain", "tasks.Task", str(task.pk))
    troubles = json.loads(shell("stator", "status", "tasks.Task", "--json"))["troubles"]
    [told] = [one for one in troubles if one["code"] == "queue_paused"]
    shell(*told["command"].split()[1:])
    assert "claim_paused" not in [one.code for one in task.explain()]
    assert "queue_paused" not in shell("stator", "status", "tasks.Task")
