"""Environments of the peers under ``var/peers``, created when first needed and again when a version here changes."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.catalog import Peer

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "var" / "peers"
PATIENCE = 600
# Debian ships the server in the tools package. Some systems lack the libraries.
REDIS_PACKAGES = ("redis-tools", "liblzf1", "libjemalloc2")


class Unavailable(Exception):
    """A peer that cannot be installed here; the message says why in one line."""


def command(peer: Peer, cache: Path = CACHE) -> tuple[list[str], dict[str, str]]:
    """Install the peer, and return the command of its script without arguments, and its environment variables."""
    if not peer.requirements:
        return [sys.executable, "-W", "ignore", str(peer.script)], {"PYTHONPATH": str(ROOT)}
    folder = cache / peer.name
    if peer.python is None:
        node, npm = _program("node"), _program("npm")
        wanted = "\n".join(peer.requirements)
        install = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error"]
        _once(folder, wanted, [[*install, *peer.requirements]])
        return [node, str(peer.script)], {"PEER_HOME": str(folder)}
    python = find_python(peer.python)
    # Resolved: another virtual environment of the same Python is no reason to install again.
    wanted = "\n".join([str(Path(python).resolve()), *peer.requirements])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    pip += ["--root-user-action=ignore", *peer.requirements]
    _once(folder, wanted, [[python, "-m", "venv", "--clear", str(folder)], pip])
    return [str(folder / "bin" / "python"), "-W", "ignore", str(peer.script)], {}


def is_there(peer: Peer) -> bool:
    """Install the peer if needed; if that fails, print why it is left out and return False."""
    try:
        command(peer)
        if peer.store == "redis":
            redis_server()
    except Unavailable as error:
        print(f"{peer.name} is left out: {error}", file=sys.stderr)
        return False
    return True


def installed_apart(name: str, requirements: tuple[str, ...], cache: Path = CACHE) -> Path:
    """Install packages for this Python, and return the folder to add to its path."""
    folder = cache / name
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--root-user-action=ignore"]
    wanted = "\n".join([str(Path(sys.executable).resolve()), *requirements])
    _once(folder, wanted, [[*pip, "--target", str(folder / "packages"), *requirements]])
    return folder / "packages"


def redis_server(cache: Path = CACHE) -> tuple[str, dict[str, str]]:
    """Return the path of ``redis-server`` and its environment variables: the system's, or Debian's, unpacked."""
    if installed := shutil.which("redis-server"):
        return installed, {}
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise Unavailable("redis-server is not installed")
    folder = cache / "redis"
    unpack = 'apt-get download -q "$@" && for package in *.deb; do dpkg -x "$package" . || exit 1; done'
    _once(folder, "\n".join(REDIS_PACKAGES), [["sh", "-c", unpack, "sh", *REDIS_PACKAGES]])
    # The server and redis-check-rdb are one program, which decides by the name it is called by.
    server = folder / "redis-server"
    server.unlink(missing_ok=True)
    server.symlink_to(folder / "usr" / "bin" / "redis-check-rdb")
    libraries = [str(path) for path in (folder / "usr" / "lib").iterdir() if path.is_dir()]
    return str(server), {"LD_LIBRARY_PATH": os.pathsep.join(libraries)}


def find_python(oldest: tuple[int, int]) -> str:
    """Return the path of a Python that is new enough: this one, one on PATH, or one of pyenv."""
    for candidate in _pythons():
        check = [candidate, "-c", f"import sys, venv; sys.exit(sys.version_info < {oldest})"]
        if subprocess.run(check, check=False, capture_output=True).returncode == 0:
            return candidate
    raise Unavailable(f"there is no Python {oldest[0]}.{oldest[1]} or newer")


def _pythons() -> Iterator[str]:
    yield sys.executable
    for minor in (12, 13, 14):
        if found := shutil.which(f"python3.{minor}"):
            yield found
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from (str(path) for path in sorted(versions.glob("3.1[2-9].*/bin/python")))


def _program(name: str) -> str:
    found = shutil.which(name)
    if not found:
        raise Unavailable(f"{name} is not installed")
    return found


def _once(folder: Path, wanted: str, commands: list[list[str]]) -> None:
    """Run the commands in an emptied folder, unless the same commands were run there before."""
    with _alone(folder):
        stamp = folder / "installed"
        if stamp.exists() and stamp.read_text() == wanted:
            return
        print(f"installing {folder.name} into {folder}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for arguments in commands:
            _run(arguments, folder, os.environ)
        stamp.write_text(wanted)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: two processes would install over each other."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(arguments: list[str], folder: Path, environment: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            arguments, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{Path(arguments[0]).name} did not end within {PATIENCE} s") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        # The first error line says what is wrong; npm prints a page more.
        errors = [line for line in lines if line.lower().startswith(("error", "e:", "npm error"))] or lines[-1:]
        raise Unavailable(errors[0] if errors else f"{Path(arguments[0]).name} gave exit code {done.returncode}")
