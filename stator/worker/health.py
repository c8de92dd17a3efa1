"""What holds up a process for good: told by the parts that know, heeded by the watchdog and by probes."""

from collections.abc import Callable

# Seconds for which a trouble must last before the process is ended for it: some pass.
PATIENCE = 5.0

# Returns one sentence if there has been trouble for so many seconds, else an empty text. Any thread may call it.
Look = Callable[[float], str]


class Health:
    """The troubles of one process. An app adds its own in a receiver of ``on_start``: ``sender.health.watch(...)``."""

    def __init__(self) -> None:
        self._looks: dict[str, Look] = {}

    def watch(self, name: str, look: Look) -> None:
        """Have ``look`` called from now on; one of the same name takes its place."""
        self._looks[name] = look

    def trouble(self, patience: float = PATIENCE) -> str:
        """Return what has held up the process for so many seconds, as one sentence; an empty text if nothing has."""
        return next(filter(None, (look(patience) for look in list(self._looks.values()))), "")
