"""``python -m tests.servers.postgres.distribution``: print the folder of the programs of this machine's own PostgreSQL.

That is the one of the distribution's package, with the compiler and the defaults that its users have. The embedded
server has no compiler.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.servers.postgres.programs import PostgresError, given_programs

# Where Debian and its relatives have each version; elsewhere pg_config says it.
DEBIAN = Path("/usr/lib/postgresql")


def distribution_programs() -> Path:
    """Return the folder that is given, else that of the newest version; raise if the machine has no PostgreSQL."""
    if given := given_programs():
        return given
    if versions := sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3])):
        return versions[-1].parent
    if config := shutil.which("pg_config"):
        said = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False).stdout.strip()
        if (Path(said) / "initdb").exists():
            return Path(said)
    raise PostgresError("no PostgreSQL of a distribution here; install its package, on Debian postgresql")


if __name__ == "__main__":
    try:
        print(distribution_programs())
    except PostgresError as error:
        sys.exit(str(error))
