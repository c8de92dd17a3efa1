"""A static look at the code of a project: where its own apps write a column. Nothing is imported or run.

It sees names and literals. A write through a variable field name, by a serializer or by a form stays unseen.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from sysconfig import get_paths
from time import monotonic

from django.apps import AppConfig, apps
from django.db.models import IntegerField

from stator.extensions.adopt.flow import FileLook, Values, Vocabulary, Write
from stator.extensions.adopt.target import Stored, Target

# At most so many files, so many bytes of one, and so many seconds.
MAX_FILES, MAX_BYTES, MAX_SECONDS = 5000, 1_000_000, 30.0
TESTS = ("tests", "test", "testing", "migrations", "node_modules")


@dataclass(frozen=True)
class CodeLook:
    """The writes that were found, in the order of files and lines; ``skipped``: files that were not read, with why.

    ``asked``: the values for whose rows the code asks, as a sweep does.
    """

    writes: list[Write]
    asked: Values
    apps: list[str]
    files: int
    skipped: list[str]


def look_at_code(target: Target) -> CodeLook:
    """Return where the project's own apps, and the app of the model, write the column; not in tests or migrations."""
    configs = [config for config in apps.get_app_configs() if _is_own(config, target)]
    words = _vocabulary(target)
    writes: list[Write] = []
    asked: set[Stored] = set()
    skipped: list[str] = []
    read, until = 0, monotonic() + MAX_SECONDS
    for path in _files(configs):
        if read >= MAX_FILES or monotonic() > until:
            skipped.append(f"{_shown(path)} and what follows: the look ended at its limit")
            break
        try:
            if path.stat().st_size > MAX_BYTES:
                skipped.append(f"{_shown(path)}: larger than {MAX_BYTES:,} bytes")
                continue
            read += 1
            text = path.read_text(encoding="utf-8")
            # Most files do not name the column, and parsing takes longest.
            look = FileLook(words, _shown(path))
            is_named = words.column in text or words.sql_column in text
            written = look.writes(ast.parse(text)) if is_named else []
            writes += [write for write in written if _fits(target, write)]
            asked |= look.asked
        except (OSError, RecursionError, SyntaxError, ValueError) as error:
            skipped.append(f"{_shown(path)}: {' '.join(str(error).split())}")
    return CodeLook(writes, frozenset(asked), [config.label for config in configs], read, skipped)


def _fits(target: Target, write: Write) -> bool:
    """Return whether the column can have what is written; a number has no text."""
    is_text = not isinstance(target.field, IntegerField)
    return write.targets is None or any(value is None or isinstance(value, str) == is_text for value in write.targets)


def _is_own(config: AppConfig, target: Target) -> bool:
    if config.label == target.model._meta.app_label:
        return True
    path = Path(config.path).resolve()
    installed = {Path(each).resolve() for name, each in get_paths().items() if name in ("stdlib", "purelib", "platlib")}
    ours = config.name.partition(".")[0] in ("django", "stator", "tasks")
    return not (ours or any(path.is_relative_to(each) for each in installed))


def _files(configs: list[AppConfig]) -> Iterator[Path]:
    yielded: set[Path] = set()
    for config in configs:
        root = Path(config.path)
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).parts
            about_tests = path.name.startswith(("test_", "tests.")) or path.name == "conftest.py"
            if path not in yielded and not (about_tests or {*parts[:-1]} & {*TESTS}):
                yielded.add(path)
                yield path


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _vocabulary(target: Target) -> Vocabulary:
    named = {each.__name__ for each in target.model.__mro__ if each is not object}
    others = {
        model.__name__
        for model in apps.get_models()
        if model is not target.model and any(field.name == target.column for field in model._meta.concrete_fields)
    }
    return Vocabulary(
        column=target.column,
        sql_column=str(target.field.column),
        table=str(target.model._meta.db_table),
        model=target.model.__name__,
        bases=frozenset(named),
        others=frozenset(others - named),
        constants=dict(target.constants),
        values=frozenset([*target.labels, *target.constants.values()]),
    )
