"""What workers count of steps."""

from collections.abc import Mapping

from stator.db.interface import Claim
from stator.extensions.steps.attempt import STEPS
from stator.seams import Counts


def _of(claim: Claim) -> Mapping[str, int]:
    steps = STEPS.of(claim)
    return {} if steps is None else {"recorded": steps.recorded, "reused": steps.reused}


STEPS_OF_ATTEMPTS = Counts("stator_worker_steps_total", "Durable steps of ended attempts.", "outcome", _of)
