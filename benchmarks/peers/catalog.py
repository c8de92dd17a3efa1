"""The peers: what to install, which settings to run, and what each does less than this framework."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Case:
    """One setting of a peer. ``size``: its batch or concurrency; None for the script's default."""

    name: str
    size: int | None = None
    processes: int = 1


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer. ``share``: the fraction of jobs it gets, since a slow one would take minutes for all of them.

    ``requirements``: none for this framework, which runs in this environment. ``python``: the oldest version it
    supports; None if it runs on Node. ``store``: ``"postgresql"`` or ``"redis"``. ``steady``: its script offers
    jobs at a steady rate too.
    """

    name: str
    requirements: tuple[str, ...]
    cases: tuple[Case, ...]
    less: str
    share: float = 1
    python: tuple[int, int] | None = (3, 11)
    store: str = "postgresql"
    steady: bool = False

    @property
    def script(self) -> Path:
        """Return the path of its script."""
        return HERE / f"{self.name.replace('-', '_')}_peer.{'py' if self.python else 'mjs'}"


def named(peers: Sequence[Peer]) -> Callable[[str], list[Peer]]:
    """Return the type of an argument that names some of these peers."""

    def type_of(text: str) -> list[Peer]:
        known = {peer.name: peer for peer in peers}
        if unknown := [name for name in text.split(",") if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no peer; known are {', '.join(known)}")
        return [known[name] for name in text.split(",")]

    return type_of


PEERS = (
    Peer(
        "pgqueuer",
        ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
        (Case("batch 100", 100), Case("batch 500", 500), Case("batch 500, two processes", 500, 2)),
        "deletes the job, keeps log rows; an end is not fenced",
        steady=True,
    ),
    Peer(
        "graphile-worker",
        ("graphile-worker@0.18.0",),
        (Case("local queue 500", 500), Case("local queue 500, two processes", 500, 2)),
        "deletes the job and keeps nothing; a dead worker's jobs wait four hours",
        python=None,
        steady=True,
    ),
    Peer(
        "oban",
        ("oban==0.7.0", "psycopg[binary,pool]==3.3.9", "uvloop==0.23.0"),
        (Case("limit 100", 100),),
        "keeps the row, guards its end; no history",
        share=0.5,
        python=(3, 12),
    ),
    Peer(
        "dbos",
        ("dbos==3.4.0", "psycopg[binary]==3.3.9"),
        (Case("default queue"),),
        "keeps every step; no lease, recovery at the start of a process",
        share=0.1,
    ),
    Peer(
        "procrastinate",
        ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9"),
        (Case("concurrency 30", 30),),
        "keeps the row and its events; stalled jobs are the application's to find, no fence",
        share=0.1,
        steady=True,
    ),
    Peer(
        "awa",
        ("awa-pg==0.6.9",),
        (Case("128 workers", 128),),
        "keeps ended jobs for a day; no history",
        share=0.25,
        steady=True,
    ),
    Peer(
        "absurd",
        ("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]==3.3.9"),
        (Case("concurrency 100", 100),),
        "keeps the task and its runs; a lease is not renewed unless the task asks",
        share=0.1,
        steady=True,
    ),
    Peer(
        "celery",
        ("celery[redis]==5.7.0", "redis[hiredis]==8.1.0"),
        (Case("Redis, solo pool"),),
        "acknowledges before it runs the job and keeps nothing; not on disk",
        share=0.25,
        store="redis",
    ),
    Peer(
        "django-tasks-db",
        ("django-tasks-db==0.13.0", "Django==6.1.3", "psycopg[binary]==3.3.9"),
        (Case("persistent connections"),),
        "keeps the result; no retries, no lease",
        share=0.1,
        python=(3, 12),
    ),
)

# This framework, at a steady rate only: its drains are measured in the process of the benchmark.
OURS = (
    Peer("stator", (), (), "", steady=True),
    Peer("stator-tasks", (), (), "", steady=True),
)
