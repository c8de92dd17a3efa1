"""The registry of actions. It needs no models, so ``tasks.action`` can be used anywhere."""

import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, fields
from functools import cached_property, partial, wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, Unpack

from stator.asynchronous import awaited
from stator.exceptions import UNFIT_FOR_FUTURES, passable
from stator.graph.backoff import MAX_SECONDS, Backoff
from stator.graph.options import is_backoff, is_number
from stator.texts import Json, JsonObject
from tasks.actions.options import ActionOptions, number_problem
from tasks.conf import DJANGO
from tasks.extensions.batches.context import KnowsBatch
from tasks.extensions.isolation.options import Isolated, IsolatedOption
from tasks.extensions.throttles.options import LimitOptions, Limits, Throttled
from tasks.failures import NoHandler
from tasks.messages import remedy_for

if TYPE_CHECKING:
    from stator.querysets import HeldClaim
    from tasks.models import Task

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., object])

# The delay after an error: seconds, or a function of the number of errors.
Delay: TypeAlias = Backoff | float | Callable[[int], float]

NAME = re.compile(r"[\w.-]{1,200}")

# The default back-off after errors.
BACKOFF = Backoff(base=5.0)

# Functions that find actions, by the prefix of the action's name. Arguments: the rest of the name, the queue, the data,
# of which only :func:`variant_of` decides.
finders: dict[str, Callable[[str, str, Json], "RegisteredAction"]] = {}

# Held while a thread creates the event of a context.
_making = threading.Lock()


class Context(
    KnowsBatch,  # tasks.extensions.batches
):
    """The attempt, as passed to an action with ``takes_context=True``.

    ``worker``: the name of the worker, from ``--name``, else its host and process.
    """

    __slots__ = ("_over", "_stopped", "claim", "task", "worker")

    def __init__(self, task: "Task", claim: "HeldClaim", worker: str) -> None:
        self.task, self.claim, self.worker = task, claim, worker
        self._over = False
        # Created on first use, because it costs more than the rest of the context.
        self._stopped: threading.Event | None = None

    @property
    def stopped(self) -> threading.Event:
        """An event that is set when the attempt is over."""
        with _making:
            stopped = self._stopped = self._stopped or threading.Event()
        # Checked after it exists: a thread that ended the attempt just before may not have seen it.
        if self._over:
            stopped.set()
        return stopped

    def end(self) -> None:
        """Mark the attempt as over."""
        self._over = True
        if self._stopped is not None:
            self._stopped.set()

    @property
    def attempt(self) -> int:
        """The number of this attempt; 1 is the first."""
        return self.claim.attempt

    def still_mine(self) -> bool:
        """Return whether the attempt may go on: it is not over, and the database says that the claim stands."""
        return not self._over and self.claim.still_mine()

    def extend(self, seconds: float) -> bool:
        """Extend the lease to ``seconds`` from now, within the timeout; return False if the claim has ended."""
        return not self._over and self.claim.extend(seconds)

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Say how far the attempt is; the worker's next heartbeat writes it."""
        self.claim.progress(done, total, text)

    def step(self, name: str, function: Callable[[], Result]) -> Result:
        """Call ``function`` and record what it returns; return the record, without a call, if an attempt has done so.

        As ``task.stator.step()``.
        """
        return self.claim.step(name, function)

    @awaited
    async def astep(self, name: str, function: Callable[[], Awaitable[Result]]) -> Result:
        """Do :meth:`step` with a coroutine function."""
        return await self.claim.astep(name, function)


@dataclass(frozen=True, kw_only=True)
class AttemptOptions(
    Limits,  # tasks.extensions.throttles
    Isolated,  # tasks.extensions.isolation
    ActionOptions,
):
    """How the attempts of an action are run: see :func:`action`."""

    timeout: float | None = None
    max_attempts: int | None = None
    backoff: Delay = BACKOFF
    local_retries: int = 0
    local_delay: float = 1.0

    def problems(self) -> Iterator[str]:
        """Yield one sentence for each option that cannot work."""
        for option in ("timeout", "local_delay"):
            if (value := getattr(self, option)) is None:
                continue
            if not is_number(value) or value <= 0:
                yield f"{option}={value!r} must be a number of seconds above 0"
            elif value > MAX_SECONDS:
                yield f"{option}={value!r} must be at most {MAX_SECONDS:.0f} seconds"
        yield from number_problem("max_attempts", self.max_attempts)
        yield from number_problem("local_retries", self.local_retries, 0)
        yield from super().problems()
        if not (is_backoff(self.backoff) or is_delay(self.backoff)):
            yield (
                f"backoff={self.backoff!r} must be a number of seconds, a function of the number of errors, "
                "or a stator.Backoff with seconds above 0, a factor of at least 1 and a jitter from 0 to 1"
            )


@dataclass(frozen=True, kw_only=True)
class RegisteredAction(
    Throttled,  # tasks.extensions.throttles
    AttemptOptions,
):
    """A function that tasks call by name, and how it is run: see :func:`action`."""

    name: str
    function: Callable[..., Any]
    queue: str = ""
    takes_context: bool = False
    errors_are_final: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"action {self.name!r}: {self.function!r} is not a function")
        for problem in self.problems():
            raise ValueError(f"action {self.name!r}: {problem}")

    @cached_property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    @cached_property
    def _signature(self) -> inspect.Signature | None:
        try:
            return inspect.signature(self.function)
        except ValueError:
            # A function in C may have none.
            return None

    def refuses(self, data: Json) -> str:
        """Return why the function cannot be called with a task's data; "" if it can."""
        if self._signature is None:
            return ""
        args, kwargs = ([], data) if isinstance(data, dict) else ([] if data is None else [data], {})
        try:
            self._signature.bind(*[None] * self.takes_context, *args, **kwargs)
        except TypeError as error:
            return str(error)
        return ""

    @cached_property
    def runs_on_loop(self) -> bool:
        """Whether the function is awaited on the event loop of its worker; else it is called in a thread."""
        return self.is_async and not self.called_by

    def arguments(self, context: Context) -> tuple[list[object], JsonObject]:
        """Return the positional and keyword arguments of the function."""
        data = context.task.data
        before: list[object] = [context] if self.takes_context else []
        if isinstance(data, dict):
            return before, data
        return [*before, *([] if data is None else [data])], {}

    def bound(self, context: Context) -> Callable[[], Any]:
        """Return the function with its arguments.

        Call it and keep it in no variable: error trackers show those of each frame, and the data may be secret.
        """
        args, kwargs = self.arguments(context)
        return partial(self.function, *args, **kwargs)

    def call(self, context: Context) -> object:
        """Call a synchronous function in this thread."""
        return self.bound(context)()

    def acall(self, context: Context) -> Coroutine[object, None, object]:
        """Call a coroutine function, and return the coroutine."""
        called: Coroutine[object, None, object] = self.bound(context)()
        return called

    @property
    def is_heard(self) -> bool:
        """Whether :meth:`begin` has anything to do; subclasses override it."""
        return False

    async def begin(self, context: Context) -> None:
        """Prepare an attempt before the function is called; subclasses override it."""

    async def backoff_after(self, error: BaseException, task: "Task") -> Delay | None:
        """Return the back-off after an error; None if the error is final. Subclasses override it."""
        return self.backoff

    def result_of(self, value: object) -> object:
        """Return the value to store as the task's result."""
        return value


ACTION_OPTIONS = frozenset(
    option.name for option in fields(RegisteredAction) if option.name not in ("name", "function", "errors_are_final")
)


class Registry(dict[str, dict[str, RegisteredAction]]):
    """Actions by name, then by queue; the empty name of a queue stands for all queues without an action of their own.

    ``derived``: what was computed of all actions since the last change of one; see :func:`of_registry`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.derived: dict[object, Any] = {}

    def __setitem__(self, name: str, by_queue: dict[str, RegisteredAction]) -> None:
        super().__setitem__(name, by_queue)
        # Replaced, because another thread may just compute from the actions before this change.
        self.derived = {}

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self.derived = {}


registry = Registry()

# Queues for which something is computed of all actions, before it is forgotten.
MAX_DERIVED = 1000


def of_registry(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return the function with its results cached until an action is registered: claims call it, with many actions."""

    @wraps(function)
    def cached(*args: str) -> Result:
        derived, key = registry.derived, (function, *args)
        cached_result = derived.get(key)
        if cached_result is None:
            if len(derived) >= MAX_DERIVED:
                derived.clear()
            cached_result = derived[key] = function(*args)
        return cached_result

    return cached


class DeclaredOptions(
    IsolatedOption,  # tasks.extensions.isolation
    LimitOptions,  # tasks.extensions.throttles
    TypedDict,
    total=False,
):
    """The options of :func:`action`."""

    queue: str
    takes_context: bool
    timeout: float | None
    max_attempts: int | None
    backoff: Delay
    local_retries: int
    local_delay: float


def action(name: str, **options: Unpack[DeclaredOptions]) -> Callable[[Function], Function]:
    """Register a function, sync or async, as the action ``name``; a call of the function is still a call.

    The function gets the task's data: an object as keyword arguments, null as no argument, anything else as one
    argument.

    ``queue``: only for tasks of this queue.
    ``takes_context``: whether the first argument is the attempt, a ``Context``.
    ``isolated``: run in a process of its own.
    ``timeout``: seconds, if the task has none.
    ``max_attempts``: how often it is attempted, if the task has no number; it cannot exceed the queue's. If the queue
    has none either, a process that has the action writes it into the tasks it publishes.
    ``backoff``: the delay after an error: a ``Backoff``, seconds, or a function of the number of errors.
    ``local_retries``: how many unexpected errors the same worker retries within an attempt.
    ``local_delay``: seconds between these retries.
    ``rate``: the most starts, as ``10/s`` or ``3/10m``, over all workers, for each key.
    ``concurrency``: the most attempts at once, over all workers, for each key.
    ``key``: for the rate and the concurrency: the name of a value in the data, or a function of the task.
    """
    if callable(name):
        raise TypeError(f"@tasks.action needs a name: @tasks.action({getattr(name, '__name__', 'name')!r})")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid name for an action; use 1 to 200 letters, digits, '_', '-' and '.'")
    for unknown in sorted(options.keys() - ACTION_OPTIONS):
        raise TypeError(f"action {name!r} has no option {unknown!r}; {remedy_for(unknown, ACTION_OPTIONS)}")

    def register(function: Function) -> Function:
        made = RegisteredAction(name=name, function=function, **options)
        by_queue = registry.get(name, {})
        known = by_queue.get(made.queue)
        if known is not None and _place(known.function) != _place(function):
            where = f" in queue {made.queue!r}" if made.queue else ""
            raise ValueError(
                f"action {name!r}{where} is {_place(known.function)} already, not {_place(function)}; rename one"
            )
        registry[name] = {**by_queue, made.queue: made}
        _refuse_celery(function, name)
        return function

    return register


def _refuse_celery(function: object, name: str) -> None:
    """Have the methods of Celery's tasks say what takes their place, unless the function has such."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise TypeError(f"an action is published, here: queue.publish({name!r}, data)")

    for method in ("delay", "apply_async"):
        if isinstance(function, FunctionType) and not hasattr(function, method):
            setattr(function, method, refuse)


def find(name: str, queue: str, data: Json = None) -> RegisteredAction:
    """Return the action with this name for a task of a queue; raise ``NoHandler`` if this process has none."""
    if name.startswith(DJANGO) and (finder := finders.get(DJANGO)):
        return finder(name.removeprefix(DJANGO), queue, data)
    if (action := declared(name, queue)) is None:
        raise NoHandler(f"no handler: this worker has no action {name!r} for queue {queue!r}")
    return action


def variant_of(data: Json) -> Json:
    """Return what of a task's data decides which of the actions of one name is found: the alias of its backend."""
    return data.get("backend") if isinstance(data, dict) else None


def declared(name: str, queue: str) -> RegisteredAction | None:
    """Return the action that this process has registered under that name for tasks of a queue."""
    named = registry.get(name, {})
    return named.get(queue) or named.get("")


def runs_on_loop(name: str) -> bool:
    """Return whether an action is known to need no thread: whatever its queue, it is a coroutine function.

    A task of Django's framework is known once this process has run it.
    """
    by_queue = registry.get(name)
    return all(each.runs_on_loop for each in by_queue.values()) if by_queue else name in django_on_loop


def actions_on_loop() -> frozenset[str]:
    """Return the names of the actions that run on the loop, by :func:`runs_on_loop`."""
    return frozenset(django_on_loop).union(filter(runs_on_loop, list(registry)))


# Tasks of Django's framework that are coroutine functions, as far as this process has run them.
django_on_loop: set[str] = set()


def contained(function: Callable[..., Result], *args: object) -> Result:
    """Call project code for a coroutine that awaits the result; raise no error that a future would not pass on."""
    try:
        return function(*args)
    except UNFIT_FOR_FUTURES as error:
        raise passable(error) from error


def _place(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def is_delay(value: object) -> bool:
    """Return whether the value is a valid delay in seconds."""
    return is_number(value) and 0 <= value <= MAX_SECONDS


@of_registry
def everywhere() -> frozenset[tuple[str, str]]:
    """Return all actions, each with its queue."""
    return frozenset((name, queue) for name, by_queue in registry.copy().items() for queue in by_queue)


@of_registry
def longest_timeouts() -> dict[str, float]:
    """Return the timeouts in seconds of the actions that have one, by name; the longest if it differs by queue."""
    longest: dict[str, float] = {}
    for name, by_queue in registry.items():
        timeouts = [MAX_SECONDS if each.timeout is None else float(each.timeout) for each in by_queue.values()]
        if any(each.timeout is not None for each in by_queue.values()):
            longest[name] = max(timeouts)
    return longest
