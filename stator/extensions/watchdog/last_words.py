"""Where the attempts hang for which a process ends itself: written to the reports of their objects."""

import logging
import re
import sys
import traceback
from collections.abc import Collection, Iterator
from threading import Thread
from types import FrameType

from django.db import connections

from stator.db.interface import Claim
from stator.graph.failures import HUNG_AT, MESSAGE_LENGTH, TRACEBACK_LENGTH, bounded, hung
from stator.rows.followers import followers_of
from stator.rows.workers import worker_of
from stator.texts import one_line
from stator.worker import executor
from stator.worker.connections import own_connections

logger = logging.getLogger("stator.worker")

# The module whose functions call handlers; their ``claims`` are of the attempt.
EXECUTOR = executor.__file__

# A call in what ``faulthandler`` writes; the innermost comes first, and an empty line between threads.
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)

# Attempts that are reported at most, the calls of each that are stored, and seconds that all reports may take.
MOST, CALLS, SECONDS = 20, 30, 2.0


def report_hanging(trouble: str, threads: Collection[int]) -> None:
    """Store where the attempts in these threads hang; give up after ``SECONDS``. The caller ends the process then."""
    writing = Thread(target=_report, args=(trouble, list(_hanging(threads))[:MOST]), daemon=True)
    writing.start()
    writing.join(SECONDS)


def report_held(claim: Claim, stacks: str) -> None:
    """Store where an attempt in a process of its own hung; write the stacks to the error output.

    ``stacks``: what ``faulthandler`` wrote before it ended that process, because the attempt held the interpreter.
    """
    sys.stderr.write(stacks)
    _report("the attempt held the interpreter, so its process was ended", [([claim], _calls_in(stacks))])


def _calls_in(stacks: str) -> traceback.StackSummary:
    """Return the calls of the handler in the thread that makes an attempt, the innermost last."""
    for thread in stacks.split("\n\n"):
        calls = [(path, int(line), name) for path, line, name in FRAME.findall(thread)]
        deep = next((deep for deep, (path, _, _) in enumerate(calls) if path == EXECUTOR), 0)
        if deep:
            return traceback.StackSummary.from_list(
                [traceback.FrameSummary(path, line, name) for path, line, name in reversed(calls[:deep][:CALLS])]
            )
    return traceback.StackSummary()


def _hanging(threads: Collection[int]) -> Iterator[tuple[list[Claim], traceback.StackSummary]]:
    """Yield the claims of each attempt with the calls of its handler, the innermost last."""
    for ident, frame in sys._current_frames().items():
        if ident in threads and (attempt := _attempt_in(frame)):
            claims, depth = attempt
            yield claims, traceback.StackSummary.from_list(traceback.extract_stack(frame)[-depth:][-CALLS:])


def _attempt_in(frame: FrameType | None) -> tuple[list[Claim], int] | None:
    """Return the claims of the attempt that a thread makes, and how many calls deep its handler is."""
    depth = 0
    while frame is not None:
        if frame.f_code.co_filename == EXECUTOR and isinstance(claims := frame.f_locals.get("claims"), list):
            return claims, depth
        frame, depth = frame.f_back, depth + 1
    return None


def _report(trouble: str, hanging: list[tuple[list[Claim], traceback.StackSummary]]) -> None:
    own_connections(watch=False)
    try:
        for claims, calls in hanging:
            for claim in claims if calls else ():
                _report_one(claim, trouble, calls)
    except Exception as error:  # noqa: BLE001 - the process ends, with or without a report
        logger.warning("stator.report_failed", extra={"error": type(error).__name__, "message_text": one_line(error)})
    connections.close_all()


def _report_one(claim: Claim, trouble: str, calls: traceback.StackSummary) -> None:
    operations, last = claim.operations, calls[-1]
    place = f"{last.filename}:{last.lineno} {last.name}()"
    failure = hung(
        bounded(f"{trouble}; {HUNG_AT}{place}", MESSAGE_LENGTH),
        bounded("".join(calls.format()), TRACEBACK_LENGTH), f"{last.filename} {last.name}",
    )  # fmt: skip
    with operations.scope.enter(), operations.transaction():
        if operations.rows.filter(pk=claim.pk, state_claim=claim.token).exists():
            for follower in followers_of(operations.model):
                follower.hung(operations.alias, claim.pk, claim.state.name, failure, worker_of(claim.token))
