"""The seams: what an extension may add to the core. The module of an extension says it before there are models."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # Graphs load the modules of extensions, and the models of extensions are loaded with the framework's own.
    from stator.conf import Settings
    from stator.db.interface import Claim, Ended, Moves, Operations
    from stator.graph import State
    from stator.graph.outcomes import Outcome

    # What ``begin`` of an extension returns for its ``end``.
    Begun = TypeVar("Begun", default=Any)
else:
    from typing import TypeVar

    Begun = TypeVar("Begun")


class Around(Protocol[Begun]):
    """What an extension does around the calls of one state's handler.

    It is made once for each model and state, when a worker is built. A call is for one object or, in a state with
    ``batch``, for several; in an atomic state it is the whole transaction. Its methods must not raise.
    """

    def begin(self, claims: "list[Claim]") -> Begun:
        """Do what comes before a call, in its context; return what :meth:`end` gets."""

    def end(
        self, claims: "list[Claim]", begun: Begun, ended: "Sequence[Ended]", error: BaseException | None = None
    ) -> None:
        """Do what comes after a call, in its context: it had these outcomes, or raised this error for all objects.

        If the transaction of a call was undone, the outcomes are those of the objects at fault: the others are
        attempted again.
        """

    def given_up(self, claim: "Claim", outcome: "Outcome") -> None:
        """Do what is to be done when nobody waits for a call any more; :meth:`end` may come later, or never."""


class AroundMoves(Protocol):
    """What an extension does after statements that move rows without a handler."""

    def moved(
        self, operations: "Operations", source: str, to: "State", moves: "Moves", *, reason: str, started: int
    ) -> None:
        """Do it after a statement that moved rows; ``started``: when it was sent, in nanoseconds of Unix time."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What an extension counts of attempts that it has kept something of, as a metric by model and ``by``."""

    name: str
    help: str
    by: str
    of: "Callable[[Claim], Mapping[str, int]]"


@dataclass(frozen=True, slots=True)
class ProcessCounts:
    """What an extension counts in a process, of a worker or of the site, as a metric by model and ``by``."""

    name: str
    help: str
    by: str
    counted: Counter[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """What an extension adds. Most is named by dotted paths, which are imported once there are models.

    ``further``: the modules of further extensions of the same app, which follow this one.
    ``connect``: the paths of functions that are called when Django has loaded all apps.
    ``conditions``: the paths of subclasses of :class:`~stator.db.conditions.Condition`, which say what rows may be
    claimed and held; they are imported once there are models.
    ``brought``: the paths of functions that return, for a store, what claims bring along, or None: a function that
    reads it for claims of the store that are made together (:data:`~stator.db.brought.Bring`).
    ``duties``: the paths of :class:`~stator.worker.duties.Duty` values, the chores that each worker does for rows in
    its scheduling passes, every ``SCHEDULE_INTERVAL`` seconds.
    ``upkeep``: the paths of :class:`~stator.worker.duties.Upkeep` values, done with each prune of the own tables.
    ``followers``: the paths of subclasses of :class:`~stator.rows.followers.Follower`, which say what follows when rows
    move, whoever moves them; imported in the same way.
    ``effects``: the paths of subclasses of :class:`~stator.db.effects.Effect`, which say what the record of outcomes
    writes beside the columns of the rows; moves without a handler ask them too. They are imported in the same way.
    ``parts``: the paths of functions that return what a worker has beside its loops, given the
    :class:`~stator.worker.worker.Worker` that is about to start: :class:`~stator.worker.parts.WorkerPart` values.
    ``around``: return what it does around the calls of a state's handler, given the label of the model, or None.
    ``moves``: return what it does after statements that move rows without a handler, or None.
    ``end``: called when a process of a worker ends.
    ``news``: the paths of :class:`~stator.rows.news.News` values, what attempts say of themselves while they run.
    ``admin``: the paths of modules that add to the pages of the admin site, imported with these.
    ``kinds``: the paths of :class:`~stator.models.ProblemKind` values, or of tuples of them, each with the fact that it
    needs: what can be wrong with objects, for ``explain()``, ``status``, ``doctor`` and the overview. They are imported
    when somebody asks.
    ``counters``: the paths of :class:`Counts` values, what a worker counts of ended attempts, and of
    :class:`ProcessCounts` values, what any process counts.
    ``gauges``: the paths of :class:`~stator.extensions.problems.surveyed.Gauge` values, metrics of the site.
    ``urls``: the paths of lists of URL patterns, which ``stator.urls`` includes.
    ``arguments``: the paths of modules with arguments of ``runstator``: ``add_arguments(parser)``, and
    ``take(options)``, which is called before anything is made that works. One that also has
    ``instead(command, runner, options)`` may work in place of the command, and returns its exit code, else None.
    ``commands``: the paths of modules with a subcommand of ``manage.py stator`` each, named like the module; what one
    has is in ``stator/commands/__init__.py``.
    ``looks``: the paths of functions that look at the tables of a database, for people who ask what is wrong.
    """

    name: str
    further: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    brought: tuple[str, ...] = ()
    duties: tuple[str, ...] = ()
    upkeep: tuple[str, ...] = ()
    followers: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    around: "Callable[[Settings, str, State], Around | None]" = lambda settings, label, state: None
    moves: "Callable[[Settings], AroundMoves | None]" = lambda settings: None
    end: "Callable[[Settings], object]" = lambda settings: None
    news: tuple[str, ...] = ()
    admin: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()
    gauges: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    looks: tuple[str, ...] = ()
