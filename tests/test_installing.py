"""With no extra and with each, both apps work; the wheel has all files that they need."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import django
import pytest

import stator
from tests.installing import environment_of, environment_with, source_distribution_of, wheel_of
from tests.parsing import tree_of
from tests.sizes import PATIENCE

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements):
    return {re.split(r"[\[<>=;, ]", requirement, maxsplit=1)[0].lower() for requirement in requirements}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the names of the files in the wheel that pip builds from this checkout."""
    return zipfile.ZipFile(wheel_of(tmp_path_factory)).namelist()


@pytest.fixture(scope="module")
def source_distribution(tmp_path_factory):
    """Return the names of the files in the source distribution, without its folder."""
    with tarfile.open(source_distribution_of(tmp_path_factory)) as archive:
        return [member.name.partition("/")[2] for member in archive if member.isfile()]


def test_wheel_has_the_licence_and_the_marks_of_typed_packages(wheel):
    assert {"stator/py.typed", "tasks/py.typed"} <= {*wheel}
    assert [name for name in wheel if name.endswith("/licenses/LICENSE")]


def test_wheel_has_every_file_of_both_packages(wheel):
    command = ["git", "ls-files", "stator", "tasks"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert sorted({*tracked} - {*wheel}) == []


def test_source_distribution_has_documentation_and_deploy_and_no_tests(source_distribution):
    paths = ["stator", "tasks", "docs", "deploy", "CHANGELOG.rst", "CONTRIBUTING.rst", "LICENSE", "README.rst"]
    command = ["git", "ls-files", *paths, "SECURITY.md", "benchmarks/README.rst"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert sorted({*tracked} - {*source_distribution}) == []
    assert [name for name in source_distribution if name.startswith("tests") or "__pycache__" in name] == []


def environments():
    """Yield this environment, then one for each other Django that ``bin/setup`` has installed here."""
    yield django.get_version(), sys.executable
    seen = {django.VERSION[:2]}
    for python in sorted(ROOT.glob(".venv*/bin/python")):
        # Without build it is one that ``bin/demo`` made.
        command = [python, "-c", "import build, django; print(django.__version__)"]
        version = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False).stdout.strip()
        if version and (pair := tuple(map(int, version.split(".")[:2]))) not in seen:
            seen.add(pair)
            yield version, str(python)


def installations():
    """Yield each extra for this environment, and no extra for the others, which have another Django."""
    for version, python in environments():
        for extra in ["", *PROJECT["optional-dependencies"]] if python == sys.executable else [""]:
            yield pytest.param(python, extra, id=f"django-{version}-{extra}")


# The page of the admin, a worker and the commands do not depend on the database, and the site has SQLite.
@pytest.mark.sqlite
@pytest.mark.newest
@pytest.mark.parametrize(("python", "extra"), [*installations()])
def test_the_wheel_works_with_no_extra_and_with_each(python, extra, tmp_path, tmp_path_factory):
    environment = environment_with(tmp_path / "environment", tmp_path_factory, extra, python)
    shutil.copy(Path(__file__).with_name("bare_site.py"), tmp_path)
    command = [environment / "bin" / "python", "bare_site.py", extra]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DJANGO_"))}
    ended = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]


@pytest.mark.sqlite
def test_the_first_list_of_requirements_is_enough_to_test_the_graphs(tmp_path):
    environment_of(tmp_path, lines_of(ROOT / "requirements.txt"))
    command = [
        tmp_path / "bin" / "python",
        "-m",
        "pytest",
        "tests/stator/graph/test_graphs.py",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    clean = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "TEST_DIRECTORY")}
    ended = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]


def test_the_readme_is_what_an_index_shows_and_the_version_is_the_codes():
    assert PROJECT["readme"] == "README.rst"
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["dynamic"] == {
        "version": {"attr": "stator.__version__"}
    }
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?(\.dev0)?", stator.__version__)


def test_the_changelog_has_the_version_on_top():
    heading = (ROOT / "CHANGELOG.rst").read_text().splitlines()[3]
    version = stator.__version__.removesuffix(".dev0")
    unreleased = stator.__version__.endswith(".dev0")
    assert re.fullmatch(rf"{version} \(unreleased\)" if unreleased else rf"{version} \(\d{{4}}-\d\d-\d\d\)", heading)


def test_no_extra_is_empty():
    assert [extra for extra, requirements in PROJECT["optional-dependencies"].items() if not requirements] == []


# Security rule S14: what comes with an installation, and each of them between two versions.
RUNTIME = {"django", "cronsim", "prometheus-client"}
OPTIONAL = {"django-ninja", "django-tasks", "hypothesis", "mysqlclient", "opentelemetry-api", "psycopg"}
# Of modules that are imported, what brings them: Django itself brings asgiref.
BROUGHT = {"asgiref": "django", "ninja": "django-ninja", "django_tasks": "django-tasks", "pytest": "pytest"}
BROUGHT |= {"prometheus_client": "prometheus-client", "opentelemetry": "opentelemetry-api", "pydantic": "django-ninja"}


def test_installation_brings_the_named_few_and_nothing_else():
    assert names(PROJECT["dependencies"]) == RUNTIME
    assert set().union(*map(names, PROJECT["optional-dependencies"].values())) == OPTIONAL


REQUIREMENTS = ("requirements.txt", "requirements-dev.txt", "requirements-mariadb.txt")


def test_every_dependency_is_between_two_versions():
    files = [line for name in REQUIREMENTS for line in lines_of(ROOT / name)]
    for requirement in [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values()), *files]:
        assert re.search(r">=\d[\d.]*,<\d", requirement), requirement


def test_what_django_5_2_lacks_is_installed_on_every_python():
    assert [line for line in lines_of(ROOT / "requirements.txt") if re.fullmatch(r"django-tasks[^;]*", line)]


def test_no_module_imports_what_nothing_names():
    ours = {"stator", "tasks"}
    found = set()
    for package in ours:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                # A program may copy the folder of the client, whose modules import each other.
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    found.add(node.module.partition(".")[0])
    others = {BROUGHT.get(name, name) for name in found - ours - sys.stdlib_module_names}
    # Type checkers bring typing_extensions, and only they read that import.
    assert others <= RUNTIME | OPTIONAL | {"pytest", "typing_extensions"}


def lines_of(path):
    lines = (line.strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith(("-r", "#"))]
