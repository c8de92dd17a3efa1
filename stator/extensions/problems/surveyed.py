"""What is known of the models of one database: numbers that show problems, for kinds to find them."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db.models import Model

from stator.extensions.problems.starving import Starving
from stator.rows.meta import graph_of
from stator.rows.problem import Problem
from stator.rows.versions import Version
from stator.survey.crew import Crew
from stator.survey.estimates import Estimate, Pace
from stator.survey.numbers import Depths, ErrorGroup, InState, Workers

if TYPE_CHECKING:
    from stator.models import StatorModel


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One model: its depths, the workers that serve it, errors and what waits.

    ``versions``: the versions of its graph, in live workers and here. ``knowing``: the states that only other processes
    know, each with the names of the live workers that do. ``lacking``: why nothing can be read of its rows, and why
    workers leave it out. ``own``: the problems that the kinds of the model itself have found.
    """

    model: "type[StatorModel]"
    using: str
    depths: Depths
    crew: Crew
    groups: list[ErrorGroup] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    knowing: dict[str, list[str]] = field(default_factory=dict)
    # What kinds of problems have read of it, by their codes, and how many objects of each state they tell.
    read: dict[str, Any] = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    own: list[Problem] = field(default_factory=list)
    lacking: str = ""
    # What people have stored for its rows, by the table; and the automatic states that this leaves out as a whole.
    stored: dict[type[Model], list[Any]] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    # The automatic states whose objects wait because of a problem of an extension's kind.
    covered: set[str] = field(default_factory=set)
    # How fast its objects moved lately; None if nothing waits for long, or if that is not known.
    pace: Pace | None = None
    # A value of a field whose objects hold up those with others.
    starving: Starving | None = None

    @property
    def label(self) -> str:
        """The label of the model, as in ``manage.py stator``."""
        return str(self.model._meta.label)

    @property
    def live(self) -> int:
        """The number of live workers that serve it."""
        return self.crew.live

    @property
    def unknown_states(self) -> dict[str, int]:
        """The number of objects in each unknown state; workers move objects with a former name of a state."""
        renames = graph_of(self.model).renames
        return {name: count for name, count in self.depths.unknown_states.items() if name not in renames}

    def estimate(self, count: int, states: list[InState]) -> Estimate | None:
        """Return when so many of its objects in some states are done."""
        if self.pace is None or not self.live:
            return None
        return self.pace.estimate(count, [one.name for one in states], more=any(one.cut for one in states))

    @property
    def unserved(self) -> list[Problem]:
        """The groups of its ready objects that no worker process serves, which the model itself knows."""
        return [one for one in self.own if "group" in one.numbers]

    @property
    def unattended(self) -> list[InState]:
        """The states with objects that nobody holds and a worker has to move, unless these are left out as a whole.

        Objects with the former name of a state are among them: a worker gives them the new one, paused or not.
        """
        renames = graph_of(self.model).renames
        unknown = self.depths.unknown_states.items()
        former = [InState(name, renames[name], resting=count) for name, count in unknown if name in renames]
        return former + [
            one
            for one in self.depths.states.values()
            if one.unclaimed and one.state is not None and one.state.needs_worker
            and one.name not in self.left_out
        ]  # fmt: skip

    @property
    def needs_worker(self) -> bool:
        """Whether objects can move only with a worker and none serves the model; it may know workers of its own."""
        known = not self.unserved or any(one.numbers["reason"] == "no_worker" for one in self.unserved)
        return self.crew.is_missing and known and bool(self.unattended)


@dataclass(frozen=True, slots=True)
class Survey:
    """The models of one database by label, and its workers. ``older_errors``: there are errors in no group.

    ``unread``: the models, our own included, of which reading was cut short, by label in lower case.
    ``refusal``: why the database takes no writes, and the remedy after a semicolon.
    """

    using: str
    models: dict[str, Surveyed]
    workers: Workers
    groups: list[ErrorGroup]
    older_errors: bool
    unread: dict[str, Problem] = field(default_factory=dict)
    refusal: str = ""

    @property
    def readable(self) -> set[str]:
        """The models whose rows could be read."""
        return {label for label, one in self.models.items() if not one.lacking and label not in self.unread}


@dataclass(frozen=True, slots=True)
class Gauge:
    """A metric of an extension, with its labels. ``read``: yields its values in a survey by these; they are summed."""

    name: str
    labels: tuple[str, ...]
    help: str
    read: Callable[[Survey], Iterable[tuple[tuple[str, ...], float]]]
