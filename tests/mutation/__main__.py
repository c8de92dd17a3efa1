"""Tries faults in a copy of the repository, and lists those that no test detected. See ``bin/mutants --help``."""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.faults import TESTS, Fault, faults_of
from tests.servers.postgres import PostgresError, temporary_server

ROOT = Path(__file__).parent.parent.parent

# The least part of the faults that tests have to detect. Many of the others change nothing but the speed, or what the
# code beside them does as well.
MIN_KILLED = 0.45

# Seconds for the tests of one fault; a fault that makes them hang is detected.
PATIENCE = 120

# With no other plugins, which take half of the time to load.
PYTEST = ("-m", "pytest", "-q", "-x", "-p", "pytest_django.plugin", "-p", "no:cacheprovider")


class CannotTry(Exception):
    """The faults cannot be tried: says why in one line."""


@dataclass(frozen=True)
class Result:
    """Whether tests detected a fault, and how long they took."""

    fault: Fault
    killed: bool
    seconds: float


class Copy:
    """A copy of the tracked files, as they are now, in which tests are run on databases of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self._url = folder, url
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, folder / name)

    @contextmanager
    def changed(self, fault: Fault) -> Iterator[None]:
        """Meanwhile the fault is in the copy."""
        source = (self.folder / fault.file).read_bytes()
        self._write(fault.file, fault.in_source(source))
        try:
            yield
        finally:
            self._write(fault.file, source)

    def test(self, tests: tuple[str, ...], patience: float) -> tuple[int | None, str]:
        """Run tests; return the exit code, None where time was over, and what was said."""
        databases = self.folder / "var" / "databases"
        environment = {
            **os.environ,
            "DATABASE_URL": self._url,
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

    def _write(self, name: str, source: bytes) -> None:
        path = self.folder / name
        path.write_bytes(source)
        # Python knows a compiled file by the second and the size of its source, which may be the same.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()


def _end(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def try_fault(copy: Copy, fault: Fault) -> Result:
    """Return what the tests of a fault make of it."""
    began = time.monotonic()
    with copy.changed(fault):
        code, _ = copy.test(fault.tests, PATIENCE)
    return Result(fault, code != 0, time.monotonic() - began)


def try_all(faults: list[Fault], jobs: int, folder: Path, url: str) -> list[Result]:
    """Try each; report progress as they come."""
    copies: SimpleQueue[Copy] = SimpleQueue()
    for number in range(jobs):
        (place := folder / str(number)).mkdir()
        copies.put(Copy(place, f"{url}{number}"))
    copy = copies.get()
    _demand_that_tests_pass(copy, faults)
    copies.put(copy)
    results: list[Result] = []

    def try_one(fault: Fault) -> None:
        copy = copies.get()
        try:
            result = try_fault(copy, fault)
        finally:
            copies.put(copy)
        results.append(result)
        outcome = "killed" if result.killed else "SURVIVED"
        say(f"{len(results)} of {len(faults)}  {outcome:8}  {result.seconds:5.1f} s  {fault}")

    threads = ThreadPoolExecutor(jobs)
    try:
        for done in [threads.submit(try_one, fault) for fault in faults]:
            done.result()
    finally:
        threads.shutdown(cancel_futures=True)
    return results


def _demand_that_tests_pass(copy: Copy, faults: list[Fault]) -> None:
    tests = tuple(sorted({test for fault in faults for test in fault.tests}))
    say(f"running {len(tests)} test modules without a fault")
    code, said = copy.test(tests, PATIENCE * len(tests))
    if code != 0:
        lines = said.strip().splitlines()
        told = next((line for line in lines if line.startswith(("FAILED", "ERROR"))), lines[-1] if lines else "silence")
        raise CannotTry(f"the tests do not pass without a fault: {told}")


def judge(results: list[Result]) -> int:
    """Print the table; return the exit code."""
    print()
    print(f"{'file':36} {'killed':>6} {'of':>4}")
    for file in dict.fromkeys(result.fault.file for result in results):
        own = [result for result in results if result.fault.file == file]
        print(f"{file:36} {sum(result.killed for result in own):6} {len(own):4}")
    survivors = [result.fault for result in results if not result.killed]
    for fault in survivors:
        print(f"survived: {fault}")
    killed = len(results) - len(survivors)
    print(f"{killed} of {len(results)} killed ({killed / len(results):.1%})")
    return int(killed / len(results) < MIN_KILLED)


def chosen(word: str, sample: int, seed: int) -> list[Fault]:
    """Return faults whose description has the word, as many as the sample, or all if that is 0."""
    found = [fault for file in TESTS for fault in faults_of(file, ROOT) if word in str(fault)]
    if not found:
        raise CannotTry(f"no fault has {word!r} in its description; see bin/mutants --list --sample 0")
    if 0 < sample < len(found):
        found = sorted(random.Random(seed).sample(found, sample), key=lambda fault: (fault.file, fault.start))
    return found


def say(line: str) -> None:
    """Report progress."""
    print(line, file=sys.stderr, flush=True)


def _number(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= 64):
        raise argparse.ArgumentTypeError(f"{text} is not a number of processes from 1 to 64; use for instance --jobs 2")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a number; use for instance 200")
    return int(text)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise CannotTry(f"{message}; see bin/mutants --help")


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="bin/mutants", add_help=False, allow_abbrev=False)
    parser.add_argument("-k", dest="word", default="", metavar="WORD")
    parser.add_argument("--jobs", type=_number, default=1)
    parser.add_argument("--sample", type=_count, default=200)
    parser.add_argument("--seed", type=_count, default=0)
    parser.add_argument("--list", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """The command line; return the exit code."""
    # So that the server and the copies are removed whoever ends this.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        options = _options(arguments)
        faults = chosen(options.word, options.sample, options.seed)
        if options.list:
            for fault in faults:
                print(fault)
            return 0
        with (
            temporary_server({"fsync": "off"}) as server,
            tempfile.TemporaryDirectory(prefix="stator-mutants-") as folder,
        ):
            return judge(try_all(faults, options.jobs, Path(folder), server.url("mutants")))
    except (CannotTry, PostgresError) as error:
        say(f"bin/mutants: {error}")
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
