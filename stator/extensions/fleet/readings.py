"""What is read of the processes of a fleet: the versions that they run, and how they ended."""

from stator.extensions.fleet.process_exits import exits_in, processes_of
from stator.extensions.fleet.versions import Fleet
from stator.rows.readings import READINGS, Reading
from stator.rows.workers import Worker


def connect() -> None:
    """Add the readings."""
    READINGS["fleet"] = Reading(Worker, Fleet)
    READINGS["exits"] = Reading(Worker, exits_in)
    READINGS["processes"] = Reading(Worker, processes_of)
