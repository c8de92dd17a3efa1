"""The spans: loaded by name, and only if the setting ``TRACING`` is on.

It needs a package that a project may not have, and uses only its API; the project configures the SDK or another
provider, and decides where the spans go.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from functools import cache

from opentelemetry import context, trace
from opentelemetry.context.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.util.types import AttributeValue

from stator import __version__
from stator.db.interface import Claim, Ended, Moves, Operations
from stator.graph import State
from stator.graph.failures import Failure, bounded, describe
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from stator.rows.records import REASON_LENGTH

logger = logging.getLogger("stator.worker")

# How many keys and errors a span of a batch names.
MAX_KEYS, MAX_ERRORS = 100, 10

# Seconds that the end of a worker waits for the export of spans.
FLUSH_TIME = 5.0


@cache
def tracer() -> "Tracer":
    """Return the tracer of this process."""
    return Tracer()


def flush() -> None:
    """Export ended spans if the provider can; the process may end without another chance."""
    force: Callable[[], object] | None = getattr(trace.get_tracer_provider(), "force_flush", None)
    if force is not None:
        # A thread does it, because a provider may ignore a timeout and try for long to reach a missing collector.
        thread = threading.Thread(target=_flush, args=(force,), name="stator-flush", daemon=True)
        thread.start()
        thread.join(FLUSH_TIME)


def _flush(force: Callable[[], object]) -> None:
    try:
        force()
    except Exception as error:  # noqa: BLE001 - whatever the project's processors raise; the worker has done its work
        _complain(error)


class Tracer:
    """One span for each call of a handler, current while that runs. Its attributes say how the call ended.

    The span of a call that is given up ends at once, because the handler may never return.
    """

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("stator", __version__)
        # Open spans by the id() of the first claim of the call; the code that removes a span ends it.
        self._open: dict[int, tuple[Span, list[Claim]]] = {}
        self._complained: set[type[Exception]] = set()

    def moved(self, operations: Operations, source: str, to: State, moves: Moves, *, reason: str, started: int) -> None:
        """Make the span of a statement that moved rows without a handler."""
        attributes = _attributes(operations, source, "move") | {
            "messaging.batch.message_count": moves.count, "stator.next_state": to.name, "stator.reason": reason,
        }  # fmt: skip
        name = f"move {operations.label}.{source}"
        try:
            self._tracer.start_span(name, kind=SpanKind.CONSUMER, attributes=attributes, start_time=started).end()
        except Exception as error:  # noqa: BLE001 - as above
            self._complain(error)

    def begin(self, claims: list[Claim]) -> Token[Context] | None:
        """Start the span of a call and make it current; return the token that restores the one before, or None."""
        try:
            operations, state = claims[0].operations, claims[0].state
            attributes = _attributes(operations, state.name, "attempt") | _attributes_of_claims(claims)
            name = f"attempt {operations.label}.{state.name}"
            span = self._tracer.start_span(name, kind=SpanKind.CONSUMER, attributes=attributes)
            self._open[id(claims[0])] = span, claims
            return context.attach(trace.set_span_in_context(span))
        except Exception as error:  # noqa: BLE001 - as above
            self._complain(error)
            return None

    def end(
        self,
        claims: list[Claim],
        begun: Token[Context] | None,
        ended: Sequence[Ended],
        error: BaseException | None = None,
    ) -> None:
        """Restore the span before, and end the span of a call unless it has ended: it tells how the call went."""
        if begun is not None:
            context.detach(begun)
        self._end(claims[0], ended, error)

    def given_up(self, claim: Claim, outcome: Outcome) -> None:
        """End the span of a call that nobody waits for any more: its objects have this outcome."""
        if id(claim) in self._open:
            self._end(claim, [(each, outcome) for each in self._open[id(claim)][1]])

    def _end(self, claim: Claim, ended: Sequence[Ended], error: BaseException | None = None) -> None:
        span, claims = self._open.pop(id(claim), (None, []))
        try:
            if span is not None and span.is_recording():
                _tell(span, ended, error, claims)
            if span is not None:
                span.end()
        except Exception as raised:  # noqa: BLE001 - as above
            self._complain(raised)

    def _complain(self, error: Exception) -> None:
        """Log the first error of each type; errors must neither affect the attempt nor fill the log."""
        if type(error) not in self._complained:
            self._complained.add(type(error))
            _complain(error)


def _complain(error: Exception) -> None:
    logger.warning("stator.tracing_failed", extra={"error": bounded(repr(error), REASON_LENGTH)})


def _attributes(operations: Operations, state: str, deed: str) -> dict[str, AttributeValue]:
    """Return attributes under OpenTelemetry's names for messaging, and under ours."""
    return {
        "messaging.system": "stator",
        "messaging.operation.name": deed,
        "messaging.operation.type": "process",
        "messaging.destination.name": f"{operations.label}.{state}",
        "messaging.client.id": operations.worker_id,
        "stator.model": operations.label,
        "stator.state": state,
        "stator.database": operations.alias,
    }


def _attributes_of_claims(claims: list[Claim]) -> dict[str, AttributeValue]:
    claim = claims[0]
    if claim.state.batch:
        return {"messaging.batch.message_count": len(claims), "stator.pks": _keys(claims)}
    return {
        "messaging.message.id": str(claim.pk),
        "stator.pk": str(claim.pk),
        "stator.attempt": claim.attempt,
        "stator.failures": claim.failures,
        "stator.claim": claim.token.hex,
    }


def _keys(claims: Sequence[Claim]) -> list[str]:
    return [str(claim.pk) for claim in claims[:MAX_KEYS]]


def _tell(
    span: Span, ended: Sequence[Ended], raised: BaseException | None = None, claims: Sequence[Claim] = ()
) -> None:
    """Set a span's outcome: its objects' outcomes, or the error that the call ``raised`` for its ``claims``."""
    if raised is not None:
        # Each object is then attempted by itself, with a span of its own.
        span.set_attribute("stator.outcome", "failed")
        _tell_failures(span, {describe(raised): claims})
        return
    words = Counter(_word(outcome) for _, outcome in ended)
    # Without outcomes, the claim of an atomic state had ended before, and the handler was not called.
    attributes: dict[str, AttributeValue] = {"stator.outcome": next(iter(words), "lost")}
    if len(words) > 1:
        attributes = {"stator.outcome": "mixed"} | {f"stator.outcomes.{word}": count for word, count in words.items()}
    targets = {outcome.to.name for _, outcome in ended if isinstance(outcome, Moved)}
    if len(targets) == 1:
        attributes["stator.next_state"] = targets.pop()
    if len(ended) == 1 and isinstance(waiting := ended[0][1], Waiting):
        attributes["stator.delay"] = waiting.delay
        if waiting.reason:
            attributes["stator.reason"] = bounded(str(waiting.reason), REASON_LENGTH)
    span.set_attributes(attributes)
    failures: dict[Failure, list[Claim]] = {}
    for claim, outcome in ended:
        if failure := outcome.failure:
            failures.setdefault(failure, []).append(claim)
    _tell_failures(span, failures)


def _word(outcome: Outcome) -> str:
    if isinstance(outcome, Released):
        return "released"
    return "failed" if outcome.failure else "moved" if isinstance(outcome, Moved) else "waits"


def _tell_failures(span: Span, failures: Mapping[Failure, Sequence[Claim]]) -> None:
    """Add errors as they are stored: bounded, and without credentials."""
    if not failures:
        return
    first = next(iter(failures))
    span.set_status(StatusCode.ERROR, f"{first.kind}: {first.message}")
    span.set_attribute("error.type", first.kind)
    for failure, claims in list(failures.items())[:MAX_ERRORS]:
        event: dict[str, AttributeValue] = {
            "exception.type": failure.kind,
            "exception.message": failure.message,
            "exception.stacktrace": failure.traceback,
        }
        if claims[0].state.batch:
            event["stator.pks"] = _keys(claims)
        span.add_event("exception", event)
