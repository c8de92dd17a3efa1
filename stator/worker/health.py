"""What holds up a process: each part that may have trouble is asked."""

from collections.abc import Callable

# Seconds that a trouble must last before the process is ended: short ones pass.
PATIENCE = 5.0

# Returns a sentence if there has been trouble for the given number of seconds, else "". Any thread may call it.
Look = Callable[[float], str]


class Health:
    """The troubles of one process. An app adds its own in a receiver of ``on_start``: ``sender.health.watch(...)``."""

    def __init__(self) -> None:
        self._looks: dict[str, Look] = {}

    def watch(self, name: str, look: Look) -> None:
        """Call ``look`` from now on, in place of an earlier one with the same name."""
        self._looks[name] = look

    def trouble(self, patience: float = PATIENCE) -> str:
        """Return in one sentence what has held up the process for ``patience`` seconds, or ""."""
        return next(filter(None, (look(patience) for look in list(self._looks.values()))), "")
