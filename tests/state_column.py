"""The lines that spell the column of a row's state, which a model may name as it likes.

Only ``stator/rows/state_column.py`` knows the name and what is stored. Our own tables have columns ``state`` too, with
names of states: a call or a list that also names one of their other columns is about these.
"""

import ast
import re
from pathlib import Path

from tests.extensions import ROOT
from tests.parsing import tree_of

OWNER = "stator/rows/state_column.py"

_COLUMN = re.compile(r"-?state(__\w+)?")
_IN_SQL = re.compile(r"(?<![\w{.%])(\w+|\{\w+\})\.state\b(?!_)|\b(SET|WHERE|AND) state\b(?!_| = excluded\.)")
_OWN_TABLES = {"report", "excluded", "limit", "pause", "blocking"}
_OWN_COLUMNS = {"model_label", "object_pk"}
# Calls whose keywords are columns, and calls whose texts are.
_BY_KEYWORD = {"filter", "exclude", "get", "update", "annotate", "alias", "create", "Q", "When"}
_BY_TEXT = {"values", "values_list", "order_by", "only", "defer", "F", "OuterRef", "get_field", "field_of", "getattr"}
_ROWS = {"row", "instance", "obj", "object", "model_instance", "mine"}


def files() -> list[Path]:
    """Return the modules of the framework, without its migrations and the owner of the column."""
    found = sorted((ROOT / "stator").rglob("*.py"))
    return [path for path in found if "migrations" not in path.parts and path != ROOT / OWNER]


def spelled(path: Path) -> int:
    """Return in how many lines a module spells the column."""
    tree = tree_of(path)
    # The attributes of a class of ours are no columns.
    slots = {
        node.lineno for each in ast.walk(tree) if _is_slots(each) for node in ast.walk(each) if hasattr(node, "lineno")
    }
    return len({line for node in ast.walk(tree) for line in _lines(node)} - slots)


def _is_slots(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__slots__"


def _lines(node: ast.AST) -> set[int]:
    if isinstance(node, ast.Call):
        return _of_call(node)
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        texts = [_text(each) for each in node.elts]
        lists_columns = any(text == "pk" or text.startswith("state_") for text in texts)
        lists_columns |= any(isinstance(each, ast.Starred) for each in node.elts)
        # Headings have words.
        lists_columns &= not any(" " in text for text in texts)
        return _found(node.elts) if lists_columns and not _OWN_COLUMNS.intersection(texts) else set()
    if isinstance(node, ast.Compare):
        return _found([node.left, *node.comparators])
    if isinstance(node, ast.Attribute) and node.attr == "state":
        holder = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        return {node.lineno} if holder in _ROWS else set()
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"[A-Z]{3}", node.value):
        return {node.lineno + at for at, line in enumerate(node.value.split("\n")) if _is_sql(line)}
    return set()


def _of_call(node: ast.Call) -> set[int]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    keywords = {keyword.arg: keyword.value.lineno for keyword in node.keywords if keyword.arg}
    named = {line for key, line in keywords.items() if _COLUMN.fullmatch(key)} if name in _BY_KEYWORD else set()
    texts = _found(node.args) if name in _BY_TEXT else set()
    own = _OWN_COLUMNS.intersection(keywords) or _OWN_COLUMNS.intersection(map(_text, node.args))
    return set() if own else named | texts


def _found(nodes: list[ast.expr]) -> set[int]:
    return {node.lineno for node in nodes if _COLUMN.fullmatch(_text(node))}


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_sql(line: str) -> bool:
    return any(found[1] not in _OWN_TABLES for found in _IN_SQL.finditer(line))
