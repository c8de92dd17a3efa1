"""The subcommands of ``manage.py stator``, one module each: HELP, add_arguments(parser), run(options) -> Answer."""

from typing import Any

from stator.commands import (
    doctor,
    explain,
    graph,
    move,
    pause,
    preview,
    prune,
    resume,
    retry,
    status,
    unlock,
    workers,
)

SUBCOMMANDS: dict[str, Any] = {
    "status": status,
    "explain": explain,
    "graph": graph,
    "retry": retry,
    "unlock": unlock,
    "pause": pause,
    "resume": resume,
    "move": move,
    "preview": preview,
    "workers": workers,
    "prune": prune,
    "doctor": doctor,
}
