"""Files under deploy/ are valid by the schemas of their programs, and fit the settings of the library."""

import configparser
import gc
import re
import runpy
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from stator.conf import Settings
from tasks.conf import load_settings
from tests.sizes import PATIENCE

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = [path for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) if path.name != "adapter-rules.yaml"]
COMPOSE = DEPLOY / "docker/compose.yml"
UNIT = DEPLOY / "systemd/shop-worker@.service"


def passes(*command):
    """The program of that module says nothing against the file; none of these asks the network."""
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def needs(module):
    reason = f"{module} is missing in this environment; bin/setup installs it"
    return pytest.mark.skipif(find_spec(module) is None, reason=reason)


def documents(path):
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def found(kind):
    return next(each for path in MANIFESTS for each in documents(path) if each["kind"] == kind)


def unit():
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str
    parser.read(UNIT)
    return parser


def seconds(text):
    return int(re.fullmatch(r"(\d+)s?", str(text))[1])


def test_gunicorn_answers_claims_that_wait_before_it_stops():
    settings = runpy.run_path(str(DEPLOY / "gunicorn/gunicorn.conf.py"))
    assert settings["graceful_timeout"] > load_settings().API_WAIT
    frozen = gc.get_freeze_count()
    settings["post_worker_init"](None)
    assert gc.get_freeze_count() > frozen
    gc.unfreeze()


@needs("kubernetes_validate")
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifest_fits_the_schema_of_kubernetes(path):
    passes(sys.executable, "-m", "kubernetes_validate", "--strict", str(path))


@needs("check_jsonschema")
def test_compose_file_fits_its_schema():
    passes(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE))


def test_dockerfile_has_no_faults():
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is missing in this environment; bin/setup installs it")
    passes(program, str(DEPLOY / "docker/Dockerfile"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_unit_is_one_that_systemd_takes(tmp_path):
    # The program must exist.
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", UNIT.read_text(), flags=re.MULTILINE)
    copy = tmp_path / "shop-worker@1.service"
    copy.write_text(text)
    passes("systemd-analyze", "verify", str(copy))


def test_each_waits_longer_for_the_end_of_a_worker_than_the_worker_does():
    least = Settings().SHUTDOWN_TIMEOUT + 10
    compose = documents(COMPOSE)[0]["services"]["worker"]
    assert seconds(compose["stop_grace_period"]) >= least
    assert int(unit()["Service"]["TimeoutStopSec"]) >= least
    assert found("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= least


def test_systemd_stops_the_main_process_first_and_does_not_repeat_mistakes():
    service = unit()["Service"]
    assert service["KillMode"] == "mixed"
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2")


def test_probes_of_the_worker_ask_the_worker():
    (container,) = found("Deployment")["spec"]["template"]["spec"]["containers"]
    paths = {name: probe["httpGet"]["path"] for name, probe in container.items() if name.endswith("Probe")}
    assert paths == {"startupProbe": "/health", "livenessProbe": "/health", "readinessProbe": "/ready"}


def test_autoscaling_is_by_the_age_of_the_first_in_line():
    (metric,) = found("HorizontalPodAutoscaler")["spec"]["metrics"]
    name = metric["external"]["metric"]["name"]
    (rule,) = documents(DEPLOY / "kubernetes/adapter-rules.yaml")[0]["rules"]["external"]
    assert (name, rule["name"]["as"]) == ("stator_oldest_ready_seconds", name)


def test_workers_run_as_processes_that_get_signals():
    """A shell in between would not pass SIGTERM on."""
    commands = re.findall(r"^(?:CMD|ENTRYPOINT) (.*)$", (DEPLOY / "docker/Dockerfile").read_text(), re.MULTILINE)
    assert commands
    assert all(command.startswith("[") for command in commands)
