"""The delete test: an extension is deleted from a copy of this checkout, and the rest must stand (``bin/without``)."""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from tests.extensions import APPS, EXTENSIONS, ROOT, TOGETHER, own_files, own_tests, spelled
from tests.forks import ForkServer

# The extensions that are known to pass; the list may only become longer.
PASSES = (
    "admin", "adopt", "api", "backend", "batches", "check_graph", "client", "consume", "events", "everything",
    "everything-but-the-queue", "fleet", "guard", "isolation", "limits", "metrics", "migrating", "model_rules",
    "notices", "overview", "partitions", "pauses", "pictures", "problems", "processes", "progress", "queue_pauses",
    "reconcile", "refusals", "related", "reports", "schedules", "schemas", "scopes", "shadow", "shared", "slices",
    "stats", "steps", "tasks_admin", "tasks_commands", "throttles", "tracing", "undo", "views", "watchdog",
)  # fmt: skip

# Those without which the other tests pass, too (``--tests``): each by itself.
TESTED = tuple(name for name in PASSES if not name.startswith("everything"))

# What ends the name of a module that pytest has compiled.
BY_PYTEST = f"-pytest-{pytest.__version__}.pyc"

# Models change when an extension goes, so migrations are made before anything is checked.
SITE = """
import sys
from importlib import import_module
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command
from django.db.migrations import RemoveConstraint, RemoveIndex
from django.db.migrations.autodetector import MigrationAutodetector

APPS = [app for app in ("stator", "tasks", "orders") if Path(app).is_dir()]
CONTRIB = ["admin", "auth", "contenttypes", "messages", "sessions"]
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.sqlite3", "OPTIONS": {
        "transaction_mode": "IMMEDIATE", "timeout": 30,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF"}}},
    INSTALLED_APPS=[*("django.contrib." + app for app in CONTRIB), *APPS],
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware"],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True, "OPTIONS": {
        "context_processors": ["django.template.context_processors.request",
            "django.contrib.auth.context_processors.auth",
            "django.contrib.messages.context_processors.messages"]}}],
    # The tables of others are made at once, without their eighteen migrations.
    MIGRATION_MODULES=dict.fromkeys(CONTRIB), SECRET_KEY="only for this run", STATIC_URL="/static/", USE_TZ=True,
)
django.setup()
for app in APPS:
    for path in sorted(Path(app).rglob("*.py")):
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        if "migrations" not in path.parts and not name.endswith(("__main__", "isolation.child")):
            try:
                import_module(name)
            except Exception as error:
                sys.exit(f"import {name}: {type(error).__name__}: {error}")

sort_operations = MigrationAutodetector._sort_migrations


def remove_first(detector):
    # SQLite removes no column that is in a constraint or an index, not even before it deletes the table.
    sort_operations(detector)
    for app, model in sorted(detector.old_model_keys - detector.new_model_keys):
        for constraint in detector.from_state.models[app, model].options.get("constraints", ()):
            detector.add_operation(app, RemoveConstraint(model, constraint.name))
    for operations in detector.generated_operations.values():
        operations.sort(key=lambda each: not isinstance(each, RemoveConstraint | RemoveIndex))


MigrationAutodetector._sort_migrations = remove_first
call_command("makemigrations", verbosity=0, interactive=False)
call_command("check")
call_command("migrate", verbosity=0, run_syncdb=True)
"""

# The test app keeps the options of the extension, which have no meaning now.
IGNORED = """
from stator.rows.meta import ModelOption, add_model_option
for name in {names}:
    add_model_option(ModelOption(name=name, wrong=lambda model, value: ""))
"""
# And those of its states.
IGNORED_OF_STATES = """
_checked = State.__init__
State.__init__ = lambda state, **options: _checked(
    state, **{{name: value for name, value in options.items() if name not in {names}}}
)
"""

# A task runs; without the queue an object of a model moves.
QUEUE = """
from tasks import action
from tasks.models import Queue, Task

done = []
action("resize", queue="encode")(lambda image: done.append(image))
published = Queue.objects.create(name="encode").publish("resize", {"image": 7}).task
call_command("runstator", until_idle=True)
assert done == [7], "the task has not run"
assert Task.objects.get(pk=published.pk).state == "completed", "the task has not ended"
"""
ORDERS = """
from orders.models import Order

Order.objects.create()
call_command("runstator", until_idle=True)
assert Order.objects.get().state == "sent", "the object has not moved"
"""
MODELS = """
from stator.models import State, StateField, StateGraph, StatorModel


class OrderGraph(StateGraph):
    new = State(try_interval=60)
    sent = State()
    new.transitions_to(sent)

    @classmethod
    def handle_new(cls, order):
        return cls.sent


class Order(StatorModel):
    state = StateField(OrderGraph)
"""


@contextmanager
def copied(*folders: str, keep: bool = False) -> Iterator[Path]:
    """Copy the files that git knows, as they are now, or those in some folders, into a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="stator-without-"))
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0")
    try:
        for name in filter(None, names):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_file():
                shutil.copy2(ROOT / name, folder / name)
            # What is compiled already goes along, by pytest too: compiling takes as long as all the rest.
            if name.endswith(".py"):
                cached = cache_from_source(name)
                _take_along(folder, cached)
                _take_along(folder, cached.removesuffix(".pyc") + BY_PYTEST)
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _take_along(folder: Path, name: str) -> None:
    """Link a compiled module into a copy: whoever compiles it anew replaces the file."""
    if (ROOT / name).is_file():
        (folder / name).parent.mkdir(exist_ok=True)
        try:
            (folder / name).hardlink_to(ROOT / name)
        except OSError:
            # The copy is on another file system.
            shutil.copy2(ROOT / name, folder / name)


def with_dependents(*names: str) -> list[str]:
    """Return extensions, or those that a name stands for, and the ones that import them or are said to need them."""
    going = [each for name in names for each in TOGETHER.get(name, (name,))]
    for each in going:
        going += [other for other in dependents(each) if other not in going]
    return going


@cache
def dependents(name: str) -> list[str]:
    """Return the extensions that import one; a share of that in another (:func:`shares`) goes alone."""
    line = re.compile(rf"\b(?:{'|'.join(APPS)})\.extensions\.{name}\b")
    needs = [other for other, extension in EXTENSIONS.items() if name in extension.needs.split()]
    own = {path for each in (name, *needs) for path in shares(ROOT, each)}
    needs += [
        path.relative_to(ROOT).parts[2] for path, text in _extension_modules() if line.search(text) and path not in own
    ]
    return [other for other in dict.fromkeys(needs) if other != name]


@cache
def _extension_modules() -> list[tuple[Path, str]]:
    paths = [path for app in APPS for path in (ROOT / app).glob("extensions/*/**/*.py")]
    return [(path, path.read_text()) for path in paths]


@cache
def groups() -> list[list[str]]:
    """Return the extensions that pass in groups that go together, so that few copies show what a copy for each would.

    For each extension, and each other one that does not go with it, a group has the first and leaves the second.
    """
    names = [name for name in TESTED if name in EXTENSIONS and not EXTENSIONS[name].of_queue]
    going = {name: set(with_dependents(name)) for name in names}
    wanted = {(name, other) for name in names for other in names if other not in going[name]}
    found = []
    while wanted:
        group, gone, shown = [], set(), set()
        # First those of which most is left to show.
        for name in sorted(names, key=lambda name: -sum(one == name for one, _ in wanted)):
            more = gone | going[name]
            shows = {(one, other) for one, other in wanted if one in more and other not in more}
            if len(shows) > len(shown):
                group, gone, shown = [*group, name], more, shows
        found.append(group)
        wanted -= shown
    return found


def shares(folder: Path, name: str) -> set[Path]:
    """Return the files that other extensions have for one: the module, or the folder, that is named like it."""
    found = {path for app in APPS for path in (folder / app).glob(f"extensions/*/{name}.py")}
    found |= {path for app in APPS for path in (folder / app).glob(f"extensions/*/{name}/**/*.py")}
    return found - {path for app in APPS for path in (folder / app).glob(f"extensions/{name}/**/*.py")}


def named_by(*names: str) -> re.Pattern[str]:
    """Return what a line contains that names the folder of an extension, or the share of another one in it."""
    return re.compile(rf"\b(?:{'|'.join(APPS)})\.extensions\.(?:\w+\.)?(?:{'|'.join(names)})\b")


def delete(folder: Path, *extensions: str) -> None:
    """Delete the files of extensions with their tests, the shares of others in them, and the lines that name these."""
    gone = [path.relative_to(ROOT) for name in extensions for path in (*own_files(name), *own_tests(name))]
    gone += [path.relative_to(folder) for name in extensions for path in shares(folder, name)]
    away = {_dotted(path): {"*"} for path in gone if path.suffix == ".py"}
    options, names, fixtures, commands = set(), set(), set(), set()
    has_tests = (folder / "tests").is_dir()
    for path in gone:
        if has_tests and path.suffix == ".py" and (path.parts[0] != "tests" or path.name == "conftest.py"):
            # One that went with an extension before has no copy any more.
            source = folder / path if (folder / path).is_file() else ROOT / path
            defined = ast.walk(ast.parse(source.read_text()))
            (fixtures if path.name == "conftest.py" else names).update(
                name for node in defined for name in _defined(node)
            )
        if (folder / path).is_file():
            text = (folder / path).read_text()
            options.update(re.findall(r'\bModelOption\(name="(\w+)"', text))
            for listed in re.findall(r"\bcommands=\((.*?)\)", text, re.DOTALL):
                commands.update(re.findall(r'\.(\w+)"', listed))
            (folder / path).unlink()
    line = named_by(*extensions)
    for path in [path for app in APPS for path in (folder / app).rglob("*.py")]:
        text = path.read_text()
        # Most files name it nowhere.
        if not line.search(text):
            continue
        lines = text.splitlines(keepends=True)
        going = [each for each in lines if line.search(each)]
        away[_dotted(path.relative_to(folder))] = set().union(*map(_names, going))
        names.update(re.findall(r"^ +(\w+)(?:: | = )", "".join(going), re.MULTILINE))
        if path.name == "meta.py":
            options.update(re.findall(r"^    (\w+): ", "".join(going), re.MULTILINE))
        path.write_text("".join(each for each in lines if each not in going))
        if path.name == "states.py" and has_tests:
            declared = re.findall(r"^    (\w+): .* = ", "".join(going), re.MULTILINE)
            _append(path, IGNORED_OF_STATES.format(names=declared))
        ast.parse(path.read_text(), str(path))
    for path in [path for each in ("tests", "project") for path in (folder / each).rglob("*.py")]:
        said = path.read_text()
        text = said if path.is_relative_to(folder / "project") else _imported(said, away)
        left = "".join(each for each in text.splitlines(keepends=True) if not line.search(each))
        if left != said:
            ast.parse(left, str(path))
            path.write_text(left)
    if has_tests:
        _append(folder / "stator" / "extensions" / "options.py", IGNORED.format(names=sorted(options)))
        pages = [page for name in extensions if name in EXTENSIONS for page in EXTENSIONS[name].pages.split()]
        sets = {"GONE": names, "FIXTURES": fixtures, "COMMANDS": commands, "PAGES": pages}
        lines = "".join(f"{each}.update({sorted(gone)})\n" for each, gone in sets.items())
        _append(folder / "tests" / "missing.py", f"\n{lines}")
    for path in sorted((path for app in (*APPS, "tests") for path in (folder / app).rglob("*")), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def delete_queue(folder: Path) -> None:
    """Delete the queue, its tests, and what imports it in the test app; tests import it from ``tests.missing``."""
    uses = re.compile(r"^(?:from|import) tasks\b", re.MULTILINE)
    own = [path for each in ("tasks", "tests/tasks") for path in (folder / each).rglob("*.py")]
    own += [path for path in (folder / "tests" / "testapp").glob("*.py") if uses.search(path.read_text())]
    away = {_dotted(path.relative_to(folder)): {"*"} for path in own}
    for path in own:
        path.unlink()
    for each in ("tasks", "tests/tasks"):
        shutil.rmtree(folder / each, ignore_errors=True)
    for path in (folder / "tests").rglob("*.py"):
        path.write_text(_imported(path.read_text(), away))
    for path in [*(folder / "project").glob("*.py"), *(folder / "tests").glob("*settings.py")]:
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(each for each in lines if not re.search(r"[\"' ]tasks[.\"]", each)))


def _defined(node: ast.AST) -> list[str]:
    """Return the name of a function, also of one for asynchronous code, or the names of the fields of a class."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("in_thread("):
        return [ast.unparse(target) for target in node.targets]
    fields = (
        [each.target for each in node.body if isinstance(each, ast.AnnAssign)] if isinstance(node, ast.ClassDef) else []
    )
    return [field.id for field in fields if isinstance(field, ast.Name)]


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _names(line: str) -> list[str]:
    """Return what a line makes known, if it is an import."""
    found = re.fullmatch(r"\s*from \S+ import ([\w, ]+?)\s*(?:#.*)?", line.rstrip())
    return [name.split()[-1] for name in found[1].split(",")] if found else []


def _imported(text: str, away: dict[str, set[str]]) -> str:
    """Return the text of a test that imports what has gone from a module (``*``: all of it) from ``tests.missing``."""
    # Most of them import nothing of it, and to parse them all takes longer than the rest.
    if not any(f"from {module} import" in text for name in away for module in (name, name.rpartition(".")[0])):
        return text
    lines = text.splitlines(keepends=True)
    for node in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.module):
        of_module = away.get(node.module, set())
        gone = [
            one for one in node.names if {"*", one.name} & of_module or "*" in away.get(f"{node.module}.{one.name}", ())
        ]
        if gone:
            parts = {"tests.missing": gone, node.module: [one for one in node.names if one not in gone]}
            imports = [f"from {module} import {_listed(names)}" for module, names in parts.items() if names]
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first] = lines[first][: node.col_offset] + "; ".join(imports) + "\n"
            lines[first + 1 : last] = [""] * (last - first - 1)
    return "".join(lines)


def _listed(names: list[ast.alias]) -> str:
    return ", ".join(ast.unparse(name) for name in names)


def fault(folder: Path, going: list[str], tests: bool) -> str:
    """Return in one line why the rest does not stand; empty if it does."""
    of_queue = any(EXTENSIONS[each].of_queue for each in going if each in EXTENSIONS)
    if of_queue:
        delete_queue(folder)
        (folder / "orders" / "migrations").mkdir(parents=True)
        for path in ("__init__.py", "migrations/__init__.py"):
            (folder / "orders" / path).touch()
        (folder / "orders" / "models.py").write_text(MODELS)
    (folder / "without_site.py").write_text(SITE + (ORDERS if of_queue else QUEUE))
    (printed := folder / "printed.txt").touch()
    if code := _fork_server().start([str(folder), "without_site.py"], _environment(), str(printed)).wait():
        said = printed.read_text().strip().splitlines()
        return said[-1] if said else f"exit {code}"
    return _failed_tests(folder, going) if tests else ""


def _failed_tests(folder: Path, going: list[str]) -> str:
    """Run the tests that are left, on SQLite; return those that fail first, empty if none does.

    All of the files that spell the extension, which are nearest to it, and the first test of each other file.
    """
    near = folder / "near.txt"
    words = [EXTENSIONS[each].words or named_by(each).pattern for each in going if each in EXTENSIONS]
    tests = [path for app in APPS for path in (folder / "tests" / app).rglob("test_*.py")]
    found = [path for path in tests if any(spelled(path, each) for each in words)]
    near.write_text("\n".join(path.relative_to(folder).as_posix() for path in found) or "none")
    environment = {**_environment(), "DATABASE_URL": "sqlite:///db.sqlite3", "NEAR": str(near)}
    apps = [f"tests/{app}" for app in APPS if (folder / app).is_dir()]
    processes = ["-n", environment.get("JOBS", "2"), "--dist", "worksteal"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.missing",
        # SQLite cannot delete all models and columns in the order of Django's own migrations.
        "--no-migrations",
        "-q",
        "-x",
        "-m",
        "not fault",
        "--tb=no",
        *processes,
        *apps,
    ]
    print(f"       the rest works; now the tests, all of {len(found)} files and one of each other", flush=True)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    said = done.stdout.strip().splitlines() or ["pytest said nothing"]
    print(f"       {said[-1].strip('= ')}", flush=True)
    failed = [line for line in said if line.startswith(("FAILED ", "ERROR tests/"))]
    return "" if done.returncode == 0 else "; ".join(failed or said[-1:])


@cache
def _fork_server() -> ForkServer:
    return ForkServer(_environment(), "django.db.backends.sqlite3")


def _environment() -> dict[str, str]:
    """Return ours without what belongs to a suite around us; the processes of a copy compile its files once."""
    own = ("PYTEST_", "DJANGO_", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)}


def try_without(*names: str, tests: bool = False, keep: bool = False) -> str:
    """Delete extensions from a copy; return in one line why the rest does not stand, empty if it does."""
    if any(not any(map(own_files, TOGETHER.get(name, (name,)))) for name in names):
        return "it has no file of its own, so it is part of the core"
    with copied(*(() if tests or keep else APPS), keep=keep) as folder:
        if keep:
            print(f"{' '.join(names)}: the copy is {folder}")
        going = with_dependents(*names)
        delete(folder, *going)
        return fault(folder, going, tests)


def main() -> int:
    """Try the extensions that the arguments name."""
    parser = argparse.ArgumentParser(prog="bin/without")
    parser.add_argument("names", nargs="*", metavar="NAME")
    for flag in ("tests", "keep", "list"):
        parser.add_argument(f"--{flag}", action="store_true")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in (*EXTENSIONS, *TOGETHER)]:
        parser.error(f"{unknown[0]} is no extension; bin/without --list names them")
    if given.list:
        for name in (*EXTENSIONS, *TOGETHER):
            count = sum(len(own_files(each)) for each in TOGETHER.get(name, (name,)))
            print(f"{'passes' if name in PASSES else '':7}{name:25}{count:4} files")
        return 0
    failed, passing = 0, TESTED if given.tests else PASSES
    for name in given.names or (TESTED if given.tests else EXTENSIONS):
        why = try_without(name, tests=given.tests, keep=given.keep)
        print(f"{'FAILED' if why else 'ok    '} {name}{': ' * bool(why)}{why[:1000]}", flush=True)
        failed |= bool(why) and (bool(given.names) or name in passing)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
