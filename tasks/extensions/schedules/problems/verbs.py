"""What a schedule offers of problems, as ``tasks.extensions.problems.verbs`` does of a task."""

from typing import TYPE_CHECKING

from stator.models import Reason, StatorModel, moment_text
from tasks.extensions.schedules.ticking import WAITS_FOR_RATE

if TYPE_CHECKING:
    from tasks.extensions.schedules.schedules import Schedule


def explain(self: "Schedule") -> list[Reason]:
    """Return why the schedule is not moving; of a tick that waits for its rate, the rate and its turn."""
    return [_with_rate(self, reason) for reason in StatorModel.explain(self)]


def _with_rate(schedule: "Schedule", reason: Reason) -> Reason:
    said = str(reason.numbers.get("message", ""))
    if reason.code != "last_said" or not schedule.rate_limit or not said.startswith(WAITS_FOR_RATE):
        return reason
    until = f" at {moment_text(schedule.held_until)}" if schedule.held_until else ""
    sentence = (
        f"Its tick waits for its turn{until}: schedules with rate_key {schedule.rate_key!r} have rate_limit "
        f"{schedule.rate_limit:g} a second."
    )
    numbers = {"rate_key": schedule.rate_key, "rate_limit": schedule.rate_limit}
    return Reason("throttled", sentence, numbers, "Wait, or raise rate_limit of the schedule; a retry does not help.")
