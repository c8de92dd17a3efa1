"""Compare a revision with this tree: run benchmarks on both in turns, and print ratios with their spread.

The order is A B B A, so that a machine that becomes slower or faster favours neither. The figures of each run are put
in pairs, and each ratio says how much better this tree is: 1.05 is 5 % more work per second, or as much less time.
Believe a ratio whose pairs are all on the same side of 1; if they are not, take more pairs or larger sizes.

The benchmarks are those of this tree on both sides; only the product (stator, tasks, project) is of the revision. Each
run gets a new database on one temporary PostgreSQL with default durability, or on the server of DATABASE_URL.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import django
import psycopg
from packaging.requirements import Requirement

from benchmarks.__main__ import HERE, NAMES
from benchmarks.harness import print_lines, server
from benchmarks.report import FIGURES_FILE

ROOT = HERE.parent
# What measures; the revision's own is put aside.
MEASURING = ("benchmarks", "tests/servers")
COMPILED = ("stator", "tasks", "project", *MEASURING)
EPILOG = """
examples:
  python -m benchmarks.beside HEAD~20 throughput latency
  python -m benchmarks.beside main throughput --pairs 10
  python -m benchmarks.beside HEAD queues -- --tasks 2000 --alone     what follows -- is for the benchmarks
  python -m benchmarks.beside HEAD throughput -- --quick              to see that it runs, not to measure

Each run repeats its cases once unless you say otherwise (-- --repeat 3). Changes that are not committed count as this
tree's: HEAD compares them with the last commit. If this environment lacks what the revision requires, another one is
made, which takes a minute or two. bin/bench --list names the benchmarks.
exit codes:  0 all were compared, 1 some could not be, 2 bad arguments, 130 Ctrl-C. The worktree is removed in any case.
"""

# The value of each figure of a run, and whether less is better.
Figures = dict[str, tuple[float, bool]]


class Impossible(Exception):
    """What is asked for cannot be done: one line for the user."""


@dataclass(frozen=True, slots=True)
class Side:
    """A tree with its Python."""

    name: str
    root: Path
    python: str


THIS = Side("here", ROOT, sys.executable)


def main(arguments: list[str]) -> int:
    """Compare; return the exit code."""
    own, further = _split(arguments)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.beside", description=__doc__, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, usage="%(prog)s REV NAME ... [--pairs N] [-- OPTIONS]",
    )  # fmt: skip
    parser.add_argument("rev", metavar="REV", help="the revision to compare with: a commit, tag or branch")
    parser.add_argument("names", nargs="+", metavar="NAME", help="a benchmark")
    parser.add_argument("--pairs", type=int, default=4, metavar="N", help="runs on each side (default: 4)")
    options = parser.parse_intermixed_args(own)
    try:
        _check(options)
        commit = _commit(options.rev)
        with worktree(commit, options.rev) as before, server() as url:
            sides = (before, THIS)
            return max([compare(name, sides, options.pairs, further, url) for name in options.names])
    except (Impossible, psycopg.OperationalError) as error:
        print(f"beside: {error}", file=sys.stderr)
        return 2


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def _check(options: argparse.Namespace) -> None:
    if options.pairs < 1:
        raise Impossible(f"--pairs must be at least 1, got {options.pairs}")
    if unknown := [name for name in options.names if name not in NAMES]:
        raise Impossible(f"{unknown[0]!r} is not a benchmark; choose from {', '.join(NAMES)}")
    url = os.environ.get("DATABASE_URL", "")
    if url and not url.startswith("postgres"):
        raise Impossible("DATABASE_URL is not that of a PostgreSQL; unset it to have a server made")


def _commit(rev: str) -> str:
    found = _git("rev-parse", "--verify", "--quiet", f"{rev}^{{commit}}")
    if found.returncode:
        raise Impossible(f"{rev!r} is not a revision of this repository; see git log and git tag")
    return found.stdout.strip()


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    # A Ctrl-C is for this process, which removes what git has made.
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False, start_new_session=True
    )


@contextmanager
def worktree(commit: str, name: str) -> Iterator[Side]:
    """Check the revision out beside this tree, with the benchmarks of this one; remove it at the end."""
    with tempfile.TemporaryDirectory(prefix="stator-beside-") as folder:
        root = Path(folder, "tree")
        try:
            added = _git("worktree", "add", "--quiet", "--detach", str(root), commit)
            if added.returncode:
                raise Impossible(f"git worktree failed: {added.stderr.strip()}")
            for each in MEASURING:
                shutil.rmtree(root / each, ignore_errors=True)
                shutil.copytree(ROOT / each, root / each, ignore=shutil.ignore_patterns("__pycache__"))
            side = Side(name, root, _python(root, commit, name))
            # This tree may be compiled already, and PYTHONDONTWRITEBYTECODE would have each run compile the other one.
            for one in (side, THIS):
                subprocess.run([one.python, "-m", "compileall", "-q", *COMPILED], cwd=one.root, check=False)
            yield side
        finally:
            with _uninterrupted():
                _git("worktree", "remove", "--force", str(root))
                # What an interrupted git left there, it does not remove.
                shutil.rmtree(root, ignore_errors=True)
                _git("worktree", "prune")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    before = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _python(root: Path, commit: str, name: str) -> str:
    """Return the Python for the revision: this one, unless its environment lacks what the revision requires."""
    unmet = [line for line in _git("show", f"{commit}:requirements.txt").stdout.splitlines() if not _is_met(line)]
    if not unmet:
        return sys.executable
    lacks = f"{name} requires {' and '.join(unmet)}, which this environment lacks"
    print(f"beside: {lacks}: {name} gets one of its own", file=sys.stderr)
    variables = {**os.environ, "PYTHON": sys.executable, "DJANGO": django.get_version()}
    made = subprocess.run([root / "bin" / "setup"], env=variables, stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        raise Impossible(f"no environment could be made for {name} (see above)")
    return made.stdout.strip()


def _is_met(line: str) -> bool:
    """Return whether this environment has what a line of requirements asks for."""
    if not line or line.startswith(("#", "-")):
        return True
    wanted = Requirement(line)
    if wanted.marker and not wanted.marker.evaluate():
        return True
    with suppress(PackageNotFoundError):
        return wanted.specifier.contains(version(wanted.name), prereleases=True)
    return False


def compare(name: str, sides: tuple[Side, Side], pairs: int, further: list[str], url: str) -> int:
    """Run one benchmark on both sides in turns and print its table; return 1 if that cannot be."""
    runs: tuple[list[Figures], list[Figures]] = ([], [])
    for pair in range(pairs):
        for at in (1, 0) if pair % 2 else (0, 1):
            side = sides[at]
            print(f"{name}, pair {pair + 1} of {pairs}: {side.name}", file=sys.stderr, flush=True)
            with fresh_database(url) as database:
                code, figures, error = run(name, side, further, database)
            if code:
                print(f"beside: {name} does not run on {side.name}: {error or f'exit code {code}'}", file=sys.stderr)
                return 1
            runs[at].append(figures)
    common = [figure for figure in runs[1][0] if all(figure in each for some in runs for each in some)]
    if not common:
        print(f"beside: {name} has no figures that can be compared", file=sys.stderr)
        return 1
    show(name, sides[0].name, pairs, [line(figure, *runs) for figure in common])
    return 0


@contextmanager
def fresh_database(url: str) -> Iterator[str]:
    """Yield the URL of a new database on that server: the two sides may have different tables."""
    name, parts = f"stator_beside_{os.getpid()}", urlsplit(url)
    drop = f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(drop)
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield urlunsplit(parts._replace(path=f"/{name}"))
        finally:
            connection.execute(drop)


def run(name: str, side: Side, further: list[str], url: str) -> tuple[int, Figures, str]:
    """Run a benchmark once; return its exit code, its figures and the last line of what it complained of."""
    repeat = [] if any(each.startswith("--repeat") for each in further) else ["--repeat", "1"]
    with tempfile.NamedTemporaryFile(prefix="stator-figures-") as told:
        variables = {**os.environ, "DATABASE_URL": url, FIGURES_FILE: told.name}
        # Each benchmark chooses its own; the harness has set this for its importers.
        variables.pop("DJANGO_SETTINGS_MODULE", None)
        process = subprocess.Popen(
            [side.python, "-m", f"benchmarks.{name}", *repeat, *further], cwd=side.root, env=variables,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            _, complaint = process.communicate()
        finally:
            # Also the workers that it started.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        lines = [json.loads(each) for each in Path(told.name).read_text().splitlines()]
    return process.returncode, {each["name"]: (each["value"], each["less"]) for each in lines}, _last(complaint)


def _last(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""


def line(figure: str, before: list[Figures], after: list[Figures]) -> list[str]:
    """Return the cells of one figure; a ratio above 1 is better here, whichever way the figure goes."""
    less = after[0][figure][1]
    values = [[each[figure][0] for each in some] for some in (before, after)]
    medians = [statistics.median(some) for some in values]
    ratios = [ratio(*pair, less=less) for pair in zip(*values, strict=True)]
    known = [each for each in ratios if each is not None]
    whole = ratio(*medians, less=less)
    return [
        f"{figure} (less is better)" if less else figure,
        *(number(each) for each in medians),
        "-" if whole is None else f"{whole:.3f}",
        f"{min(known):.3f}-{max(known):.3f}" if len(known) == len(ratios) else "-",
    ]


def ratio(before: float, after: float, *, less: bool) -> float | None:
    """Return how many times better ``after`` is; None if one of them is 0."""
    if not before or not after:
        return None
    return before / after if less else after / before


def number(value: float) -> str:
    """Return a figure with three or more digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def show(name: str, rev: str, pairs: int, rows: list[list[str]]) -> None:
    """Print the table of one benchmark."""
    head = ["figure: median", rev, "here", "ratio, above 1 is better here", f"ratios of {pairs} pairs"]
    print(f"\n{name}")
    print_lines(head, rows)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
