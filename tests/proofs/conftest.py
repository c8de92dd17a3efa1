"""Fixtures for the proofs."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.faults.conftest import fleet, watch
from tests.proofs.proof import Proof, make_proof

__all__ = ["fleet", "watch"]


@pytest.fixture
def proof(request: Any) -> Iterator[Callable[..., Proof]]:
    """Begin a proof of a line: ``proof("R5.5", full=1800, short=120)``; its figures stand in the table of the run."""
    made: list[Proof] = []
    yield partial(_begin, made)
    request.node.user_properties += [("proof", each.row()) for each in made]


def _begin(made: list[Proof], line: str, **limits: float) -> Proof:
    made.append(make_proof(line, **limits))
    return made[-1]
