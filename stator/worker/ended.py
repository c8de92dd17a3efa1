"""Where the attempts of a worker end: each is counted, and its outcome is recorded unless it is already."""

from stator.db.interface import Claim, Operations
from stator.graph.outcomes import Outcome
from stator.worker.executor import Attempted
from stator.worker.isolated.messages import IsolatedAnswer
from stator.worker.lanes import Lanes
from stator.worker.measures import Measures
from stator.worker.recorder import Recorder


class EndedAttempts:
    """The station between the attempts of a worker and its recorder. Each end leaves room, so it wakes the claims."""

    def __init__(self, measures: Measures, recorder: Recorder, lanes: Lanes) -> None:
        self._measures = measures
        self._recorder = recorder
        self._lanes = lanes

    def record(self, claim: Claim, outcome: Outcome) -> None:
        """Have the outcome of an attempt recorded."""
        self._measures.note(claim, outcome)
        self._recorder.add(claim, outcome)
        self._lanes.woken.set()

    def note_recorded(self, operations: Operations, attempted: Attempted) -> None:
        """Count outcomes that were recorded in the transaction of their handler."""
        for ended in attempted.recorded:
            self._measures.note(*ended)
        if attempted.written:
            self._recorder.note_recorded(operations, attempted.recorded, attempted.written)
        self._lanes.woken.set()

    def note_isolated(self, claim: Claim, answer: IsolatedAnswer) -> None:
        """Count an attempt that its process recorded; the answer is empty if the process died."""
        self._recorder.note_isolated(claim, answer)
        self._lanes.wake_after(claim.operations, set(answer.get("moved", ())))
