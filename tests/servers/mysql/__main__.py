"""The command line of the embedded MySQL."""

import sys
from functools import partial

from tests.servers.command import main
from tests.servers.mysql import Server

if __name__ == "__main__":
    sys.exit(main("tests.servers.mysql", partial(Server, time_zones=True), sys.argv[1:]))
