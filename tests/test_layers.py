"""How the library is built: floors, and what no module may do. Read from the source, nothing is run."""

import ast
import re
from functools import cache, wraps
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.parsing import tree_of

ROOT = Path(__file__).parent.parent

# A module imports its own floor and lower ones. A package stands for all modules in it.
FLOORS = {
    0: "capabilities exceptions graph logs texts",
    1: "asynchronous conf explain migration_operations models querysets rows scopes signals "
    "statements strict_fence table_operations",
    2: "adoption db",
    3: "batteries claims runner seams worker",
    4: "admin admin_site apps checks citus commands draining extending extensions management metrics survey "
    "pytest_plugin schemas templatetags terminal testing testing_graph undo urls views",
}
FLOOR_OF = {name: floor for floor, names in FLOORS.items() for name in names.split()}

# The same for tasks: rules and names, rows and what is done with them, what looks after rows, and what people use. A
# name with a dot is a module that is not on the floor of its package.
TASK_FLOORS = {
    0: "client conf exceptions failures indexes messages datetimes periodic rows actions backend.framework "
    "extensions.backend.priorities extensions.batches.context extensions.isolation.options "
    "extensions.throttles.frequency extensions.throttles.options queue.actions queue.expressions queue.task_parts "
    "queue.rules queue.runs extensions.queue_pauses.pausing extensions.schedules.periodic "
    "extensions.schedules.timetable",
    1: "backend graph models querysets queue worker extensions.throttles.models extensions.batches.models "
    "extensions.batches.joining",
    2: "chores dead_letters testing extensions.batches extensions.notices extensions.shared extensions.stats.samples "
    "extensions.throttles",
    3: "admin api apps commands extensions management",
}
TASK_FLOOR_OF = {name: floor for floor, names in TASK_FLOORS.items() for name in names.split()}
# What projects import or hold, extensions' models and verbs with it; each line that does can be left out.
FACADES = (
    "stator", "stator.graph.graphs", "stator.graph.states", "stator.models", "stator.querysets", "stator.rows.meta",
    "stator.testing", "stator.db.interface", "stator.adoption", "stator.migration_operations", "stator.runner",
    "tasks.failures", "tasks.models", "tasks.queue.held_claims", "tasks.queue.queues", "tasks.testing",
)  # fmt: skip
# What a package offers under its own name and imports when it is used first.
OFFERED = {"stator": {"stator.models"}}
# What these import when one of their functions is called, and not before.
LATE = {"stator.extensions.problems.verbs", "tasks.extensions.problems.verbs"}
# The models of the rows on floor 0, which only type checkers follow.
FOR_TYPES = {"tasks.models"}
LOADERS = ("import_module", "import_string", "importlib.import_module")

# Floor 0 is without Django; these need none either.
WITHOUT_DJANGO = {name for name, floor in FLOOR_OF.items() if floor == 0} | {"worker.children"}

LOADED_BY_NAME = {
    # The capabilities of the database name it.
    ("db", "statements"),
    ("db.looks", "statements"),
    ("apps", "f'stator.{module}'"),
    # The one table of extensions.
    ("batteries", "name"),
    ("batteries", "path"),
    # The functions that options of models name.
    ("rows.meta", "option"),
    ("admin", "_path"),
    ("db.own_tables", "table.sweep"),
    ("worker.duties", "path"),
    ("extensions.metrics.measures", "path"),
    ("metrics", "path"),
    ("urls", "patterns"),
    ("commands", "path"),
    ("commands.answer", "path"),
    ("extensions.problems.commands.doctor", "path"),
    ("extensions.problems.kinds", "_path"),
    ("admin", "_path"),
    ("management.commands.runstator", "path"),
    # The settings of this very process.
    ("extensions.isolation.surroundings", "module"),
    # The function that the setting SCHEMAS names.
    ("extensions.schemas.served", "schemas"),
    # The modules that the setting EXTENSIONS names.
    ("conf", "path"),
}

# Where statements of our own are sent to a database, and why the ORM does not do.
WITH_SQL = {
    "adoption": "asks the server for its indexes, and locks a table",
    "citus": "adds columns, and makes databases for tests",
    "checks.databases": "asks the server for what it knows of itself",
    "extensions.problems.commands.doctor.servers": "the same, on each node of a cluster",
    "extensions.problems.commands.doctor.tables": "the same",
    "extensions.guard.doctor": "asks the server which triggers are disabled",
    "extensions.steps.attempt": "inserts what is selected from the row of a claim",
    "commands.statements": "sends one that finds nothing in place of those that write",
    "db": "the statements on rows",
    "rows.records": "copies what rows are, by the server, before they are changed",
    "rows.life_ends": "asks which records rows have that are about to be deleted",
    "extensions.schemas": "asks the server for its schemas, and their tables and columns",
    "extensions.slices": "asks Citus which tables it has distributed, and finds slices",
    "extensions.partitions": "reads, makes and drops partitions",
    "migration_operations": "drops a trigger",
    "statements": "sends what these others have written",
    "strict_fence": "makes a trigger",
    "worker.startup": "looks at tables before anything is claimed",
    "rows.wakeup": "NOTIFY",
    "worker.listener": "LISTEN",
}
# Called by these names, and not as methods.
SENDING = ("RawSQL", "fetch_all")
# What may be put into the text of a statement: quoted names, and parts made of such.
IN_SQL = re.compile(
    r"(table|name|trigger|columns|body|values|pk|pk_type|key|key_type|claimable|arrays|names|kept|further_columns|column|kind|n|of"
    r"|order|assignments|returning|further|which|pick|picked|held|leaves|others|index|COUNTED|HISTORY|CHANNEL|sql)"
    r"|', '\.join\(parts\)|\w+\.ops\.quote_name\(table\)|'pk' if tell else 'count\(\*\)'"
)
SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|LISTEN|NOTIFY|CREATE|DROP|ALTER|SET LOCAL)\b")

# Only these ask the clock of the machine what time it is, and none of them decides who holds a row.
ASKS_THE_TIME = {
    "admin": "shows ages to people",
    "models": "state_age, for people",
    "rows.fields": "whether a start that was given has come; a claim asks the database again",
    "rows.clock": "how far a zone is ahead of UTC, for times that the database tells",
    "extensions.stats.models": "the hour and the minute that are counted",
    "extensions.events.admin.answers": "shows when a link ends, to people",
    "testing": "is the clock of tests",
}
SLEEPS = {
    # A handler that blocks its thread, or the event loop, is what these are about.
    "tests/testapp/faults.py",
    # Servers that start and stop are asked again and again.
    "tests/servers/mariadb/server.py",
    "tests/servers/postgres/server.py",
}


def modules(package="stator"):
    return sorted(path for path in (ROOT / package).rglob("*.py") if "migrations" not in path.parts)


def name_of(path):
    """Without the package: ``db.base``, and an empty name for the package itself."""
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(part for part in parts if part != "__init__")


def top_of(name):
    return name.partition(".")[0]


NAMES = {name_of(path): path for path in modules()}


def each(subjects):
    """Make one test of a rule for many subjects, which fails with all that break it."""

    def decorate(rule):
        @wraps(rule)
        def test():
            broken = {}
            for subject in subjects:
                try:
                    rule(subject)
                except AssertionError as error:
                    broken[str(subject)] = str(error)
            assert broken == {}

        # Otherwise pytest takes the parameter of the rule for a fixture.
        del test.__wrapped__
        return test

    return decorate


each_module = each(NAMES)


def imports_of(name):
    """``(module, node)`` of everything that a module imports."""
    for node in ast.walk(tree_of(NAMES[name])):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively; write the whole name"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole.removeprefix("stator.") in NAMES else node.module, node


def ours(name):
    found = edges_of(tree_of(NAMES[name]))
    return {module.partition(".")[2] for module in found if top_of(module) == "stator"} - {""}


def edges_of(tree):
    """The modules of ours that a module imports, by a statement or by a string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in WHOLE_NAMES)
        elif isinstance(node, ast.ImportFrom):
            wholes = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (whole if whole in WHOLE_NAMES else node.module for whole in wholes)
    for called, node in calls(tree):
        wanted = node.args[0].value if called in LOADERS and isinstance(node.args[0], ast.Constant) else None
        if wanted in WHOLE_NAMES:
            yield wanted


def whole_name_of(path):
    return f"{path.relative_to(ROOT).parts[0]}.{name_of(path)}".rstrip(".")


WHOLE_NAMES = {whole_name_of(path): path for package in ("stator", "tasks") for path in modules(package)}


def test_every_module_has_its_floor_and_no_floor_names_what_is_gone():
    found = {top_of(name) for name in NAMES} - {""}
    assert found <= set(FLOOR_OF), f"give them a floor: {sorted(found - set(FLOOR_OF))}"
    assert set(FLOOR_OF) <= found, f"these are gone: {sorted(set(FLOOR_OF) - found)}"


def test_page_on_the_inside_has_these_floors():
    page = (ROOT / "docs" / "internals.rst").read_text()
    [table] = re.findall(r"^floor +folders.*?\n=+ .*?\n(.*?)^=", page, re.MULTILINE | re.DOTALL)
    named, floor = {}, 0
    for line in table.splitlines():
        floor = int(line[0].strip() or floor)
        named.setdefault(floor, set()).update(re.findall(r"\w+", line[7:76]))
    assert named == {floor: set(names.split()) for floor, names in FLOORS.items()}


@each(WHOLE_NAMES)
def test_module_imports_no_floor_above_its_own(name):
    imported = {*edges_of(tree_of(WHOLE_NAMES[name]))} - (FOR_TYPES - run_edges_of(name))
    above = floors_above(name, imported) - OFFERED.get(name, set())
    if name in FACADES:
        above = {module for module in above if ".extensions." not in module}
    assert not above, f"{name} is on floor {floor_of(name)} and may not import {', '.join(sorted(above))}"


def floors_above(name, imported):
    """Return the imported modules on a floor above that of the module, or in a package above its own."""
    package = top_of(name)
    return {
        module
        for module in imported
        if (top_of(module) == package and floor_of(module) > floor_of(name))
        or (package == "stator" and top_of(module) == "tasks")
    }


def floor_of(name):
    package, _, rest = name.partition(".")
    if not rest:
        # ``tasks`` itself offers decorators.
        return 1 if package == "tasks" else 0
    floors = {"stator": FLOOR_OF, "tasks": TASK_FLOOR_OF}[package]
    return floors[rest] if rest in floors else floors[top_of(rest)]


def test_tasks_has_a_floor_for_each_module_and_no_floor_names_what_is_gone():
    names = {name_of(path) for path in modules("tasks")} - {""}
    assert {top_of(name) for name in names} == {name for name in TASK_FLOOR_OF if "." not in name}
    assert {name for name in TASK_FLOOR_OF if "." in name} <= names


@each_module
def test_floor_0_knows_nothing_of_django(name):
    if top_of(name) in WITHOUT_DJANGO or name in WITHOUT_DJANGO or not name:
        assert not [module for module, _ in imports_of(name) if top_of(module) in ("django", "asgiref", "psycopg")]


def test_no_module_imports_itself_by_way_of_others():
    try:
        TopologicalSorter({name: run_edges_of(name) for name in WHOLE_NAMES}).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' <- '.join(error.args[1])}")


@cache
def run_edges_of(name):
    """The modules of ours that one imports, but for what is for type checkers only."""
    return {edge for edge in edges_of(run_tree_of(name)) if edge in WHOLE_NAMES} - {name}


def run_tree_of(name):
    """A module without what is for type checkers only, which is at its top."""
    body = tree_of(WHOLE_NAMES[name]).body
    if name in LATE:
        body = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    return ast.Module([n for n in body if not (isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")], [])


# Django makes these generic itself. Of its other classes, a package does that which few projects have.
GENERIC = {"QuerySet", "Manager"}


@each(WHOLE_NAMES)
def test_no_other_class_of_django_gets_parameters_at_run_time(name):
    found = [f"{ast.unparse(node)} in line {node.lineno}" for node in django_classes_with_parameters(run_tree_of(name))]
    assert not found, f"put these into quotes: {', '.join(found)}"


def django_classes_with_parameters(tree):
    """Yield where a class of Django gets parameters, but for the types of local names, which are never evaluated."""
    inside = [node for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
              for node in ast.walk(each) if isinstance(node, ast.AnnAssign)]  # fmt: skip
    local = {id(part) for node in inside for part in ast.walk(node.annotation)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = {alias.asname or alias.name for node in imports if top_of(node.module) == "django" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and id(node) not in local:
            names = ast.unparse(node.value).split(".")
            if names[0] in ours and names[-1][:1].isupper() and names[-1] not in GENERIC:
                yield node


# Only these ask which vendor a database is of; the others ask for a capability.
ASKS_THE_VENDOR = ("stator.capabilities", "stator.db")


@each(WHOLE_NAMES)
def test_module_asks_for_capabilities_and_not_for_the_vendor(name):
    lines = lines_with_vendor(name, tree_of(WHOLE_NAMES[name]))
    assert not lines, f"{name} asks for the vendor in lines {lines}; give stator.capabilities an attribute instead"


def lines_with_vendor(name, tree):
    """The lines of a module that ask for the vendor, as an attribute or by its name; none if it may."""
    if name in ASKS_THE_VENDOR or name.startswith("stator.db."):
        return []
    return [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr == "vendor")
        or (isinstance(node, ast.Constant) and node.value == "vendor")
    ]


def test_tasks_builds_on_what_the_framework_offers_to_everybody():
    public = {"graph", "models", "querysets", "signals", "exceptions", "admin", "testing", "runner", "claims"}
    # Methods for async code, how settings are declared and checked, how commands end, safe text, what a database can
    # do, kept statements, the scope of a context.
    public |= {"asynchronous", "conf", "terminal", "texts", "capabilities", "schemas", "scopes", "statements", "seams"}
    # The threads for code that may never return.
    further = {"stator.worker.thread_pool"}
    # What outcomes write beside rows.
    further |= {"stator.db.effects", "stator.db.saved_fields"}
    # What an app that keeps attempts itself tells of them.
    further |= {"stator.rows.kept_attempts"}
    # Counts of many rows that end at a limit.
    further |= {"stator.db.bounded_counts"}
    # Which rows may be claimed and held, and what follows moves.
    further |= {"stator.db.conditions", "stator.rows.followers"}
    # How a check of a database fails, and what its tables lack.
    further |= {"stator.checks.messages", "stator.db.tables"}
    # How workers learn of rows that became ready.
    further |= {"stator.rows.wakeup"}
    # What retentions have deleted, and which records outlive objects.
    further |= {"stator.rows.deletions", "stator.rows.record_tables"}
    # What extensions have stored of objects, such as their latest errors.
    further |= {"stator.rows.readings"}
    # Figures of models over time.
    further |= {"stator.survey.flow"}
    # What kinds of problems read, and when a backlog is done.
    further |= {f"stator.extensions.problems.{name}" for name in ("starving", "surveyed")} | {"stator.survey.estimates"}
    # What subcommands answer.
    further |= {"stator.commands.answer", "stator.commands.arguments"}
    # How a long action shows how far it is.
    further |= {"stator.logs"}
    # Processes of their own, for objects that lost many leases and for isolated actions.
    further |= {f"stator.extensions.isolation.{name}" for name in ("child", "messages", "process", "surroundings")}
    # What attempts log.
    further |= {"stator.extensions.reports.attempt_log"}
    for path in modules("tasks"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and top_of(node.module or "") == "stator" and node.module != "stator":
                known = node.module.split(".")[1] in public or node.module in further
                assert known, f"{path.name} imports {node.module}"


# Security


@cache
def calls(tree):
    """``(dotted name, node)`` of every call."""
    return [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def library():
    return [*modules("stator"), *modules("tasks"), *modules("examples"), *modules("project")]


@each(library())
def test_nothing_stored_is_ever_run(path):
    """S1: no pickle, no eval, no path of a module taken from a row."""
    tree = tree_of(path)
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {top_of(name) for name in names} & {"pickle", "marshal", "shelve", "dill", "yaml", "code"}
    for name, node in calls(tree):
        assert name not in ("eval", "exec", "compile", "__import__", "os.system", "os.popen"), f"line {node.lineno}"
        assert not any(keyword.arg == "shell" for keyword in node.keywords), f"line {node.lineno}"


@each_module
def test_modules_are_loaded_by_names_that_are_in_the_source_only(name):
    """S1 again."""
    for called, node in calls(tree_of(NAMES[name])):
        if called in LOADERS:
            wanted = node.args[0]
            known = isinstance(wanted, ast.Constant) or (name, ast.unparse(wanted)) in LOADED_BY_NAME
            assert known, f"stator.{name} line {node.lineno} loads {ast.unparse(wanted)}"


def has_sql(name):
    return any(f"{name}.".startswith(f"{known}.") for known in WITH_SQL)


@each_module
def test_statements_are_written_in_few_modules(name):
    """S2: the rest asks the ORM."""
    if has_sql(name):
        return
    for called, node in calls(tree_of(NAMES[name])):
        _, dot, method = called.rpartition(".")
        # Without a dot it is the next in a chain of Django's wrappers.
        method = method if dot or method in SENDING else ""
        assert method not in (*SENDING, "execute", "executemany", "raw", "extra"), f"stator.{name} line {node.lineno}"


@each_module
def test_text_of_statements_is_made_of_quoted_names_only(name):
    """S2: values are parameters."""
    if not has_sql(name):
        return
    for node in ast.walk(tree_of(NAMES[name])):
        if not isinstance(node, ast.JoinedStr):
            continue
        constants = "".join(part.value for part in node.values if isinstance(part, ast.Constant))
        if not SQL.search(constants):
            continue
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                put = ast.unparse(part.value)
                assert IN_SQL.fullmatch(put), f"stator.{name} line {node.lineno} puts {put} into a statement"


@each_module
def test_statements_are_not_made_by_percent_or_format(name):
    """S2."""
    for node in ast.walk(tree_of(NAMES[name])):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
            assert not SQL.search(str(node.left.value)), f"stator.{name} line {node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            assert not SQL.search(ast.unparse(node.func.value)), f"stator.{name} line {node.lineno}"


@pytest.mark.parametrize("package", ["stator", "tasks"])
def test_tokens_are_compared_in_constant_time(package):
    """S5: never by ``==``."""
    for path in modules(package):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
                sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
                if path.name in ("views.py", "access.py") or "extensions/api" in path.as_posix():
                    assert not any(re.search("token|secret", side, re.IGNORECASE) for side in sides), node.lineno
    if (views := ROOT / package / "views.py").exists() and "token" in views.read_text():
        assert any(name.endswith("compare_digest") for name, _ in calls(tree_of(views)))


# Time


@each_module
def test_clock_of_the_machine_is_asked_in_few_modules(name):
    """The clock of the database decides; where a machine's own is asked, it is for people."""
    if top_of(name) in ASKS_THE_TIME or name in ASKS_THE_TIME:
        return
    for called, node in calls(tree_of(NAMES[name])):
        asks = called in ("timezone.now", "datetime.now", "datetime.datetime.now", "now", "datetime.utcnow")
        assert not asks, f"stator.{name} line {node.lineno} asks {called}()"


@each([path for path in modules("tests") if "sleep" in path.read_text()])
def test_no_test_sleeps(path):
    if str(path.relative_to(ROOT)) in SLEEPS:
        return
    for called, node in calls(tree_of(path)):
        assert called not in ("time.sleep", "sleep"), f"line {node.lineno}"
