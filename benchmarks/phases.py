"""Phases of a run at a steady rate, named as in hardbyte/postgresql-job-queue-benchmarking, and what disturbs them."""

import argparse
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

IDLE, READERS = "idle-in-tx", "active-readers"
KINDS = ("warmup", "clean", IDLE, READERS, "recovery")
UNITS = {"s": 1, "m": 60}
# What that harness does: four readers. Each keeps its snapshot for ten seconds and rests half a second between scans.
READER_COUNT, READER_KEEPS, READER_RESTS = 4, 10, 0.5
HOT = """
SELECT relid::regclass::text FROM pg_stat_user_tables
WHERE relname <> 'bystander' ORDER BY n_tup_ins + n_tup_upd + n_tup_del DESC LIMIT 2
"""


@dataclass(frozen=True, slots=True)
class Phase:
    """A named part of a run. ``kind``: one of ``KINDS``; a warm-up is not reported."""

    label: str
    kind: str
    seconds: int


def phase(text: str) -> Phase:
    """Return the phase that is written as ``LABEL=TYPE:DURATION``, such as ``idle_1=idle-in-tx:10m``."""
    found = re.fullmatch(r"([\w-]+)=([\w-]+):(\d+)([sm])", text)
    if not found or found[2] not in KINDS or not int(found[3]):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no phase; write LABEL=TYPE:DURATION, such as clean_1=clean:30s; types are {', '.join(KINDS)}"
        )
    return Phase(found[1], found[2], int(found[3]) * UNITS[found[4]])


@contextmanager
def disturbed(kind: str, dsn: str, name: str) -> Iterator[None]:
    """Disturb the database while the block runs, as this kind of phase does."""
    with ExitStack() as stack:
        if kind == IDLE:
            holder = stack.enter_context(psycopg.connect(dsn, application_name=name))
            # A transaction with an identity of its own, which nobody ends.
            holder.execute("SELECT txid_current()")
            stack.callback(holder.rollback)
        elif kind == READERS:
            stop = threading.Event()
            readers = [threading.Thread(target=_read, args=(dsn, name, stop), daemon=True) for _ in range(READER_COUNT)]
            for reader in readers:
                reader.start()
            for reader in readers:
                stack.callback(reader.join, 60)
            stack.callback(stop.set)
        yield


def _read(dsn: str, name: str, stop: threading.Event) -> None:
    with psycopg.connect(dsn, application_name=name) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        tables = [row[0] for row in connection.execute(HOT)]
        connection.rollback()
        while not stop.is_set():
            for _ in range(int(READER_KEEPS / READER_RESTS)):
                for table in tables:
                    connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.SQL(table)))
                if stop.wait(READER_RESTS):
                    break
            connection.rollback()
