"""Jobs at a steady rate, here and on other queues: the time to their start, what they write, and who else is slowed.

``python -m benchmarks.horizon [--only NAME,NAME] [--rates 200,800,2000] [--work 1] [--places 128] [--phase ...]``

A process offers jobs, ``--rates`` of them a second, and a worker runs up to ``--places`` at once, each for ``--work``
milliseconds. *Claim* is the time from the moment at which a job was due to the start of its handler; a queue or a
database that stalls delays the offers too, and that counts. Meanwhile two clients query a table of the application in
the same database; what they cost the server alone is taken off. Phases have the names of the public harness
hardbyte/postgresql-job-queue-benchmarking: ``clean``; ``idle-in-tx``, when a transaction that has written stays open;
``active-readers``, when four readers scan the hot tables; ``recovery``. Entries of indexes are counted in the log. This
needs the extension pg_walinspect, which a distribution's server has: ``DB=distribution bin/bench horizon``.

    --phase w=warmup:30s --phase clean_1=clean:2m --phase idle_1=idle-in-tx:10m --phase recovery_1=recovery:5m

``--out FILE`` writes what ``python -m benchmarks.pictures FILE FOLDER`` draws.
"""

import argparse
import contextlib
import json
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

import psycopg
import psycopg.conninfo

from benchmarks.bystander import Bystander, fill
from benchmarks.harness import arguments, database, print_table
from benchmarks.latency import at
from benchmarks.peers.catalog import OURS, PEERS, Peer, named
from benchmarks.peers.install import is_there
from benchmarks.peers.run import Failed, Store, postgresql_store
from benchmarks.peers.steady import Steady
from benchmarks.phases import IDLE, READERS, Phase, disturbed, phase
from benchmarks.report import note, print_targets, verdict

STEADY = tuple(peer for peer in (*OURS, *PEERS) if peer.steady)
NAME = "horizon"
# Of a run that is to take a minute; the page of figures says which was measured.
PHASES = "warmup=warmup:5s", "clean_1=clean:15s", "idle_1=idle-in-tx:20s", "recovery_1=recovery:10s"
QUICK = "clean_1=clean:3s", "idle_1=idle-in-tx:2s", "readers_1=active-readers:2s", "recovery_1=recovery:4s"
STRESS = (IDLE, READERS)
# Seconds in which a worker may begin, and between two looks at the connections.
PATIENCE, LOOK = 60, 0.25
# Recovered: three seconds in a row with a p99 of at most half as much again as before, and a millisecond.
ROW, AGAIN, SLACK = 3, 1.5, 1
P95 = 0.95
NEVER = float("inf")
# The offered load that is judged.
JUDGED = 800
COUNTS = """
SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, coalesce(sum(n_dead_tup), 0)
FROM pg_stat_user_tables WHERE relname <> 'bystander'
"""
# Reading the log takes time, and old parts of it go: so many seconds of a phase are looked at.
LOOKED_AT = 5
ENTRIES = """
SELECT count(*) FROM pg_get_wal_records_info(%s, %s)
WHERE resource_manager IN ('Btree', 'Gin') AND record_type LIKE 'INSERT%%'
"""
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name <> %s"


@dataclass(frozen=True, slots=True)
class Case:
    """A peer, the jobs offered a second, the milliseconds of a job, how many may run at once, and a calm time before.

    In a third of the ``calm`` seconds the bystander has written each of its pages; in the rest it is watched.
    """

    peer: Peer
    rate: int
    work: float
    places: int
    calm: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What was used and written until a moment: CPU seconds of worker and server, bytes of WAL; and the dead rows."""

    at: float
    own: float
    server: float
    wal: float
    dead: int


@dataclass(frozen=True, slots=True)
class Watched:
    """The counts before and after a phase, the most connections that were seen, and the entries of indexes a second."""

    before: Counted
    after: Counted
    connections: int = 0
    entries: float | None = None

    def in_a_second(self, name: str) -> float:
        """Return what was added to a count in a second."""
        added: float = getattr(self.after, name) - getattr(self.before, name)
        return added / (self.after.at - self.before.at)


@dataclass(frozen=True, slots=True)
class Found:
    """A phase of a run. Times are in milliseconds; CPU is in seconds for 1,000 jobs; WAL and entries are for one job.

    ``alone``: the p95 of the bystander before the run; ``recovered``: seconds, if the phase before was one of stress.
    """

    system: str
    rate: int
    work: float
    places: int
    label: str
    kind: str
    started: float
    offered: float
    begun: float
    p50: float
    p95: float
    p99: float
    own: float
    server: float
    wal: float
    entries: float | None
    dead: int
    connections: int
    bystander: float
    alone: float
    recovered: float | None


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"places": 4, "calm": 3}, extend=_extend, repeat=1, places=128, calm=15)
    rates = options.rates or ([50] if options.quick else [200])
    phases = options.phase or [phase(text) for text in (QUICK if options.quick else PHASES)]
    with database(), options.out.open("w") if options.out else contextlib.nullcontext() as out:
        found: list[Found] = []
        for peer in options.only or STEADY:
            if is_there(peer):
                for rate in rates:
                    print(f"{peer.name} at {rate}/s", file=sys.stderr)
                    found += _tried(Case(peer, rate, options.work, options.places, options.calm), phases, out)
        _print(found)


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=named(STEADY), metavar="NAME,NAME", help="some systems and not all")
    parser.add_argument("--rates", type=_numbers, metavar="N,N", help="jobs offered a second; 200 by default")
    parser.add_argument("--work", type=float, default=1, metavar="MS", help="milliseconds of a job; 1 by default")
    parser.add_argument("--phase", type=phase, action="append", metavar="LABEL=TYPE:DURATION", help="one of the phases")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write what each second had")


def _numbers(text: str) -> list[int]:
    if wrong := [each for each in text.split(",") if not each.isdecimal() or not int(each)]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is not a whole number above 0")
    return [int(each) for each in text.split(",")]


def _tried(case: Case, phases: list[Phase], out: TextIO | None) -> list[Found]:
    try:
        with postgresql_store() as store:
            return _run(case, store, phases, out)
    except Failed as error:
        print(f"{case.peer.name} at {case.rate}/s is left out: {error}", file=sys.stderr)
        return []


def _run(case: Case, store: Store, phases: list[Phase], out: TextIO | None) -> list[Found]:
    """Run the phases one after the other, in a database of their own; return those that are reported."""
    dsn = psycopg.conninfo.make_conninfo(store.url, password=store.variables.get("PGPASSWORD"))
    steady = Steady(case.peer, store, case.places, case.work)
    steady.install()
    with contextlib.ExitStack() as stack:
        looking = stack.enter_context(psycopg.connect(dsn, autocommit=True, application_name=NAME))
        fill(looking)
        bystander = stack.enter_context(Bystander(dsn, NAME))
        inspected = _inspects(looking)
        _pass(case.calm / 3)
        before = _counted(store, looking)
        _pass(case.calm * 2 / 3)
        alone = Watched(before, _counted(store, looking))
        calm = at(bystander.between(alone.before.at, alone.after.at), P95)
        stack.enter_context(steady.serving())
        stack.enter_context(steady.offering(case.rate))
        _wait_for_first(steady)
        found: list[Found] = []
        for each in phases:
            with disturbed(each.kind, dsn, NAME):
                watched = _watch(steady, store, looking, each.seconds, inspected)
            if each.kind != "warmup":
                found.append(_found(case, each, watched, alone, steady, bystander, calm, found))
        if out:
            _write(out, case, found, steady)
        return found


def _inspects(looking: psycopg.Connection) -> bool:
    """Tell whether the log can be read here."""
    try:
        looking.execute("CREATE EXTENSION pg_walinspect")
    except psycopg.Error:
        return False
    return True


def _watch(steady: Steady, store: Store, looking: psycopg.Connection, seconds: int, inspected: bool) -> Watched:
    """Let some seconds pass; return what was used and written until they began and until they ended."""
    before, most, entries = _counted(store, looking, steady), 0, None
    place = _place(looking)
    while time.time() < before.at + seconds:
        _pass(LOOK)
        steady.check()
        row = looking.execute(CONNECTIONS, (NAME,)).fetchone()
        most = max(most, row[0] if row else 0)
        if inspected and entries is None and time.time() > before.at + min(LOOKED_AT, seconds / 2):
            took = time.time() - before.at
            row = looking.execute(ENTRIES, (place, _place(looking))).fetchone()
            entries = row[0] / took if row else None
    return Watched(before, _counted(store, looking, steady), most, entries)


def _place(looking: psycopg.Connection) -> str | None:
    row = looking.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
    return row[0] if row else None


def _counted(store: Store, looking: psycopg.Connection, steady: Steady | None = None) -> Counted:
    row = looking.execute(COUNTS).fetchone()
    wal, dead = row or (0, 0)
    return Counted(time.time(), steady.cpu if steady else 0.0, store.cpu(), float(wal), int(dead))


def _found(
    case: Case,
    phase: Phase,
    watched: Watched,
    alone: Watched,
    steady: Steady,
    bystander: Bystander,
    calm: float,
    earlier: list[Found],
) -> Found:
    before, after = watched.before, watched.after
    seconds = range(int(before.at) + 1, int(after.at))
    claims = sorted(each for second in seconds for each in steady.claim_ms[second])
    begun = len(claims) / max(1, len(seconds))

    def for_each(name: str) -> float:
        return (watched.in_a_second(name) - alone.in_a_second(name)) / begun if begun else NEVER

    clean = next((found.p99 for found in earlier if found.kind == "clean"), None)
    stressed = earlier and earlier[-1].kind in STRESS and phase.kind not in STRESS
    return Found(
        case.peer.name, case.rate, case.work, case.places, phase.label, phase.kind, before.at,
        offered=sum(steady.enqueued[second] for second in seconds) / max(1, len(seconds)),
        begun=begun, p50=_share(claims, 0.5), p95=_share(claims, P95), p99=_share(claims, 0.99),
        own=1000 * for_each("own"), server=1000 * for_each("server"), wal=for_each("wal"),
        entries=watched.entries / case.rate if watched.entries is not None else None,
        dead=after.dead, connections=watched.connections,
        bystander=_share(bystander.between(before.at, after.at), P95), alone=calm,
        recovered=_recovered(steady, seconds, clean) if stressed and clean is not None else None,
    )  # fmt: skip


def _share(values: list[float], part: float) -> float:
    return at(values, part) if values else NEVER


def _recovered(steady: Steady, seconds: range, calm: float) -> float:
    """Return the seconds until p99 is again what it was in the clean phase; ``NEVER`` if it is not."""
    row = 0
    for number, second in enumerate(seconds):
        claims = sorted(steady.claim_ms[second])
        row = row + 1 if claims and at(claims, 0.99) <= AGAIN * calm + SLACK else 0
        if row == ROW:
            return number + 1 - ROW
    return NEVER


def _wait_for_first(steady: Steady) -> None:
    deadline = time.monotonic() + PATIENCE
    while not any(steady.claim_ms.values()):
        steady.check()
        if time.monotonic() > deadline:
            raise Failed(f"no job began within {PATIENCE} s")
        _pass(LOOK)


def _pass(seconds: float) -> None:
    threading.Event().wait(seconds)


def _write(out: TextIO, case: Case, found: list[Found], steady: Steady) -> None:
    """Write a line of JSON for each phase, and one for each second of them."""
    out.writelines(json.dumps({"phase": asdict(each)}) + "\n" for each in found)
    start = found[0].started if found else 0.0
    for second, claims in sorted(steady.claim_ms.items()):
        if second >= start and claims:
            ordered = sorted(claims)
            values = {
                "second": second - int(start),
                "jobs": len(ordered),
                "p50": at(ordered, 0.5),
                "p99": at(ordered, 0.99),
            }
            out.write(json.dumps({"system": case.peer.name, "rate": case.rate, "work": case.work, **values}) + "\n")
    out.flush()


def _print(found: list[Found]) -> None:
    head = [
        "system", "jobs/s", "phase", "begun/s", "claim ms p50", "p95", "p99", "worker CPU s per 1,000",
        "database CPU s per 1,000", "WAL bytes", "index entries", "dead rows", "connections",
        "bystander p95 ms (alone)", "recovered after s",
    ]  # fmt: skip
    print_table("Jobs at a steady rate", head, [_line(each) for each in found])
    for each in found:
        name = f"{each.system} at {each.rate}/s, {each.label}"
        note(f"{name}: p99 ms", each.p99, less=True)
    print_targets([
        line
        for each in found if each.system == "stator" and each.rate == JUDGED
        for line in _judged(each)
    ])  # fmt: skip


def _judged(found: Found) -> list[str]:
    name = f"{found.system} at {found.rate}/s, {found.label}"
    lines = [verdict(f"{name}: bystander's p95 by that alone", found.bystander / found.alone, 1.1, most=True)]
    if found.kind == IDLE:
        lines.append(verdict(f"{name}: p99 ms", found.p99, 50, most=True))
    return lines


def _line(found: Found) -> list[str]:
    return [
        found.system, f"{found.rate:,}", found.label, f"{found.begun:,.0f}",
        f"{found.p50:,.1f}", f"{found.p95:,.1f}", f"{found.p99:,.1f}", f"{found.own:.2f}", f"{found.server:.2f}",
        f"{found.wal:,.0f}", "-" if found.entries is None else f"{found.entries:.1f}", f"{found.dead:,}",
        f"{found.connections}", f"{found.bystander:.1f} ({found.alone:.1f})",
        "" if found.recovered is None else f"{found.recovered:g}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
