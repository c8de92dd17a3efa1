"""The login and the address with which the result can be looked at."""

import io
import os
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client

from examples.codeindex import serve as module
from examples.codeindex.serve import checked_address, ensure_login, serve
from tests.sizes import PATIENCE

ROOT = Path(__file__).parents[3]


@pytest.fixture
def debug(settings: Any) -> None:
    settings.DEBUG = True


@pytest.mark.parametrize(
    ("address", "checked"),
    [
        ("127.0.0.1:8000", "127.0.0.1:8000"),
        ("8001", "127.0.0.1:8001"),
        ("localhost:80", "localhost:80"),
        ("[::1]:65535", "[::1]:65535"),
    ],
)
def test_an_address_is_a_port_with_or_without_a_host(debug: None, address: str, checked: str) -> None:
    assert checked_address(address) == checked


@pytest.mark.parametrize("address", ["", "src", "0", "65536", "host:", ":8000", "/src", "1.2.3.4", "a:b:1", "8000\n"])
def test_what_is_no_address_is_refused_on_one_line(debug: None, address: str) -> None:
    with pytest.raises(CommandError, match=r"--serve .* is not an address; give \[HOST:\]PORT") as caught:
        checked_address(address)
    assert caught.value.returncode == 2
    assert len(str(caught.value).splitlines()) == 1


def test_no_login_is_made_where_debug_is_off(settings: Any) -> None:
    settings.DEBUG = False
    with pytest.raises(CommandError, match="DEBUG") as caught:
        checked_address("8000")
    assert caught.value.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["--serve"], "true"), (["--serve", "8001"], "true"), (["--serve=8001"], "true"), (["src"], ""), ([], "")],
)
def test_the_demo_serves_however_the_address_is_given(tmp_path: Path, arguments: list[str], expected: str) -> None:
    """With an interpreter in the place of Python that only tells how it was called."""
    told = tmp_path / "told"
    (tmp_path / "bin").mkdir()
    for name, text in {
        "demo": (ROOT / "bin" / "demo").read_text(),
        "setup": f"#!/bin/sh\necho {tmp_path}/bin/python\n",
        "python": f'#!/bin/sh\nshift; echo "$* DEBUG=${{DEBUG:-}}" >> {told}\n',
    }.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    variables = {name: value for name, value in os.environ.items() if name != "DEBUG"}
    subprocess.run([tmp_path / "bin" / "demo", *arguments], env=variables, check=True, timeout=PATIENCE)
    assert told.read_text().splitlines()[-1] == f"{' '.join(['codeindex', *arguments])} DEBUG={expected}"


@pytest.mark.django_db
def test_each_run_has_a_password_of_its_own(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CODEINDEX_PASSWORD", raising=False)
    first, second = ensure_login(), ensure_login()
    assert not client.login(username="demo", password=first)
    assert client.login(username="demo", password=second)


@pytest.mark.django_db
def test_url_and_login_are_told_before_the_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    told, started = io.StringIO(), []
    monkeypatch.setenv("CODEINDEX_PASSWORD", "secret")
    monkeypatch.setattr(
        module, "call_command", lambda *args, **options: started.append((args, options, told.getvalue()))
    )
    monkeypatch.setattr(module, "worker", nullcontext)
    serve("127.0.0.1:8000", told)
    [(args, options, told_before)] = started
    assert args == ("runserver", "127.0.0.1:8000")
    assert options["use_reloader"] is False
    assert "http://127.0.0.1:8000/admin/  user: demo  password: secret" in told_before
