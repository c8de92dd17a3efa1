"""The login and the address with which the result can be looked at."""

from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client

from examples.codeindex.serve import checked_address, ensure_login


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
