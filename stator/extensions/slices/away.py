"""Nodes of Citus that do not answer: statements to them are given up, and they are left alone until they answer.

A node that hangs keeps its connections. So the coordinator waits for it without a limit, and ends no statement at its
``statement_timeout``. A statement of a worker that waits for long has the coordinator asked which nodes it reaches; if
the node with its rows is not among them, the connection to the coordinator is closed.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from django.db import DatabaseError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from stator.capabilities import capabilities_of
from stator.citus.watching import WATCH
from stator.db.interface import Operations
from stator.db.retry import is_of_remote
from stator.rows.problem import ERROR, OK, Problem
from stator.rows.spread import spread_field
from stator.statements import fetch_all
from stator.texts import counted
from stator.worker.parts import WorkerPart

if TYPE_CHECKING:
    from stator.worker.worker import Worker

logger = logging.getLogger("stator.worker")

# Seconds that a statement waits before the nodes are asked whether they answer, and a look of people's tools.
PATIENCE, OF_LOOKS = 2.0, 1.0

# Seconds that the coordinator tries to reach a node, and between its tries while a node does not answer.
REACHED_WITHIN, ASKED_EVERY = 2.0, 1.0

# Seconds without a statement for such a node after which nobody asks for it any more.
FORGOTTEN = 60.0

NODES = "SELECT nodename, nodeport FROM pg_catalog.pg_dist_node WHERE shouldhaveshards AND isactive ORDER BY nodeid"
REACHES = "SELECT pg_catalog.citus_check_connection_to_node(%s, %s)"
WITHIN = "SELECT set_config('citus.node_connection_timeout', %s, false)"
PLACE = """
SELECT nodename, nodeport FROM pg_catalog.pg_dist_shard_placement
WHERE shardid = pg_catalog.get_shard_id_for_distribution_column(to_regclass(%s), CAST(%s AS {kind}))
"""


class NodeAddress(NamedTuple):
    """The address of a node, as the coordinator knows it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Slot(NamedTuple):
    """The rows of one slice: the quoted table, and the value of its column with that column's type."""

    table: str
    kind: str
    value: Any


class Silence(Exception):
    """A node does not answer, so nothing was sent there."""

    sqlstate, of_remote, sent = "08006", True, False


class Nodes:
    """What this process knows of the nodes behind one database: which are silent, and where slices are.

    A thread asks the coordinator, over a new connection each time, because a known one would wait for the node as well.
    """

    def __init__(self, alias: str) -> None:
        self.silent: frozenset[NodeAddress] = frozenset()
        self._alias = alias
        self._places: dict[Slot, NodeAddress | None] = {}
        self._lock = threading.Condition()
        self._asked = 0.0
        self._is_asked = False
        self._thread: threading.Thread | None = None

    def ask(self, slot: Slot | None = None) -> None:
        """Have the nodes asked whether they answer, and where a slice is; return at once."""
        with self._lock:
            self._asked, self._is_asked = monotonic(), True
            if slot is not None:
                self._places.setdefault(slot, None)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="stator-nodes", daemon=True)
                self._thread.start()

    def among_silent(self, slot: Slot | None, connection: BaseDatabaseWrapper | None = None) -> frozenset[NodeAddress]:
        """Return the silent nodes of which a statement needs one: that with its slice, or all without a slice.

        With a ``connection``, the place of a slice is looked up if it is not known.
        """
        silent = self.silent
        if not silent or slot is None:
            return silent
        if connection is not None and self._places.get(slot) is None:
            self._places[slot] = _place(connection, slot)
        self._asked = monotonic()
        return silent & {self._places.get(slot)}

    def stop(self) -> None:
        """Ask no more: nobody works with the nodes."""
        with self._lock:
            self._asked = 0.0
            self._lock.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(REACHED_WITHIN)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._is_asked and not (self.silent and monotonic() - self._asked < FORGOTTEN):
                    self.silent = frozenset()
                    self._places.clear()
                    self._thread = None
                    return
                self._is_asked = False
            self._look()
            with self._lock:
                if self.silent and not self._is_asked:
                    self._lock.wait(ASKED_EVERY)

    def _look(self) -> None:
        """Ask each node. While the coordinator itself cannot be reached, no node is known to be silent."""
        try:
            answers = answers_of(self._alias)
            with _new_connection(self._alias) as connection:
                for slot in [slot for slot, node in list(self._places.items()) if node is None]:
                    self._places[slot] = _place(connection, slot)
            silent = frozenset(node for node, is_answer in answers.items() if not is_answer)
        except DatabaseError:
            silent = frozenset()
        self._note("stator.node_silent", logging.WARNING, silent - self.silent)
        self._note("stator.node_answers", logging.INFO, self.silent - silent)
        if self.silent - silent:
            # A slice may be elsewhere by the next time.
            self._places.clear()
        self.silent = silent

    def _note(self, event: str, level: int, nodes: Iterable[NodeAddress]) -> None:
        for node in sorted(nodes):
            logger.log(level, event, extra={"database": self._alias, "node": str(node)})


@cache
def nodes_of(alias: str) -> Nodes:
    """Return what this process knows of the nodes behind a database."""
    return Nodes(alias)


@contextmanager
def _new_connection(alias: str) -> Iterator[BaseDatabaseWrapper]:
    """Open a further connection: in a known one, the coordinator may keep a connection to the silent node."""
    connection = connections[alias].copy()
    connection.settings_dict["OPTIONS"].pop("pool", None)
    with _watching(None):
        try:
            yield connection
        finally:
            connection.close()


def answers_of(alias: str) -> dict[NodeAddress, bool]:
    """Return of each node whether it answers the coordinator."""
    with _new_connection(alias) as connection, connection.cursor() as cursor:
        cursor.execute(WITHIN, [f"{REACHED_WITHIN:.0f}s"])
        cursor.execute(NODES)
        nodes = {NodeAddress(*row): False for row in cursor.fetchall()}
        for node in nodes:
            cursor.execute(REACHES, node)
            nodes[node] = bool(cursor.fetchone()[0])
    return nodes


def _place(connection: BaseDatabaseWrapper, slot: Slot) -> NodeAddress | None:
    found = fetch_all(connection, PLACE.format(kind=slot.kind), [slot.table, slot.value])
    return NodeAddress(*found[0]) if found else None


class NodeWatch:
    """A statement, or several, of which somebody waits for the nodes."""

    def __init__(self, nodes: Nodes, slot: Slot | None, patience: float, least: float) -> None:
        self._nodes, self._slot = nodes, slot
        self._patience = self._asked = patience
        self._least = least

    def check(self, connection: BaseDatabaseWrapper) -> None:
        """Raise an error if a silent node would have to answer."""
        if self._nodes.silent and (silent := self._nodes.among_silent(self._slot, connection)):
            raise OperationalError(_text(silent)) from Silence(_text(silent))

    def note(self, error: DatabaseError) -> None:
        """Have the nodes asked after an error of one of them."""
        if is_of_remote(error) and getattr(error.__cause__, "sent", True):
            self._nodes.ask(self._slot)

    def is_in_vain(self, waited: float) -> str:
        """Return which silent node a statement waits for that has waited for so many seconds; "" for none."""
        if waited >= self._asked:
            self._asked = waited + self._patience
            self._nodes.ask(self._slot)
        silent = self._nodes.among_silent(self._slot) if waited >= self._least else ()
        return _text(silent) if silent else ""


def _text(silent: Iterable[NodeAddress]) -> str:
    names = sorted(map(str, silent))
    return f"node {names[0]} does not answer" if len(names) == 1 else f"nodes {', '.join(names)} do not answer"


@contextmanager
def patience(operations: Operations, *, everywhere: bool = False) -> Iterator[None]:
    """Have the statements of a block wait for no silent node, if they are a worker's on rows over nodes.

    If it would have to answer, nothing is sent: a statement that is given up holds a connection to the coordinator
    until its node is back. ``everywhere``: they need every node; otherwise those of a store with all rows may be on
    other tables.
    """
    division, is_slice = operations.division, operations.scope.node is not None
    if operations.locks.wait is None or not (division.spans or is_slice):
        yield
        return
    slot, least = (_slot_of(operations), 0.0) if is_slice else (None, OF_LOOKS / 2)
    with _watching(NodeWatch(nodes_of(operations.alias), slot, PATIENCE, least)) as watch:
        if is_slice or everywhere:
            watch.check(operations.connection)
        yield


@contextmanager
def look_patience(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Have the looks of people's tools wait for a silent node only for a moment: many tables are on no node."""
    with _watching(NodeWatch(nodes_of(connection.alias), None, OF_LOOKS, OF_LOOKS / 2)):
        yield


W = TypeVar("W", NodeWatch, None)


@contextmanager
def _watching(watch: W) -> Iterator[W]:
    before = WATCH.set(watch)
    try:
        yield watch
    except DatabaseError as error:
        if watch is not None:
            watch.note(error)
        raise
    finally:
        WATCH.reset(before)


def _slot_of(operations: Operations) -> Slot:
    field: Any = spread_field(operations.model)
    connection = operations.connection
    table = connection.ops.quote_name(operations.model._meta.db_table)
    return Slot(table, str(field.rel_db_type(connection)), field.get_db_prep_value(operations.part, connection))


def is_away(operations: Operations) -> bool:
    """Return whether the node of a slice is known to be silent."""
    nodes = nodes_of(operations.alias)
    return bool(nodes.silent and nodes.among_silent(_slot_of(operations), operations.connection))


def parts(worker: "Worker") -> list[WorkerPart]:
    """Return the end of the threads that ask for nodes."""
    return [WorkerPart(stop=partial(_stop, [operations.alias for operations in worker.kinds]))]


def _stop(aliases: Iterable[str]) -> None:
    for alias in dict.fromkeys(aliases):
        nodes_of(alias).stop()


REMEDY = "start that server, or find out what holds it up; workers go on with the objects on other nodes"


def nodes(alias: str, models: list[type[Model]]) -> list[Problem]:
    """Check that each node answers the coordinator."""
    connection = connections[alias]
    if not capabilities_of(connection).has_nodes:
        return []
    with connection.cursor() as cursor:
        # An ordinary server may be tested with the statements for Citus.
        cursor.execute("SELECT to_regclass('pg_catalog.pg_dist_node') IS NOT NULL")
        if not cursor.fetchone()[0]:
            return []
    answers = answers_of(alias)
    silent = [
        Problem("nodes", f"node {node} does not answer the coordinator", remedy=REMEDY, level=ERROR)
        for node, is_answer in answers.items()
        if not is_answer
    ]
    return silent or [Problem("nodes", f"{counted(len(answers), 'node')} answered", level=OK)]
