"""Faults for ``bin/mutants``: small changes of the modules that claim, lease, fence, record and stop, one at a time.

They are made from the source as it is, so nobody has to keep a list of them.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# The modules of the protocol, each with the test modules that should detect a fault, below ``tests``.
TESTS = {
    "stator/graph/outcomes.py": "stator/graph/test_outcomes.py stator/worker/test_executor_handlers.py",
    "stator/rows/columns.py": "stator/db/test_records.py stator/db/test_leases.py stator/db/test_chores.py "
    "stator/rows/test_transitions.py stator/extensions/related/test_waits.py stator/rows/test_fields.py "
    "stator/test_querysets.py",
    "stator/rows/transitions.py": "stator/rows/test_transitions.py stator/extensions/related/test_waits.py "
    "stator/extensions/related/test_watches.py stator/extensions/events/test_events.py",
    "stator/rows/followers.py": "stator/rows/test_followers.py stator/extensions/related/test_watches.py "
    "stator/extensions/events/test_events.py",
    "stator/extensions/related/followers.py": "stator/extensions/related/test_watches.py stator/rows/test_followers.py",
    "stator/extensions/reports/follower.py": "stator/rows/test_transitions.py stator/test_querysets.py",
    "stator/extensions/undo/follower.py": "stator/extensions/undo/test_undo.py",
    "stator/extensions/events/follower.py": "stator/extensions/events/test_events.py",
    "stator/rows/locking.py": "stator/rows/test_transitions.py stator/extensions/events/test_events.py",
    "stator/rows/managers.py": "stator/extensions/guard/test_columns.py stator/extensions/reconcile/test_reconcile.py",
    "stator/rows/claimable.py": "stator/rows/test_claimable.py stator/db/test_claims.py stator/db/test_leases.py",
    "stator/extensions/limits/models.py": "stator/extensions/limits/test_claims_limits.py",
    "stator/claims.py": "stator/test_claims.py",
    "stator/db/interface.py": "stator/db/test_interface.py stator/db/test_claims.py stator/db/test_records.py "
    "stator/db/test_leases.py stator/extensions/slices/test_slices.py stator/worker/test_attempts.py",
    "stator/db/claims.py": "stator/db/test_claims.py stator/extensions/limits/test_claims_limits.py "
    "stator/db/test_claims_ordering.py stator/extensions/related/test_waits.py stator/extensions/pauses/test_pauses.py",
    "stator/db/claims_postgresql.py": "stator/db/test_claims.py stator/db/test_claims_ordering.py",
    "stator/db/records.py": "stator/db/test_records.py stator/db/test_records_refused.py "
    "stator/extensions/reports/test_history_logs.py stator/extensions/reports/test_reports.py "
    "stator/extensions/related/test_waits.py",
    "stator/db/records_postgresql.py": "stator/db/test_records.py stator/db/test_records_refused.py "
    "stator/extensions/related/test_watches.py",
    "stator/db/leases.py": "stator/db/test_leases.py stator/db/test_rows_other_versions.py",
    "stator/db/chores.py": "stator/db/test_chores.py stator/extensions/related/test_waits.py",
    "stator/extensions/steps/attempt.py": "stator/extensions/steps/test_attempt.py",
    "stator/worker/attempts.py": "stator/worker/test_attempts.py stator/worker/test_executor_batches.py "
    "stator/worker/test_room.py",
    "stator/worker/executor.py": "stator/worker/test_attempts.py stator/worker/test_executor_atomic.py "
    "stator/worker/test_executor_batches.py stator/worker/test_executor_handlers.py",
    "stator/worker/recorder.py": "stator/worker/test_recorder.py stator/worker/test_executor_atomic.py "
    "stator/test_runner.py",
    "stator/worker/heartbeat.py": "stator/worker/test_heartbeat.py",
    "stator/worker/dispatcher.py": "stator/worker/test_dispatcher.py",
    "stator/extensions/isolation/crashes.py": "stator/extensions/isolation/test_crash_isolation.py",
    "stator/worker/scheduler.py": "stator/worker/test_scheduler.py stator/test_runner.py",
    "stator/worker/shutdown.py": "stator/worker/test_worker.py",
    "tasks/queue/claiming.py": "tasks/queue/test_claiming.py tasks/queue/test_held_claims.py "
    "tasks/queue/test_claiming_races.py tasks/extensions/shared/test_shared_tasks.py",
    "tasks/queue/held_claims.py": "tasks/queue/test_held_claims.py tasks/api/test_claims_many.py",
    "tasks/queue/eligibility.py": "tasks/queue/test_claiming.py tasks/queue/test_eligibility.py "
    "tasks/queue/test_eligibility_exclusive.py tasks/queue/test_process_eligibility.py",
}

COMPARED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
# In the text of statements.
SQL = (
    (" IS NULL", " IS NOT NULL"), (" IS NOT NULL", " IS NULL"), (" AND ", " OR "), (" < ", " >= "), (" <= ", " > "),
    (" + ", " - "), (" SKIP LOCKED", ""), ("NOT EXISTS", "EXISTS"), ("COALESCE(", "NULLIF("), (" DESC", ""),
)  # fmt: skip
FILTERS = {"filter", "exclude", "Q"}


@dataclass(frozen=True, slots=True)
class Fault:
    """The bytes from ``start`` to ``end`` of a file, which become ``new``."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {_short(self.old)} -> {_short(self.new)}"

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(f"tests/{path}" for path in TESTS[self.file].split())

    def in_source(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 70 else f"{line[:67]}..."


def faults_of(file: str, root: Path) -> list[Fault]:
    """Return each fault that can be made in a file, in their order there."""
    source = (root / file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    found = set()
    for node in _nodes(tree):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        old = source[start:end].decode()
        for new in _changed(node, old):
            if new != old:
                found.add(Fault(file, node.lineno, start, end, old, new))
    return sorted(found, key=lambda fault: (fault.start, fault.end, fault.new))


def _nodes(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Walk all but docstrings, annotations, and parts of formatted strings, which have no places of their own."""
    for name, value in ast.iter_fields(tree):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or name in ("annotation", "returns", "decorator_list"):
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue
            if isinstance(child, ast.expr | ast.stmt):
                yield child
            if not isinstance(child, ast.JoinedStr):
                yield from _nodes(child)


def _changed(node: ast.AST, old: str) -> Iterator[str]:
    """Yield what may stand in place of a node."""
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            written = ast.unparse(test)
            if old.count(written) and not isinstance(test, ast.Compare):
                yield old.replace(written, f"(not ({written}))", 1)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield f"{ast.unparse(left)} {COMPARED[type(op)]} {ast.unparse(right)}"
        case ast.BoolOp(op=op, values=values):
            word = " and " if isinstance(op, ast.And) else " or "
            for left_out in values:
                yield f"({word.join(ast.unparse(value) for value in values if value is not left_out)})"
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr(), right=right):
            yield from (ast.unparse(left), ast.unparse(right))
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            yield f"{ast.unparse(left)} {'-' if isinstance(op, ast.Add) else '+'} {ast.unparse(right)}"
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "pass"
        case ast.Dict(keys=keys, values=values) if len(keys) > 1:
            for key, value in zip(keys, values, strict=True):
                entries = [pair for pair in zip(keys, values, strict=True) if pair != (key, value)]
                yield ast.unparse(ast.Dict([k for k, _ in entries], [v for _, v in entries]))
        case ast.Call(func=func, args=args, keywords=keywords) if ast.unparse(func).rpartition(".")[2] in FILTERS:
            for keyword in keywords:
                kept = [each for each in keywords if each is not keyword]
                yield ast.unparse(ast.Call(func, args, kept))
        case ast.Constant(value=bool() as value):
            yield str(not value)
        case ast.Constant(value=int() as value):
            yield str(value + 1)
        case ast.JoinedStr() | ast.Constant(value=str()):
            for text, other in SQL:
                for place in re.finditer(re.escape(text), old):
                    yield old[: place.start()] + other + old[place.end() :]
