"""Migrations of states: what ``makemigrations`` adds for changed graphs and for tables in use, and its operations."""

from stator.seams import Extension

EXTENSION = Extension(
    name="migrating",
    connect=("stator.management.autodetector.connect", "stator.extensions.migrating.operations.connect"),
)
