"""Follow a page as a reader would: its files are written, its commands run, and what they print is compared."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stator.logs import CLEAR_LINE
from tests.processes import wait_until
from tests.sizes import PATIENCE

# What differs from run to run, in a line of a log.
VARYING = [
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}", "<time>"),
    (r"worker=[0-9a-f]{12}", "worker=<id>"),
    (r"pid=\d+", "pid=<pid>"),
    (r"seconds=[\d.]+", "seconds=<seconds>"),
]
BLOCK = re.compile(
    r"^\.\. code-block:: (?P<language>\w+)\n(?P<options>(?:   :.*\n)*)\n(?P<text>(?:(?:   .*)?\n)+)", re.MULTILINE
)

# Runs the examples of block after block as an open ``manage.py shell`` would, each told as JSON.
SHELL = """
import doctest, io, json, os, sys
import django
os.environ["DJANGO_SETTINGS_MODULE"] = sys.argv[1]
django.setup()
names, told = {}, sys.stdout
for line in sys.stdin:
    said, runner = io.StringIO(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    test = doctest.DocTestParser().get_doctest(json.loads(line), names, "shell", None, 0)
    runner.run(test, out=said.write, clear_globs=False)
    names = test.globs
    print(json.dumps(said.getvalue() if runner.tries else "no examples"), file=told, flush=True)
"""


@dataclass(frozen=True)
class Block:
    """A block of code of a page: ``caption`` names a file or a terminal."""

    language: str
    caption: str
    text: str

    def commands(self) -> Iterator[tuple[str, str]]:
        """Yield each command after ``$`` with what it prints."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield command, printed


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of code of a page, in order."""
    found = []
    for match in BLOCK.finditer(page.read_text() + "\n"):
        caption = re.search(r":caption: (.*)", match["options"])
        lines = [line[3:] for line in match["text"].splitlines()]
        found.append(Block(match["language"], caption[1] if caption else "", "\n".join(lines).strip() + "\n"))
    return found


def agree(expected: str, printed: str) -> bool:
    """Return whether a command printed what a page shows; ``...`` stands for any text."""
    return re.fullmatch(_pattern(expected), _normal(printed), re.DOTALL) is not None


def found_in(expected: str, printed: str) -> bool:
    """Return whether consecutive lines of what was printed are those that a page shows."""
    return re.search(rf"(?:^|\n){_pattern(expected)}(?:\n|$)", _normal(printed), re.DOTALL) is not None


def _pattern(expected: str) -> str:
    return r".*?".join(re.escape(part) for part in _normal(expected).split("..."))


def _normal(text: str) -> str:
    for pattern, replacement in VARYING:
        text = re.sub(pattern, replacement, text)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


class Follower:
    """A reader in an empty folder, with an environment of his own and as many terminals as the page has."""

    def __init__(self, folder: Path, environment: Path, settings: str, replaced: dict[str, str]) -> None:
        self.folder = folder
        self.settings = settings
        # Commands that a test cannot run as they stand, and what it runs instead.
        self.replaced = replaced
        # As ``activate`` does.
        self.environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "PYTHON", "STATOR_"))
        }
        self.environ |= {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "VIRTUAL_ENV": str(environment)}
        # As on a terminal: what a command writes to its two outputs comes in order.
        self.environ["PYTHONUNBUFFERED"] = "1"
        self.terminals: dict[str, Terminal] = {}
        self.shell: subprocess.Popen[str] | None = None

    def follow(self, blocks: list[Block]) -> None:
        """Do what each block says."""
        for block in blocks:
            self._do(block)

    def close(self) -> None:
        """End what still runs in terminals."""
        self._leave_shell()
        for terminal in self.terminals.values():
            terminal.close()

    def _do(self, block: Block) -> None:
        terminal, _, event = block.caption.partition(", ")
        if block.language == "python":
            # A shell that is open knows the files as they were.
            self._leave_shell()
            self._write(block)
        elif block.language == "pycon":
            self._shell(block.text)
        elif block.language == "text":
            if event == "after Ctrl-C":
                self.terminals[terminal].end(signal.SIGINT)
            self.terminals[terminal].shows(block.text)
        elif terminal.endswith(" terminal"):
            [(command, printed)] = block.commands()
            self.terminals[terminal] = Terminal(self, self.replaced.get(command, command))
            self.terminals[terminal].shows(printed)
        elif block.caption.startswith("Within "):
            wait_until(lambda: all(agree(printed, self._tried(command)) for command, printed in block.commands()))
        else:
            for command, printed in block.commands():
                told = self.run(command)
                assert agree(printed, told), f"$ {command}\n{told}\nis not what the page shows:\n{printed}"

    def _write(self, block: Block) -> None:
        path, _, how = block.caption.partition(", ")
        target = self.folder / path
        if how == "at the end":
            target.write_text(f"{target.read_text()}\n{block.text}")
        else:
            assert not how
            assert target.parent.is_dir(), f"{path} is in a folder that no step made"
            target.write_text(block.text)

    def _shell(self, text: str) -> None:
        if self.shell is None:
            self.shell = subprocess.Popen(
                ["python", "-c", SHELL, self.settings], cwd=self.folder, env=self.environ, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        assert self.shell.stdin
        assert self.shell.stdout
        print(json.dumps(text), file=self.shell.stdin, flush=True)
        told = json.loads(self.shell.stdout.readline())
        assert told == "", told

    def _leave_shell(self) -> None:
        if self.shell is not None:
            self.shell.communicate(timeout=PATIENCE)
            self.shell = None

    def run(self, command: str) -> str:
        """Return what a command printed; it must succeed."""
        if (command := self.replaced.get(command, command)) == "":
            return ""
        ended = self._sh(command)
        assert ended.returncode == 0, f"$ {command}\n{ended.stdout}"
        return ended.stdout

    def _tried(self, command: str) -> str:
        return self._sh(command).stdout

    def _sh(self, command: str) -> subprocess.CompletedProcess[str]:
        return self._ended(["sh", "-c", command])

    def _ended(self, command: list[str], **options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=300, check=False, **({"input": ""} | options),
        )  # fmt: skip


class Terminal:
    """A command that runs on in a terminal of its own, and what that shows since the page last looked at it."""

    def __init__(self, follower: Follower, command: str) -> None:
        self.seen = 0
        self._written = b""
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            shlex.split(command), cwd=follower.folder, env=follower.environ, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        # All the time, because a command stands still while nothing reads what it writes.
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def shows(self, expected: str) -> None:
        """Wait until the terminal shows the lines."""
        written, shown = b"", ""

        def there() -> bool:
            nonlocal written, shown
            written = self._written[self.seen :]
            lines = written.decode(errors="replace").replace("\r\n", "\n").split("\n")
            shown = "\n".join(line.rpartition(CLEAR_LINE)[2] for line in lines)
            return found_in(expected, shown)

        wait_until(there, message=lambda: f"expected:\n{expected}\nshown:\n{shown}")
        self.seen += len(written)

    def end(self, how: signal.Signals) -> None:
        """End the command by a signal, as Ctrl-C does."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)

    def close(self) -> None:
        """End the command if it still runs, and the terminal with it."""
        self.end(signal.SIGKILL)
        self._reader.join()
        os.close(self._master)

    def _read(self) -> None:
        # Linux answers with an error when no process has the other end any more.
        with suppress(OSError):
            while read := os.read(self._master, 65536):
                self._written += read
