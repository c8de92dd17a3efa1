"""The command line of the embedded PostgreSQL."""

import sys

import psycopg

from project.postgres import Server
from project.server_command import main

if __name__ == "__main__":
    sys.exit(main("project.postgres", Server, sys.argv[1:], (psycopg.Error,)))
