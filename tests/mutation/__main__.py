"""Tries each mutant in a copy of the repository, and says which of them no test noticed. See ``bin/mutants --help``."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.mutant import Mutant
from tests.mutation.mutants import MUTANTS
from tests.servers.postgres import PostgresError, temporary_server

ROOT = Path(__file__).parent.parent.parent

# The least part of the mutants that tests have to notice.
MIN_KILLED = 0.95

# Seconds for the tests of one mutant; a mutant that makes them hang is noticed.
PATIENCE = 45

# With no other plugins, which take half of the time to load.
PYTEST = ("-m", "pytest", "-q", "-x", "-p", "pytest_django.plugin", "-p", "no:cacheprovider")

KILLED, SURVIVED, ERROR = "killed", "survived", "ERROR"


class CannotTry(Exception):
    """The mutants cannot be tried: says why in one line."""


@dataclass(frozen=True)
class Result:
    """The fate of a mutant, and how long its tests took."""

    mutant: Mutant
    outcome: str
    seconds: float
    told: str = ""


class Copy:
    """A copy of the tracked files, as they are now, in which tests are run on databases of its own."""

    def __init__(self, folder: Path, number: int, postgresql: str) -> None:
        self.folder = folder
        self._urls = {"sqlite": "sqlite:///db.sqlite3", "postgresql": f"{postgresql}{number}"}
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, folder / name)

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Meanwhile the mutant is in the copy."""
        text = (ROOT / mutant.file).read_text()
        if text.count(mutant.old) != 1:
            raise CannotTry(f"its text is {text.count(mutant.old)} times in {mutant.file}, not once")
        self._write(mutant.file, text.replace(mutant.old, mutant.new))
        try:
            yield
        finally:
            self._write(mutant.file, text)

    def test(self, database: str, tests: tuple[str, ...], patience: float) -> tuple[int | None, str]:
        """Run tests; return the exit code, None where time was over, and what was said."""
        databases = self.folder / "var" / "databases"
        environment = {
            **os.environ,
            "DATABASE_URL": self._urls[database],
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "TEST_DIRECTORY": str(databases),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        # In databases made anew: Django would not find a table again whose name has quotes of its own.
        command = [sys.executable, *PYTEST, "--create-db", *tests]
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                code: int | None = process.wait(patience)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                # With what the tests have started; nothing is left of most.
                _end(process)
            output.seek(0)
            said = output.read()
        return code, said

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        # Python knows a compiled file by the second and the size of its source, which may be the same.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()


def _end(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def try_mutant(copy: Copy, mutant: Mutant) -> Result:
    """Return what the tests of a mutant make of it."""
    began = time.monotonic()
    try:
        with copy.changed(mutant):
            code, said = copy.test(mutant.database, mutant.tests, PATIENCE)
    except CannotTry as error:
        # The others are tried all the same.
        return Result(mutant, ERROR, 0.0, str(error))
    last = said.strip().splitlines()[-1] if said.strip() else "nothing was said"
    seconds = time.monotonic() - began
    if code == 0:
        return Result(mutant, SURVIVED, seconds)
    if code is None:
        return Result(mutant, KILLED, seconds, "time was over")
    # Tests that did not begin, for instance because nothing could be imported, have noticed nothing.
    if code == 1 and re.search(r"^\d+ failed", said, re.MULTILINE):
        return Result(mutant, KILLED, seconds)
    return Result(mutant, ERROR, seconds, last)


def try_all(mutants: list[Mutant], jobs: int, folder: Path, postgresql: str) -> list[Result]:
    """Try each; report progress as they come."""
    copies: SimpleQueue[Copy] = SimpleQueue()
    for number in range(jobs):
        (place := folder / str(number)).mkdir()
        copies.put(Copy(place, number, postgresql))
    copy = copies.get()
    for database in sorted({mutant.database for mutant in mutants}):
        _demand_that_tests_pass(copy, database, mutants)
    copies.put(copy)
    results: list[Result] = []

    def try_one(mutant: Mutant) -> None:
        copy = copies.get()
        try:
            result = try_mutant(copy, mutant)
        finally:
            copies.put(copy)
        results.append(result)
        told = f": {result.told}" if result.told else ""
        say(f"{len(results)} of {len(mutants)}  {result.outcome:8}  {result.seconds:5.1f} s  {mutant.name}{told}")

    threads = ThreadPoolExecutor(jobs)
    try:
        for done in [threads.submit(try_one, mutant) for mutant in mutants]:
            done.result()
    finally:
        threads.shutdown(cancel_futures=True)
    return results


def _demand_that_tests_pass(copy: Copy, database: str, mutants: list[Mutant]) -> None:
    tests = tuple(sorted({test for mutant in mutants if mutant.database == database for test in mutant.tests}))
    say(f"running the {len(tests)} tests and files without a mutant, on {database}")
    code, said = copy.test(database, tests, PATIENCE + 10 * len(tests))
    if code != 0:
        lines = said.strip().splitlines()
        told = next((line for line in lines if line.startswith(("FAILED", "ERROR"))), lines[-1] if lines else "silence")
        raise CannotTry(f"the tests do not pass without a mutant, on {database}: {told}")


def judge(results: list[Result]) -> int:
    """Print the table; return the exit code."""
    counts = Counter(result.outcome for result in results)
    print()
    print(f"{'file':36} {'killed':>6} {'of':>4}")
    for file in dict.fromkeys(result.mutant.file for result in results):
        own = [result for result in results if result.mutant.file == file]
        print(f"{file:36} {sum(result.outcome == KILLED for result in own):6} {len(own):4}")
    for result in results:
        if result.outcome != KILLED:
            why = result.told if result.outcome == ERROR else result.mutant.survives or "NO EXPLANATION"
            print(f"{result.outcome}: {result.mutant.name}: {why}")
    part = counts[KILLED] / len(results)
    print(
        f"{counts[KILLED]} of {len(results)} killed ({part:.1%}), {counts[SURVIVED]} survived, {counts[ERROR]} errors"
    )
    unexplained = any(result.outcome == SURVIVED and not result.mutant.survives for result in results)
    return int(part < MIN_KILLED or unexplained or counts[ERROR] > 0)


def chosen(word: str, database: str) -> list[Mutant]:
    """Return the mutants of a database, or of both, whose name or file has the word."""
    if database not in ("", "sqlite", "postgresql"):
        raise CannotTry(f"DB={database} is no database we test on; use DB=sqlite or DB=postgresql, or leave it out")
    found = [mutant for mutant in MUTANTS if word in mutant.name or word in mutant.file]
    found = [mutant for mutant in found if database in ("", mutant.database)]
    if not found:
        raise CannotTry(f"no mutant has {word!r} in its name or file; see bin/mutants --list")
    return found


def say(line: str) -> None:
    """Report progress."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def _server(mutants: list[Mutant]) -> Iterator[str]:
    """The start of the URLs of databases on a server for this run, where there is one to be."""
    if not any(mutant.database == "postgresql" for mutant in mutants):
        yield ""
        return
    with temporary_server({"fsync": "off"}) as server:
        yield server.url("mutants")


def _number(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= 64):
        raise argparse.ArgumentTypeError(f"{text} is not a number of processes from 1 to 64; use for instance --jobs 2")
    return int(text)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise CannotTry(f"{message}; see bin/mutants --help")


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="bin/mutants", add_help=False, allow_abbrev=False)
    parser.add_argument("-k", dest="word", default="", metavar="WORD")
    parser.add_argument("--jobs", type=_number, default=1)
    parser.add_argument("--list", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """The command line; return the exit code."""
    # So that the server and the copies are removed whoever ends this.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        options = _options(arguments)
        mutants = chosen(options.word, os.environ.get("DB", ""))
        if options.list:
            for mutant in mutants:
                print(f"{mutant.file:36} {mutant.database:10} {mutant.name}")
            return 0
        with _server(mutants) as url, tempfile.TemporaryDirectory(prefix="stator-mutants-") as folder:
            return judge(try_all(mutants, options.jobs, Path(folder), url))
    except (CannotTry, PostgresError) as error:
        say(f"bin/mutants: {error}")
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
