"""The command line of the embedded MariaDB."""

import sys
from functools import partial

from tests.servers.command import main
from tests.servers.mariadb import Server

if __name__ == "__main__":
    sys.exit(main("tests.servers.mariadb", partial(Server, time_zones=True), sys.argv[1:]))
