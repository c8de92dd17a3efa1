"""Where one file writes a column, and from which value to which, as far as its text shows that.

Each function is followed statement by statement. What is known is the set of values that ``x.status`` may have: from a
comparison around the write, from the filter of the query that ``x`` came from, or from the write before it.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from stator.extensions.adopt.target import Stored

Values = frozenset[Stored]
# What is known of variables and their rows, by the text of the variable. A missing one is unknown.
Known = dict[str, Values]

CREATES = {"create", "acreate", "get_or_create", "aget_or_create"}
SAVES = {"update_or_create", "aupdate_or_create"}
UPDATES = {"update", "aupdate"}
BULK = {"bulk_update", "abulk_update"}
QUERIES = {"filter", "get", "aget", "exclude", "get_object_or_404", "aget_object_or_404", "get_list_or_404"}
MANAGERS = {"objects", "_default_manager"}
UPDATE = re.compile(
    r"\bUPDATE\s+(?P<table>\S+)(?:\s+\w+)?\s+SET\s+(?P<set>.*?)(?:\sWHERE\s(?P<where>.*))?$", re.IGNORECASE | re.DOTALL
)
INSERT = re.compile(r"\bINSERT\s+INTO\s+(?P<table>\S+)\s*\((?P<columns>[^)]*)\)", re.IGNORECASE)


@dataclass(frozen=True)
class Write:
    """One place that writes the column.

    ``sources``: the values before it, ``targets``: the values after it; None if the text does not show them.
    ``creates``: it makes rows. ``sure``: the text shows that it is this model, or no other has a column of that name.
    """

    file: str
    line: int
    how: str
    sources: Values | None
    targets: Values | None
    creates: bool = False
    sure: bool = True

    @property
    def where(self) -> str:
        """The place for people."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Vocabulary:
    """The names that matter: of the column, its table, its model and bases, other models with such a column.

    ``sql_column``: what SQL calls the column.

    ``constants``: names of constants with their values. ``values``: the values that are declared.
    """

    column: str
    sql_column: str
    table: str
    model: str
    bases: frozenset[str]
    others: frozenset[str]
    constants: Mapping[str, Stored]
    values: Values


class FileLook:
    """The look at one file."""

    def __init__(self, words: Vocabulary, file: str) -> None:
        self.words = words
        self.file = file
        self._writes: dict[tuple[int, str], Write] = {}
        self._constants = dict(words.constants)
        # The class around the present function; the models that variables of it hold.
        self._class: ast.ClassDef | None = None
        self._models: dict[str, str] = {}
        # What the variables of the present function may hold, whichever of their assignments came last.
        self._variables: dict[str, Values] = {}
        # The values for whose rows the code asks.
        self.asked: set[Stored] = set()

    def writes(self, tree: ast.Module) -> list[Write]:
        """Return the writes of the file, by line."""
        self._constants |= {
            name.id: value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for name in node.targets
            for value in _literal(node.value)
            if isinstance(name, ast.Name)
        }
        self._block(tree.body, {})
        return sorted(self._writes.values(), key=lambda write: write.line)

    # Statements: each returns what is known after it, None if nothing comes after it.

    def _block(self, body: list[ast.stmt], known: Known | None) -> Known | None:
        for statement in body:
            if known is None:
                return None
            known = self._statement(statement, known)
        return known

    def _statement(self, node: ast.stmt, known: Known) -> Known | None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
            case ast.ClassDef():
                self._class, outer = node, self._class
                self._block(node.body, {})
                self._class = outer
            case ast.If() | ast.While():
                self._expressions(node.test, known)
                yes, no = self._refined(node.test, known)
                within, other = self._block(node.body, yes), self._block(node.orelse, no)
                return _joined(within, other) if isinstance(node, ast.If) else _joined(known, within)
            case ast.For() | ast.AsyncFor():
                return self._loop(node, known)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self._expressions(item.context_expr, known)
                return self._block(node.body, known)
            case ast.Try() | ast.TryStar():
                return self._try(node, known)
            case ast.Match():
                self._expressions(node.subject, known)
                ends = [self._block(case.body, dict(known)) for case in node.cases]
                return _joined(known, *ends)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                return self._assign(node, known)
            case ast.Expr(value=ast.Constant()):
                # A docstring may have examples.
                return known
            case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
                self._expressions(node, known)
                return None
            case _:
                return self._expressions(node, known)
        return known

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer, self._models, self._variables = (self._models, self._variables), {}, self._held(node)
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for argument in arguments:
            if argument.annotation and (model := self._model_in(argument.annotation)):
                self._models[argument.arg] = model
        self._block(node.body, {})
        self._models, self._variables = outer

    def _held(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, Values]:
        """Return what its variables may hold that get only values which the text shows."""
        names = [each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)]
        given: dict[str, Values | None] = dict.fromkeys(names)
        shown: set[ast.Name] = set()
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign):
                continue
            values = self._values(node.value)
            for name in node.targets:
                if isinstance(name, ast.Name):
                    shown.add(name)
                    given[name.id] = _all(given[name.id], values) if name.id in given else values
        # A loop, a ``with`` or another target gives it what the text does not show.
        given |= {each.id: None for each in ast.walk(function) if _stores(each) and each not in shown}
        return {name: values for name, values in given.items() if values}

    def _loop(self, node: ast.For | ast.AsyncFor, known: Known) -> Known | None:
        self._expressions(node.iter, known)
        inner = dict(known)
        if isinstance(node.target, ast.Name):
            self._bind(node.target.id, node.iter, inner)
        # A later turn begins with what an earlier one has left.
        after = _joined(known, self._block(node.body, inner)) or dict(known)
        after.pop(ast.unparse(node.target), None)
        return self._block(node.orelse, after)

    def _try(self, node: ast.Try | ast.TryStar, known: Known) -> Known | None:
        moments: list[Known | None] = [dict(known)]
        after: Known | None = dict(known)
        for statement in node.body:
            after = None if after is None else self._statement(statement, after)
            moments.append(None if after is None else dict(after))
        failed = _joined(*moments)
        ends = [self._block(handler.body, dict(failed or {})) for handler in node.handlers]
        ends.append(self._block(node.orelse, after))
        return self._block(node.finalbody, _joined(*ends) if node.finalbody else None) or _joined(*ends)

    def _assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, known: Known) -> Known:
        if node.value is None:
            return known
        known = self._expressions(node.value, known)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Attribute) and target.attr == self.words.column:
                known = self._set(node, target.value, node.value, known)
            elif isinstance(target, ast.Name):
                known = dict(known)
                self._bind(target.id, node.value, known)
        return known

    def _set(self, node: ast.AST, receiver: ast.expr, value: ast.expr, known: Known) -> Known:
        name, targets = ast.unparse(receiver), self._values(value)
        if self._is_other(receiver):
            return known
        self._note(node, "assignment", known.get(name), targets, receiver)
        known = {key: values for key, values in known.items() if key != name}
        return known | ({name: targets} if targets else {})

    def _bind(self, name: str, value: ast.expr, known: Known) -> None:
        """Remember the values and the model of the rows that a variable gets."""
        for key in [key for key in known if key == name or key.startswith(f"{name}.")]:
            del known[key]
        if values := self._sources(value, known):
            known[name] = values
        self._models.pop(name, None)
        if model := self._model_in(value):
            self._models[name] = model

    # Expressions

    def _expressions(self, node: ast.AST, known: Known) -> Known:
        parts = {id(part) for each in ast.walk(node) if isinstance(each, ast.JoinedStr) for part in ast.walk(each)}
        for each in ast.walk(node):
            if isinstance(each, ast.Call):
                known = self._call(each, known)
            elif isinstance(each, ast.JoinedStr):
                self._sql(each, "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in each.values))
            elif isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in parts:
                self._sql(each, each.value)
        return known

    def _call(self, node: ast.Call, known: Known) -> Known:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        value = given.get(self.words.column)
        if isinstance(node.func, ast.Attribute) and name in UPDATES and value is not None:
            receiver = node.func.value
            self._note(node, "update()", self._sources(receiver, known), self._values(value), receiver, rows=True)
        elif name in CREATES and value is not None:
            self._note(node, f"{name}()", None, self._values(value), node.func, creates=True)
        elif name in (*CREATES, *SAVES):
            for default in _in_dictionary(given.get("defaults"), self.words.column):
                self._note(node, f"{name}()", None, self._values(default), node.func, creates=name in CREATES)
        elif name in BULK and self._names_column([*node.args[1:2], *node.keywords]):
            self._note(node, f"{name}()", None, None, node.func)
        elif name == self.words.model and value is not None:
            self._note(node, f"{name}()", None, self._values(value), node.func, creates=True)
        elif name == "setattr" and len(node.args) == 3 and _text(node.args[1]) == self.words.column:
            return self._set(node, node.args[0], node.args[2], known)
        elif name in QUERIES - {"exclude"} and self._model_of(node.func) == self.words.model:
            self.asked |= self._filtered(node, without=False) or frozenset()
        elif name in ("refresh_from_db", "arefresh_from_db") and isinstance(node.func, ast.Attribute):
            return {key: values for key, values in known.items() if key != ast.unparse(node.func.value)}
        return known

    def _names_column(self, nodes: list[ast.expr | ast.keyword]) -> bool:
        within = (each for node in nodes for each in ast.walk(node))
        return any(isinstance(each, ast.Constant) and each.value == self.words.column for each in within)

    def _sql(self, node: ast.AST, text: str) -> None:
        text = " ".join(text.split())
        column = rf'["`]?\b{re.escape(self.words.sql_column)}\b["`]?'
        if (insert := INSERT.search(text)) and re.search(column, insert["columns"]):
            self._note_sql(node, insert["table"], None, None, creates=True)
        update = UPDATE.search(text)
        if update is None or not re.search(rf"{column}\s*=", update["set"]):
            return
        sources, targets = _compared(column, update["where"] or ""), _compared(column, update["set"])
        self._note_sql(node, update["table"], sources, targets)

    def _note_sql(
        self, node: ast.AST, table: str, sources: Values | None, targets: Values | None, *, creates: bool = False
    ) -> None:
        plain = table.strip("\"`'").rpartition(".")[2]
        # The table may be put into the text when it runs.
        if plain == self.words.table or not plain.isidentifier():
            write = Write(self.file, _line(node), "SQL", sources, targets, creates, plain == self.words.table)
            self._writes[write.line, write.how] = write

    def _note(
        self,
        node: ast.AST,
        how: str,
        sources: Values | None,
        targets: Values | None,
        receiver: ast.expr,
        *,
        creates: bool = False,
        rows: bool = False,
    ) -> None:
        if self._is_other(receiver):
            return
        ours = self._model_of(receiver) == self.words.model and not (creates and self._is_related(receiver))
        # A dictionary has an update() too.
        sure = ours or not (self.words.others or self._is_of_class(receiver) or (rows and not _is_query(receiver)))
        write = Write(self.file, _line(node), how, sources, targets, creates, sure)
        self._writes[write.line, write.how] = write

    # Which model

    def _is_other(self, receiver: ast.expr) -> bool:
        return self._model_of(receiver) in self.words.others

    def _is_of_class(self, receiver: ast.expr) -> bool:
        """Return whether it is an attribute of the class around, of which the text does not show whose it is."""
        return isinstance(receiver, ast.Name) and receiver.id in ("self", "cls") and self._class is not None

    def _is_related(self, receiver: ast.expr) -> bool:
        """Return whether it makes rows through an attribute of an object, which are of another model."""
        match receiver:
            case ast.Attribute(value=ast.Attribute(attr=name)) if name not in MANAGERS:
                return not self._model_in(receiver)
        return False

    def _model_of(self, node: ast.expr) -> str:
        if model := self._model_in(node):
            return model
        root = next((each for each in ast.walk(node) if isinstance(each, ast.Name)), None)
        if root is None:
            return ""
        if root.id in ("self", "cls") and self._class is not None:
            return self._model_named(self._class.name)
        names = {name.lower(): name for name in (self.words.model, *self.words.others)}
        return self._models.get(root.id) or names.get(root.id.lower(), "")

    def _model_in(self, node: ast.AST) -> str:
        """Return the first model that an expression names, as a class or in the text of an annotation."""
        for each in ast.walk(node):
            text = each.id if isinstance(each, ast.Name) else each.attr if isinstance(each, ast.Attribute) else ""
            if model := self._model_named(text or (_text(each) if isinstance(each, ast.Constant) else "")):
                return model
        return ""

    def _model_named(self, name: str) -> str:
        return self.words.model if name in self.words.bases else name if name in self.words.others else ""

    # Which values

    def _values(self, node: ast.expr) -> Values | None:
        """Return the values that an expression may have; None if the text does not show them."""
        match node:
            case ast.Constant():
                return frozenset(_literal(node)) or None
            case ast.IfExp():
                return _all(self._values(node.body), self._values(node.orelse))
            case ast.Tuple() | ast.List() | ast.Set():
                return _all(*map(self._values, node.elts))
            case ast.Attribute(attr="value", value=ast.Attribute() as member):
                return self._values(member)
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in self._constants:
                return frozenset([self._constants[name]])
            case ast.Name(id=name):
                return self._variables.get(name)
        return None

    def _sources(self, node: ast.expr, known: Known) -> Values | None:
        """Return the values of the rows that an expression has, from its filters or its variable."""
        while True:
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
                if name in QUERIES and (values := self._filtered(node, without=name == "exclude")) is not None:
                    return values
                chained = isinstance(node.func, ast.Attribute)
                inner = node.func.value if isinstance(node.func, ast.Attribute) else next(iter(node.args), None)
                if inner is None or not (chained or name in ("list", "iter", "reversed", "sorted", "tuple")):
                    return None
                node = inner
            elif isinstance(node, ast.Await | ast.Subscript | ast.Attribute):
                node = node.value
            else:
                return known.get(node.id) if isinstance(node, ast.Name) else None

    def _filtered(self, node: ast.Call, *, without: bool) -> Values | None:
        queries = [node, *(each for each in node.args if isinstance(each, ast.Call))]
        given = [keyword for query in queries for keyword in query.keywords]
        column = self.words.column
        asked = [each.value for each in given if each.arg in (column, f"{column}__exact", f"{column}__in")]
        values = _all(*map(self._values, asked)) if asked else None
        return self._others(values) if without else values

    def _others(self, values: Values | None) -> Values | None:
        return (self.words.values - values) or None if values is not None and self.words.values else None

    def _refined(self, test: ast.expr, known: Known) -> tuple[Known, Known]:
        """Return what is known if a test holds, and if not."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._refined(operand, known)[::-1]
            case ast.BoolOp(op=ast.And()):
                holds = known
                for each in test.values:
                    holds = self._refined(each, holds)[0]
                return holds, dict(known)
            case ast.BoolOp(op=ast.Or()):
                fails, ways = known, []
                for each in test.values:
                    holds, fails = self._refined(each, fails)
                    ways.append(holds)
                return _joined(*ways) or {}, fails
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                if isinstance(right, ast.Attribute) and right.attr == self.words.column:
                    left, right = right, left
                values = self._values(right)
                if isinstance(left, ast.Attribute) and left.attr == self.words.column and values is not None:
                    return self._compared(ast.unparse(left.value), op, values, known)
        return dict(known), dict(known)

    def _compared(self, name: str, op: ast.cmpop, values: Values, known: Known) -> tuple[Known, Known]:
        before = known.get(name, self.words.values)
        rest = {key: each for key, each in known.items() if key != name}
        same = rest | {name: values}
        other = rest | ({name: before - values} if before - values else {})
        if isinstance(op, ast.Eq | ast.In | ast.Is):
            return same, other
        return (other, same) if isinstance(op, ast.NotEq | ast.NotIn | ast.IsNot) else (dict(known), dict(known))


def _joined(*ways: Known | None) -> Known | None:
    """Return what is known after one of several ways; None if none of them goes on."""
    open_ways = [way for way in ways if way is not None]
    if not open_ways:
        return None
    first, *others = open_ways
    shared = [name for name in first if all(name in other for other in others)]
    return {name: frozenset[Stored]().union(*(way[name] for way in open_ways)) for name in shared}


def _all(*parts: Values | None) -> Values | None:
    known = [each for each in parts if each is not None]
    return frozenset[Stored]().union(*known) if known and len(known) == len(parts) else None


def _literal(node: ast.Constant) -> list[Stored]:
    """Return the value of a literal, if a column can have it."""
    value = node.value
    return [value] if value is None or (isinstance(value, str | int) and not isinstance(value, bool)) else []


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _stores(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def _is_query(receiver: ast.expr) -> bool:
    names = {each.attr for each in ast.walk(receiver) if isinstance(each, ast.Attribute)}
    return bool(names & {*MANAGERS, "filter", "all", "exclude", "select_for_update", "using"})


def _in_dictionary(node: ast.expr | None, name: str) -> Iterator[ast.expr]:
    if isinstance(node, ast.Dict):
        yield from (value for key, value in zip(node.keys, node.values, strict=True) if key and _text(key) == name)


def _compared(column: str, sql: str) -> Values | None:
    """Return the literals that a column is compared with, or set to, in SQL; None if there are none."""
    values: set[Stored] = set()
    for match in re.finditer(rf"{column}\s*(?:=|IN)\s*\(?((?:'[^']*'|\d+|,\s*)+)", sql, re.IGNORECASE):
        values |= {text if quoted else int(number) for quoted, text, number in _literals(match[1])}
    return frozenset(values) or None


def _literals(text: str) -> Iterator[tuple[bool, str, str]]:
    for match in re.finditer(r"'([^']*)'|(\d+)", text):
        yield match[2] is None, match[1] or "", match[2] or "0"
