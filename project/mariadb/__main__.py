"""The command line of the embedded MariaDB."""

import sys
from functools import partial

from project.mariadb import Server
from project.server_command import main

if __name__ == "__main__":
    sys.exit(main("project.mariadb", partial(Server, time_zones=True), sys.argv[1:]))
