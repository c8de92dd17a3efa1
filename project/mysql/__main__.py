"""The command line of the embedded MySQL."""

import sys
from functools import partial

from project.mysql import Server
from project.server_command import main

if __name__ == "__main__":
    sys.exit(main("project.mysql", partial(Server, time_zones=True), sys.argv[1:]))
