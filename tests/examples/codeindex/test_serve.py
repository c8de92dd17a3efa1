"""The login and the address with which the result can be looked at."""

import io
from contextlib import nullcontext
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client

from examples.codeindex import serve as module
from examples.codeindex.serve import checked_address, ensure_login, serve


def test_no_login_is_made_where_debug_is_off(settings: Any) -> None:
    settings.DEBUG = False
    with pytest.raises(CommandError, match="DEBUG") as caught:
        checked_address("8000")
    assert caught.value.returncode == 2


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
