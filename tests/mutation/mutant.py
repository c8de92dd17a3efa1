"""One fault made on purpose, and the tests that ought to notice it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old`` occurs once in ``file`` and becomes ``new``. ``tests``: files, or single tests as pytest names them.

    ``database``: ``sqlite`` or ``postgresql``. ``survives``: why no test can notice it; empty for all others.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    database: str = "sqlite"
    survives: str = ""


def tests(path: str, *names: str) -> tuple[str, ...]:
    """Return the tests with these names, without ``test_``, in a file below ``tests``; without names all of them."""
    parts = [name.rpartition("::") for name in names]
    return tuple(f"tests/{path}::{group}{mark}test_{name}" for group, mark, name in parts) or (f"tests/{path}",)


def of_claims(*names: str) -> tuple[str, ...]:
    """Return tests of how rows are claimed."""
    return tests("stator/db/test_claims.py", *names)


def of_records(*names: str) -> tuple[str, ...]:
    """Return tests of how outcomes are recorded or refused."""
    return tests("stator/db/test_records.py", *names)


def of_leases(*names: str) -> tuple[str, ...]:
    """Return tests of leases."""
    return tests("stator/db/test_leases.py", *names)


def of_chores(*names: str) -> tuple[str, ...]:
    """Return tests of what is done without a handler."""
    return tests("stator/db/test_chores.py", *names)
