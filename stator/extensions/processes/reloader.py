"""For development: a worker process that is replaced when code changes."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

from django.utils import autoreload


class Reloader:
    """Runs a command in a process of its own; when a Python file changes, it stops that gracefully and starts another.

    A worker that hands back its objects before it ends leaves no lease that the next one would have to wait for. If the
    new code cannot be loaded, the command ends with its traceback, and the next change starts it again.
    """

    def __init__(self, command: list[str], tell: Callable[[str], None]) -> None:
        self._command, self._tell = command, tell
        self._process = subprocess.Popen(command)

    def run(self) -> int:
        """Work until a signal comes; return the exit code of the process that ran last."""
        autoreload.file_changed.connect(self._changed)
        before = signal.signal(signal.SIGTERM, _end)
        try:
            autoreload.get_reloader().run(threading.current_thread())
        except KeyboardInterrupt:
            # A terminal sends the signal to the worker too; a second one would end it at once.
            return self._process.wait()
        finally:
            autoreload.file_changed.disconnect(self._changed)
            signal.signal(signal.SIGTERM, before)
            self._stop()
        return self._process.returncode

    def _changed(self, file_path: Path, **kwargs: object) -> bool:
        if file_path.suffix == ".py":
            self._tell(f"{file_path} has changed")
            self._stop()
            self._process = subprocess.Popen(self._command)
        # Otherwise Django would end this process.
        return True

    def _stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()


def _end(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(0)
