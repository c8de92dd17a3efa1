"""Type checkers pass a project's right code and find its typical mistakes; neither asks the network for anything."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sizes import PATIENCE

ROOT = Path(__file__).parents[2]
PROJECT = Path(__file__).parent / "project"


@pytest.fixture
def project(tmp_path):
    """A copy elsewhere, for which the library is somebody else's code."""
    return Path(shutil.copytree(PROJECT, tmp_path / "project"))


def expected():
    """``(file, line)`` of every mistake."""
    lines = (PROJECT / "mistakes.py").read_text().splitlines()
    return {("mistakes.py", number) for number, line in enumerate(lines, 1) if "  # mistake: " in line}


def run(project, *arguments):
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"MYPYPATH": str(ROOT), "PYTHONPATH": path}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(
        command, check=False, cwd=project, env=environment, capture_output=True, text=True, timeout=4 * PATIENCE
    )


def test_mypy_passes_right_code_and_finds_each_mistake(project):
    done = run(project, "mypy", "--config-file", "mypy.ini", "--cache-dir", str(project / "cache"))
    found = {(name, int(line)) for name, line in re.findall(r"^([\w.]+):(\d+): error: ", done.stdout, re.MULTILINE)}
    assert found == expected(), done.stdout + done.stderr


def test_pyright_passes_right_code_and_finds_each_mistake(project):
    pytest.importorskip("basedpyright", reason="an older environment; bin/setup installs it")
    settings = {"include": ["."], "extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
    (project / "pyrightconfig.json").write_text(json.dumps(settings))
    done = run(project, "basedpyright", "--pythonpath", sys.executable, "--outputjson")
    problems = json.loads(done.stdout)["generalDiagnostics"]
    found = {(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in problems}
    assert found == expected(), done.stdout + done.stderr
