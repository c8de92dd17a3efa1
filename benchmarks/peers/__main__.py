"""This framework beside other queues: the same job, which does nothing, on the same server, with their best settings.

``python -m benchmarks.peers [--jobs 20000] [--repeat 3] [--only NAME,NAME]``

Each peer is installed into var/peers when it is first run. A peer that cannot be installed is left out. A slow peer
gets fewer jobs, so that everything takes less than an hour; rates are per job that the peer was given.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial

from benchmarks.harness import arguments, database, make_tables
from benchmarks.peers.catalog import PEERS, Case, Peer, named
from benchmarks.peers.install import Unavailable, is_there
from benchmarks.peers.run import Failed, run
from benchmarks.processes import drain
from benchmarks.report import Run, Spent, Target, once, show
from benchmarks.throughput import worker

OURS, OURS_TWO = "stator, one process", "stator, two processes"
MIN_JOBS = 100


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"jobs": 1000}, extend=_only, jobs=20_000)
    peers = options.only or PEERS
    with database():
        from benchmarks.models import AsyncItem

        make_tables(AsyncItem)
        present = [peer for peer in peers if is_there(peer)]
        cases: dict[str, tuple[int, Callable[[], Spent]]] = {
            OURS: (options.jobs, lambda: worker(AsyncItem, options.jobs, 500)),
            OURS_TWO: (options.jobs, lambda: drain("worker", options.jobs, 2, 500)),
        }
        for peer in present:
            jobs = max(MIN_JOBS, int(options.jobs * peer.share))
            for case in peer.cases:
                cases[f"{peer.name}, {case.name}"] = (jobs, partial(_spent, peer, case, jobs))
        measured = _in_turns(cases, options.repeat)
        show(f"A job that does nothing, {options.jobs:,} of them", "jobs", measured, _targets(measured))
        print("What the others do less:")
        for peer in present:
            print(f"  {peer.name}: {peer.less}")


def _only(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=named(PEERS), metavar="NAME,NAME", help="some peers and not all")


def _spent(peer: Peer, case: Case, jobs: int) -> Spent:
    return run(peer, case, jobs).spent


def _in_turns(cases: dict[str, tuple[int, Callable[[], Spent]]], repeat: int) -> dict[str, list[Run]]:
    """Measure cases in turns; a case that fails is left out, and a line says why."""
    measured: dict[str, list[Run]] = {name: [] for name in cases}
    for _ in range(repeat):
        for name in list(measured):
            try:
                measured[name].append(once(*cases[name]))
            except (Failed, Unavailable) as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
                del measured[name]
    return measured


def _targets(measured: dict[str, list[Run]]) -> dict[str, tuple[Target, ...]]:
    return {
        OURS: (
            Target(1.3, of="pgqueuer, batch 100"),
            Target(1.3, of="pgqueuer, batch 500"),
            Target(1, of="graphile-worker, local queue 500"),
            Target(30, of="procrastinate, concurrency 30"),
        ),
        OURS_TWO: (
            Target(1.5, of=OURS),
            Target(1, of="pgqueuer, batch 500, two processes"),
            Target(1, of="graphile-worker, local queue 500, two processes"),
        ),
    }


if __name__ == "__main__":
    main()
