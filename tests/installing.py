"""The distributions that are built from this checkout, and environments in which nothing else is installed."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
# What a release is built from. pip and build would copy environments and databases as well.
SOURCES = (
    "CHANGELOG.rst", "CONTRIBUTING.rst", "LICENSE", "MANIFEST.in", "README.rst", "SECURITY.md", "benchmarks", "deploy",
    "docs", "pyproject.toml", "stator", "tasks", "tests",
)  # fmt: skip


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that the first process of this run has filled, while the others wait."""
    base = factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            (folder / "made").touch()
    return folder


def wheel_of(factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that pip builds from this checkout."""
    [path] = once(factory, "wheel", _build_wheel).glob("*.whl")
    return path


def source_distribution_of(factory: pytest.TempPathFactory) -> Path:
    """Return the source distribution that is built from this checkout."""
    [path] = once(factory, "sdist", _build_source_distribution).glob("*.tar.gz")
    return path


def copy_of_sources(folder: Path) -> Path:
    """Return a copy of the files that a release is built from."""
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    return source


def environment_with(
    folder: Path, factory: pytest.TempPathFactory, extra: str = "", python: str = sys.executable
) -> Path:
    """Return a virtual environment with our wheel and what it requires, and nothing else; it needs no network.

    ``python``: another environment, from which the interpreter and the required distributions come. Skip the test if
    that lacks one that only the extra needs.
    """
    wheel = wheel_of(factory)
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target")
    name = f"installed-{hashlib.sha256(python.encode()).hexdigest()[:8]}"
    installed = once(factory, name, lambda target: _run(python, *install, target, wheel))
    ended = subprocess.run(
        [python, "-c", "import sys; from tests.installing import make; make(*sys.argv[1:])", folder, installed, extra],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if ended.returncode == MISSING:
        pytest.skip(ended.stderr.strip())
    assert ended.returncode == 0, ended.stderr[-2000:]
    return folder


# The exit code that names a distribution which is not installed.
MISSING = 69


def make(name: str, installed: str, extra: str) -> None:
    """Make the environment of the running interpreter with links, which are quick, to what is installed already."""
    [ours] = distributions(path=[installed])
    libraries = environment_of(Path(name), ours.requires or [], extra)
    _link(ours, Path(installed), libraries)


def environment_of(folder: Path, requirements: list[str], extra: str = "") -> Path:
    """Make a virtual environment with what these lines require, and nothing else; return the folder of its packages."""
    _run(sys.executable, "-m", "venv", "--without-pip", folder)
    [libraries] = folder.glob("lib/python*/site-packages")
    for required in sorted(_closure(_requirements(requirements, {extra}))):
        _link(_installed(required), Path(sysconfig.get_path("purelib")), libraries)
    return libraries


def _build_wheel(folder: Path) -> None:
    source = copy_of_sources(folder)
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source)


def _build_source_distribution(folder: Path) -> None:
    source = copy_of_sources(folder)
    _run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, source)


def _requirements(lines: list[str], extras: Iterable[str]) -> list[Requirement]:
    wanted = [Requirement(line) for line in lines]
    chosen = ["", *extras]
    return [each for each in wanted if not each.marker or any(each.marker.evaluate({"extra": one}) for one in chosen)]


def _closure(requirements: list[Requirement]) -> set[str]:
    found: set[str] = set()
    while requirements:
        wanted = requirements.pop()
        if not {str(wanted), wanted.name} <= found:
            found |= {str(wanted), wanted.name}
            requirements += _requirements(_installed(wanted.name).requires or [], wanted.extras)
    return {canonicalize_name(Requirement(each).name) for each in found}


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        sys.stderr.write(f"{name} is required and not installed in {sys.prefix}")
        sys.exit(MISSING)


def _link(found: Distribution, source: Path, libraries: Path) -> None:
    """Make a distribution that is installed in ``source`` visible in another environment."""
    files = found.files or []
    for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
        (libraries / top).symlink_to(source / top)
    for file in files:
        # Programs such as django-admin.
        if file.parts[:-1][-1:] == ("bin",):
            program = Path(found.locate_file(file)).resolve()
            target = libraries.parents[2] / "bin" / file.name
            target.write_text(f"#!{libraries.parents[2]}/bin/python\n" + program.read_text().partition("\n")[2])
            target.chmod(0o755)


def _run(*command: str | Path) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
