"""The order in which several processes run the tests: those that mostly wait are spread among those that compute."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

Module = list[Any]


def mixed(items: list[Any]) -> list[Any]:
    """Return the tests with modules that harm workers, or drive a browser, at even distances.

    Each process begins with a part of the list. In the order of their names, one would have all that wait, and all
    would wait at the end. Tests of a module stay together, for they share what takes long to make.
    """
    modules = [list(own) for _, own in groupby(items, key=attrgetter("path"))]
    waiting = [module for module in modules if any(map(_waits, module))]
    others = [module for module in modules if module not in waiting]
    placed = sorted([*_placed(waiting), *_placed(others)], key=itemgetter(0))
    return [item for _, module in placed for item in module]


def _waits(item: Any) -> bool:
    return item.get_closest_marker("fault") is not None or "browser" in item.path.parts


def _placed(modules: Iterable[Module]) -> Iterator[tuple[float, Module]]:
    """Yield each module with its middle, as a part of all their tests."""
    modules = list(modules)
    total, before = sum(map(len, modules)), 0
    for module in modules:
        yield (before + len(module) / 2) / total, module
        before += len(module)
