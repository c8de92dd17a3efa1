"""Objects that have been found to wait for others."""

from stator.rows.due_times import parked
from tests.stator.making import claim_all, raw
from tests.testapp.waiting import Build, Rollout


def is_parked(rollout):
    return raw(Rollout).filter(parked(), pk=rollout.pk).exists()


def waiting(operations, **values):
    """A rollout that has been found to wait for a build that is being made."""
    build = Build.objects.create(slow=True)
    rollout = Rollout.objects.create(build=build, **values)
    assert claim_all(operations) == []
    assert is_parked(rollout)
    return build, rollout
