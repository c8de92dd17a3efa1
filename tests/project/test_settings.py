"""The site is safe as it is, and starts with nothing set."""

import os
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import urlopen

import pytest
from django.core.exceptions import ImproperlyConfigured

from project.keys import kept_key
from tests.processes import WorkerProcess, wait_until
from tests.sizes import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
NOTHING = {"DEBUG": "", "SECRET_KEY": "", "ALLOWED_HOSTS": "localhost,127.0.0.1"}


def manage(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Return the output of manage.py with only these settings of the site."""
    kept = {name: value for name, value in os.environ.items() if name not in NOTHING and not name.startswith("SECURE_")}
    environment = {**kept, "DJANGO_SETTINGS_MODULE": "project.settings", **variables}
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)


HTTPS = {
    "SECURE_SSL_REDIRECT": "true",
    "SECURE_HSTS_SECONDS": "31536000",
    "SECURE_PROXY_SSL_HEADER": "X-Forwarded-Proto",
}


@pytest.mark.parametrize(
    "variables",
    [{}, {"SECRET_KEY": "x1" + "aBcDe" * 10, "ALLOWED_HOSTS": "shop.example", **HTTPS}],
    ids=["nothing set", "a deployment with HTTPS alone"],
)
def test_deployment_check_finds_nothing(variables: dict[str, str]) -> None:
    done = manage("check", "--deploy", "--fail-level", "WARNING", **variables)
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


def test_no_key_stands_in_the_source() -> None:
    for path in (ROOT / "project").rglob("*.py"):
        assert not re.search(r"SECRET_KEY\s*=\s*[\"']|[\"']SECRET_KEY[\"'], *(?:default=)?[\"']\w", path.read_text()), (
            path
        )


@pytest.mark.parametrize("debug", ["", "true"])
def test_newcomer_serves_the_site_with_nothing_set(debug: str, tmp_path: Path) -> None:
    variables = {
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "DATABASE_URL": f"sqlite:///{tmp_path}/db",
        "SECRET_KEY": "",
    }
    with WorkerProcess("--noreload", "127.0.0.1:0", command="runserver", **variables, DEBUG=debug or "false") as server:
        address = wait_until(lambda: re.search(r"http://127\.0\.0\.1:\d+/", server.output()), message=server.output)[0]
        with urlopen(f"{address}admin/login/") as page:
            assert page.status == 200
            cookie = page.headers["Set-Cookie"]
    assert cookie.startswith("csrftoken=")
    assert ("Secure" in cookie) == (not debug)


class TestKeptKey:
    def test_is_made_once_and_for_its_owner_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "var" / "key"
        key = kept_key(path)
        assert len(key) >= 50
        assert kept_key(path) == key
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert list(path.parent.iterdir()) == [path]

    def test_is_one_for_all_who_ask_at_once(self, tmp_path: Path) -> None:
        with ThreadPoolExecutor(8) as pool:
            keys = set(pool.map(lambda _: kept_key(tmp_path / "key"), range(50)))
        assert len(keys) == 1
        assert list(tmp_path.iterdir()) == [tmp_path / "key"]

    def test_that_others_can_read_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "key"
        kept_key(path)
        path.chmod(0o644)
        with pytest.raises(
            ImproperlyConfigured, match=r"key has mode 644, so others can use it; delete it, or chmod 600"
        ):
            kept_key(path)

    def test_is_empty_where_nothing_can_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        assert kept_key(tmp_path / "file" / "key") == ""
