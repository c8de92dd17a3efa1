"""Modules of this checkout as syntax trees, for tests of what they import and contain."""

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    # Python 3.11 raises SystemError if something else is parsed meanwhile. The garbage collector may do that: it ends a
    # task of a test that failed, and the task logs its error with a traceback, whose lines are parsed.
    gc.disable()
    try:
        return ast.parse(path.read_text(), str(path))
    finally:
        gc.enable()
