"""What is known of the models of one database: numbers that show problems. ``overview`` reads them."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from stator.graph.durations import longest, span
from stator.graph.states import State
from stator.rows.left import left_by
from stator.rows.news import HowFar
from stator.rows.problem import TOO_LONG, Problem
from stator.rows.workers import Worker, are_shown
from stator.survey.crew import Crew, served_for
from stator.texts import COUNTED

# Workers that are shown, live ones first, and objects that are listed for one worker, the longest-running first.
SHOWN, NAMED = 50, 3

# Claimed rows of a model that are read.
LEASED = 1000


@dataclass(frozen=True, slots=True)
class Held:
    """An object that a worker holds, with the seconds in its state, of its attempt, and since its lease ended.

    ``late`` is above 0 after its lease's end. ``progress``: how far the attempt is, if it said so and is shown.
    """

    pk: object
    state: str
    token: UUID
    age: float
    running: float
    late: float
    progress: HowFar | None = None


@dataclass(frozen=True, slots=True)
class Stuck:
    """An object that is in its state for longer than expected; ``age`` in seconds."""

    pk: object
    state: str
    age: float


@dataclass(frozen=True, slots=True)
class Far:
    """An object that is due in the far future, at ``due``."""

    pk: object
    due: datetime


@dataclass(slots=True)
class InState:
    """The objects in one state. ``oldest``: the longest stay in seconds. ``cut``: the counts ended at a limit.

    ``ready`` and ``resting`` are without the ``quarantined`` ones, and so are the waits.
    """

    name: str
    state: State | None = None
    ready: int = 0
    resting: int = 0
    leased: int = 0
    quarantined: int = 0
    stuck: int = 0
    oldest: float | None = None
    # Seconds since the first ready object was due, and the first that is due and not marked ready.
    waited: float | None = None
    unmarked: float | None = None
    cut: bool = False

    @property
    def unclaimed(self) -> int:
        """The number of objects in the state that nobody holds and that are not quarantined."""
        return self.ready + self.resting

    @property
    def count(self) -> int:
        """The number of objects in the state."""
        return self.unclaimed + self.leased + self.quarantined

    @property
    def heat(self) -> int:
        """From 0 (fine) to 3 (far too long), by ``expect_within``; always 0 without it."""
        expected = self.state.expect_within if self.state else None
        if self.oldest is None or not expected or not (self.state and self.state.automatic):
            return 3 if self.stuck else 0
        return sum(self.oldest > share * expected for share in (0.25, 0.5, 1.0))

    @property
    def longest_wait(self) -> float | None:
        """Seconds since the first object was due that is not claimed; None if there is none."""
        return longest((self.waited, self.unmarked))


@dataclass(slots=True)
class Depths:
    """A model: its states, its ready objects and how long the first has waited, held and stuck objects."""

    states: dict[str, InState]
    ready: int = 0
    waited: float | None = None
    quarantined: int = 0
    # The number of objects whose latest attempt failed, that nobody holds, and that are not quarantined.
    failing: int = 0
    # The number of objects in each state that this code does not know.
    unknown_states: Counter[str] = field(default_factory=Counter)
    held: list[Held] = field(default_factory=list)
    stuck: list[Stuck] = field(default_factory=list)
    # The number of objects in each state that are due in the far future, and the first of them.
    far: Counter[str] = field(default_factory=Counter)
    far_first: list[Far] = field(default_factory=list)

    @property
    def automatic(self) -> list[InState]:
        """The states whose objects workers attempt."""
        return [one for one in self.states.values() if one.state is not None and one.state.automatic]

    @property
    def unknown(self) -> int:
        """The number of objects in states that this code does not know."""
        return self.unknown_states.total()

    @property
    def unmarked(self) -> float | None:
        """Seconds since the first object was due that is not marked ready; None if there is none."""
        return longest(one.unmarked for one in self.states.values())

    @property
    def is_behind(self) -> bool:
        """Whether a due object has waited for too long."""
        return any((one.longest_wait or 0.0) > TOO_LONG for one in self.automatic)

    @property
    def leased(self) -> int:
        """The number of objects that workers hold."""
        return sum(one.leased for one in self.states.values())

    @property
    def late(self) -> int:
        """The number of leases that ran out and are not ended yet."""
        return sum(one.late > 0 for one in self.held)

    @property
    def stuck_count(self) -> int:
        """The number of objects that are known to be stuck."""
        return sum(one.stuck for one in self.states.values())

    @property
    def capped(self) -> set[str]:
        """The names of the numbers that ended at a limit: the true number may be larger."""
        numbers = ("ready", "failing", "quarantined", "unknown")
        bounded = {name for name in numbers if getattr(self, name) > COUNTED}
        bounded |= {"leased"} if len(self.held) >= LEASED else set()
        return bounded | ({"stuck"} if any(one.cut and one.stuck for one in self.states.values()) else set())


# The most failing objects of one model that are grouped by their errors, and the number of latest errors of all models
# among which those of objects that fail no more are found.
GROUPED = 1000


@dataclass(slots=True)
class ErrorGroup:
    """Errors of one model, of one type, raised at one place. ``failing``: keys of objects that still fail.

    ``log``: the last lines that the latest of these attempts logged.
    ``cut``: there may be more such objects. ``quarantined``: how many of them are quarantined.
    ``retried``: how many an operator has retried and no worker has attempted since. ``gave_up``: how many are in the
    state that objects enter after too many errors.
    """

    label: str
    fingerprint: str
    error: str
    state: str
    message: str = ""
    log: str = ""
    latest: float = 0.0
    count: int = 0
    attempts: int = 0
    failing: list[object] = field(default_factory=list)
    cut: bool = False
    quarantined: int = 0
    retried: int = 0
    gave_up: int = 0


@dataclass(slots=True)
class WorkerStatus:
    """One worker, with the seconds it was up and since its last heartbeat; ``runs`` has labels and objects."""

    worker: Worker
    status: str
    since: float
    heard: float
    runs: list[tuple[str, Held]] = field(default_factory=list)
    # Why no notifications reach it, by its name of the database.
    deaf: dict[str, str] = field(default_factory=dict)
    # How its process ended as a phrase, if the process that replaced it has published that.
    ending: str = ""

    @property
    def is_missed(self) -> bool:
        """Whether it fell silent, or has ended, and holds objects."""
        return self.status != "alive" and bool(self.runs)

    @property
    def silence(self) -> str:
        """For how long it is silent, or that it has ended, and how its process ended if that is known."""
        how = f" ({self.ending})" if self.ending else ""
        return (
            f"ended {span(self.heard)} ago{how}" if self.status == "stopped" else f"silent for {span(self.heard)}{how}"
        )

    @property
    def status_text(self) -> str:
        """Its status for people."""
        if self.status == "alive":
            return self.status
        return f"{self.silence}{f', holds {len(self.runs):,}' if self.runs else ''}"

    @property
    def shown(self) -> list[tuple[str, Held]]:
        """The objects that run longest."""
        return sorted(self.runs, key=lambda run: -run[1].running)[:NAMED]


@dataclass(slots=True)
class Workers:
    """Worker processes of one database.

    ``unread``: what of them could not be read, as in :class:`Survey`.
    """

    processes: list[WorkerStatus] = field(default_factory=list)
    unread: dict[str, Problem] = field(default_factory=dict)

    @property
    def shown(self) -> list[WorkerStatus]:
        """The workers that are shown: dead ones that hold objects, then live ones by name, then ended ones."""
        return sorted(self.processes, key=lambda one: (not one.is_missed, one.status, one.worker.name))[:SHOWN]

    def crew(self, label: str) -> Crew:
        """Return the workers that serve a model."""
        serving = [one for one in self.processes if label in one.worker.models]
        alive = [one.worker for one in serving if one.status == "alive"]
        live = len(alive)
        lives = ((one.heard + one.since, 0.0 if one.status == "alive" else one.heard) for one in serving)
        served = served_for(lives) if live else 0.0
        known = are_shown() and Worker._meta.label_lower not in self.unread
        return Crew(live, served, known, left_by(alive, label))

    @property
    def missed(self) -> list[WorkerStatus]:
        """The workers that fell silent, or have ended, and hold objects."""
        return [process for process in self.processes if process.is_missed]

    @property
    def orphaned(self) -> set[tuple[str, object]]:
        """The objects that they hold, by the label of the model and their key."""
        return {(label, held.pk) for process in self.missed for label, held in process.runs}
