"""Several real workers on the databases of a test, each with a name by which the event log knows it."""

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

from tests.processes import WorkerProcess, events, wait_until
from tests.sizes import CROWDED, FULL, PATIENCE
from tests.testapp.faults import Effect

# A lease long enough for a heartbeat on a crowded machine, and short enough to wait for.
LEASE, REAP_INTERVAL, POLL_INTERVAL = 3.0, 1.0, 0.2
# Recovery as promised: lease, reap interval and a second, from the last sign of life; these follow the lease's end.
RECOVERY = REAP_INTERVAL + 1.0 + CROWDED

# A worker that is left behind by a test run that was killed ends by itself.
MAX_RUN = str((3600 if FULL else 900) + int(60 * float(os.environ.get("SOAK", "0"))))

SETTINGS = {
    "STATOR_LEASE": str(LEASE),
    "STATOR_REAP_INTERVAL": str(REAP_INTERVAL),
    "STATOR_POLL_INTERVAL": str(POLL_INTERVAL),
    "STATOR_SCHEDULE_INTERVAL": "1",
    "STATOR_SHUTDOWN_TIMEOUT": "3",
}


class Fleet:
    """Workers that can be harmed one by one; leaving the context ends them all."""

    def __init__(self, *labels: str, **variables: Any) -> None:
        self.labels = labels
        self.variables = {**SETTINGS, **{name: str(value) for name, value in variables.items()}}
        self.alive: dict[str, WorkerProcess] = {}
        self.started = 0
        # The ended ones too, for what they wrote.
        self.everyone: list[WorkerProcess] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def start(self, *options: str, **variables: Any) -> WorkerProcess:
        """One more worker."""
        name = f"worker{self.started}"
        self.started += 1
        given = {**self.variables, **{name: str(value) for name, value in variables.items()}}
        worker = WorkerProcess(*self.labels, "--json-logs", "--run-for", MAX_RUN, *options, **given, TESTAPP_ACTOR=name)
        worker.name = name
        self.alive[name] = self._stack.enter_context(worker)
        self.everyone.append(worker)
        return worker

    def kill(self, name: str) -> None:
        """End a worker as a power failure does."""
        worker = self.alive.pop(name)
        worker.kill(signal.SIGKILL)
        worker.wait()

    def kill_all(self) -> None:
        """End all workers at one moment, as the failure of a data centre does."""
        for worker in self.alive.values():
            worker.kill(signal.SIGKILL)
        for worker in self.alive.values():
            worker.wait()
        self.alive.clear()

    def stop(self, timeout: float = PATIENCE) -> None:
        """Have all stop as a deployment does; each must say that it went well."""
        for worker in self.alive.values():
            worker.ask_to_stop()
        for name, worker in self.alive.items():
            code = worker.wait(timeout)
            assert code == 0, f"{name} exited with {code}; it wrote:\n{worker.output()}"
        self.alive.clear()

    def finish(self, *models: Any, timeout: float = PATIENCE) -> None:
        """Wait until every object of these models is done, and have all stop."""
        self.until_done(*models, timeout=timeout)
        self.stop()

    def until_done(self, *models: Any, timeout: float = PATIENCE) -> None:
        """Wait until every object of these models is done."""
        self.until(lambda: not any(model.objects.exclude(state="done").exists() for model in models), timeout)

    def until(self, condition: Callable[[], Any], timeout: float = PATIENCE) -> Any:
        """The first true value of the condition; fails at once, with all they wrote, when a worker has ended."""

        met: Any = None

        def met_or_ended() -> Any:
            nonlocal met
            # Not asked again afterwards: what was true may have passed by then.
            met = condition()
            return met or any(worker.returncode is not None for worker in self.alive.values())

        wait_until(met_or_ended, timeout, self.output)
        assert met, self.output()
        return met

    def output(self) -> str:
        """The last that each living worker has written."""
        return "\n".join(f"{name}: {worker.output()[-3000:]}" for name, worker in self.alive.items())

    def starts(self, worker: WorkerProcess, **lookups: Any) -> Any:
        """Return the rows that handlers of a worker wrote when they began."""
        return Effect.objects.filter(actor__startswith=f"{worker.name}:", **lookups)


def logged(worker: WorkerProcess, event: str) -> list[dict[str, Any]]:
    """The events of that name that a worker has logged."""
    return events(worker.output(), event)
