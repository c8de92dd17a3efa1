"""An isolated process as its worker sees it: start it, request an attempt, end it."""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE
from asyncio.subprocess import Process as Subprocess
from contextlib import suppress
from pathlib import Path

from django.conf import settings

from stator.db.interface import Claim
from stator.worker.isolated.messages import Answer, Request

logger = logging.getLogger("stator.worker")

COMMAND = (sys.executable, "-m", "stator.worker.isolated")

# Seconds that a process may take to start, and to close its connections at its end.
START_TIME, RETIRING = 60.0, 10.0


class NotStarted(Exception):
    """A process did not start; the message says how it ended."""


class Process:
    """An isolated process, the leader of a process group. The group ends when it is killed, and with this process."""

    def __init__(self, process: Subprocess, life: int) -> None:
        self.idle_since = 0.0
        self.is_usable = True
        self._process = process
        # While this end of a pipe is open, the other side knows that this process lives.
        self._life = life

    @classmethod
    async def start(cls, options: dict[str, object]) -> "Process":
        """Start a process and return it once it is ready; raise :class:`NotStarted` if it does not get there."""
        theirs, ours = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *COMMAND, str(theirs), json.dumps(options),
                stdin=PIPE, stdout=PIPE, pass_fds=[theirs], start_new_session=True, env=_environment(),
            )  # fmt: skip
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        started = cls(process, ours)
        try:
            async with asyncio.timeout(START_TIME):
                answer = await started._answer()
        except TimeoutError:
            answer = None
        except BaseException:
            started.kill()
            raise
        if answer is None:
            started.kill()
            code = await process.wait()
            raise NotStarted(f"{' '.join(COMMAND[1:])} ended with {code} before it was ready; see its error output")
        return started

    async def attempt(self, claim: Claim) -> Answer | None:
        """Return the answer of the process once the attempt is recorded, or None if the process died."""
        operations = claim.operations
        request: Request = {
            "model": operations.label, "token": claim.token.hex, "using": operations.alias,
            "schema": operations.schema, "worker": operations.worker_id,
        }  # fmt: skip
        claim.started = time.monotonic()
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")  # type: ignore[union-attr]
            while (answer := await self._answer()) and "extended" in answer:
                claim.note_extension(answer["extended"], time.monotonic())
        except BaseException:
            self.is_usable = False
            raise
        self.is_usable = answer is not None
        return answer

    async def retire(self) -> int | None:
        """Let the process end by itself, then kill its group; return its exit code, None if it had to be killed."""
        self._process.stdin.close()  # type: ignore[union-attr]
        try:
            return await asyncio.wait_for(self._process.wait(), RETIRING)
        except TimeoutError:
            logger.warning("stator.isolated_process_stuck", extra={"pid": self._process.pid})
            return None
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the process and everything it started."""
        self.is_usable = False
        if self._life < 0:
            return
        # The group may be gone; macOS reports "not permitted" if all its processes have ended.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        os.close(self._life)
        self._life = -1

    async def _answer(self) -> Answer | None:
        line = await self._process.stdout.readline()  # type: ignore[union-attr]
        answer: Answer | None = json.loads(line) if line.endswith(b"\n") else None
        return answer


def _environment() -> dict[str, str]:
    path = os.pathsep.join(part or str(Path.cwd()) for part in sys.path)
    return {**os.environ, "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE}
