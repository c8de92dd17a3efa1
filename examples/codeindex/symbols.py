"""The definitions in a Python source. Imports nothing of Django, and reads no files."""

import ast
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

KINDS = ("class", "function", "async function", "method", "async method", "constant")

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
_warning_filters = threading.Lock()


class Unparsable(Exception):
    """The source is not Python; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One name that a source defines, and the first line of its docstring."""

    kind: str
    qualified_name: str
    line: int
    summary: str = ""

    @property
    def name(self) -> str:
        """The name without the classes and functions around it."""
        return self.qualified_name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class _Scope:
    """A node of the tree, with the prefix and the kind of owner of the definitions in it."""

    node: ast.AST
    prefix: str = ""
    owner: str = "module"


def definitions_in(source: bytes) -> list[Definition]:
    """Return every class, function, method and constant in a source, from top to bottom.

    Names are qualified as in `__qualname__`. Raises `Unparsable` if it is not valid Python.
    """
    return sorted(_walk(_parse(source)), key=lambda definition: definition.line)


def _parse(source: bytes) -> ast.Module:
    try:
        with _warning_filters, warnings.catch_warnings():
            # Warnings about the parsed code concern its author. Locked, because filters belong to the whole process.
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        raise Unparsable(_located(error)) from None
    except ValueError as error:  # Null bytes, before Python 3.12.
        raise Unparsable(str(error)) from None
    except (RecursionError, MemoryError):
        raise Unparsable("nested too deeply to be parsed") from None


def _located(error: SyntaxError) -> str:
    return f"line {error.lineno}: {error.msg}" if error.lineno else str(error.msg)


def _walk(tree: ast.Module) -> Iterator[Definition]:
    # Without recursion, because a long `elif` chain is a tree as deep as the chain is long.
    pending = [_Scope(tree)]
    while pending:
        scope = pending.pop()
        for block in _BLOCKS:
            for node in getattr(scope.node, block, ()):
                yield from _defined_by(node, scope)
                pending.append(_inside(node, scope))


def _defined_by(node: Any, scope: _Scope) -> Iterator[Definition]:
    """Yield the definitions of one statement, without those inside it."""
    if isinstance(node, ast.ClassDef):
        yield Definition("class", scope.prefix + node.name, node.lineno, _summary(node))
    elif isinstance(node, _FUNCTIONS):
        yield Definition(_function_kind(node, scope), scope.prefix + node.name, node.lineno, _summary(node))
    elif scope.owner != "function":
        for name in _assigned_names(node):
            if name.isupper():
                yield Definition("constant", scope.prefix + name, node.lineno)


def _inside(node: ast.AST, scope: _Scope) -> _Scope:
    """Return the scope of the statements inside this one."""
    if isinstance(node, ast.ClassDef):
        return _Scope(node, f"{scope.prefix}{node.name}.", "class")
    if isinstance(node, _FUNCTIONS):
        return _Scope(node, f"{scope.prefix}{node.name}.<locals>.", "function")
    return _Scope(node, scope.prefix, scope.owner)


def _function_kind(node: ast.AST, scope: _Scope) -> str:
    kind = "method" if scope.owner == "class" else "function"
    return f"async {kind}" if isinstance(node, ast.AsyncFunctionDef) else kind


def _summary(node: Any) -> str:
    return (ast.get_docstring(node) or "").strip().partition("\n")[0]


def _assigned_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    else:
        return
    for target in targets:
        for part in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
            if isinstance(part, ast.Name):
                yield part.id
