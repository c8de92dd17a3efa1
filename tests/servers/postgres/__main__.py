"""The command line of the embedded PostgreSQL."""

import sys

import psycopg

from tests.servers.command import main
from tests.servers.postgres import Server

if __name__ == "__main__":
    sys.exit(main("tests.servers.postgres", Server, sys.argv[1:], (psycopg.Error,)))
