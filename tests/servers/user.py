"""What the embedded database servers share: the user they run as, and places that this user can reach."""

import os
import pwd
import secrets
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

# The servers refuse to run as root. This user exists on every system.
USER_FOR_ROOT = "nobody"

ADDRESS = "127.0.0.1"
# Ports below those that Linux gives to who asks for any.
GIVEN_BY_NOBODY = range(20_000, 32_768)
# The database that tests, benchmarks and demos use.
DATABASE = "stator"


class ServerError(Exception):
    """An operation of an embedded server failed."""


def as_server() -> dict[str, Any]:
    """Return the options of ``subprocess.run`` that run a program as the server's user."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam(USER_FOR_ROOT)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def give_to_server(path: Path) -> None:
    """Make the server's user the owner of a file or directory."""
    if os.geteuid() == 0:
        user = pwd.getpwnam(USER_FOR_ROOT)
        os.chown(path, user.pw_uid, user.pw_gid)


def open_to_server(directory: Path) -> bool:
    """Return whether the server's user can enter a directory."""
    if os.geteuid() != 0:
        return True
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in directory.resolve().parents)


def open_place() -> Path:
    """Return a temporary directory that the server's user can enter."""
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        if Path(place).is_dir() and open_to_server(Path(place) / "any"):
            return Path(place)
    raise ServerError(f"user {USER_FOR_ROOT} cannot get into the temporary directory; set TMPDIR to one that is open")


def free_port() -> int:
    """Return a port of this machine at which nothing answers.

    It is none of those that the system gives to connections and to servers without a port, which are many in a run.
    """
    while True:
        port = GIVEN_BY_NOBODY.start + secrets.randbelow(len(GIVEN_BY_NOBODY))
        with socket.socket() as probe, suppress(OSError):
            probe.bind((ADDRESS, port))
            return port


def last_lines(log: Path) -> list[str]:
    """Return the end of a log; nothing if there is no such file."""
    return log.read_text(errors="replace").splitlines()[-3:] if log.exists() else []
