"""The first hours: pages that a reader follows from an empty folder, by copy, with the wheel and what it requires."""

from pathlib import Path
from typing import Any

import pytest

from tests.docs.following import Follower, blocks_of
from tests.installing import environment_with

DOCS = Path(__file__).parents[2] / "docs"
INSTALLED = {"pip install django-stator": "", "pip install 'django-stator[backend]'": ""}


# The pages use SQLite whatever this run uses.
@pytest.mark.sqlite
@pytest.mark.parametrize(
    "page", ["how-to/adopt", "how-to/payment", "how-to/events", "how-to/from-celery", "guides/django-tasks"]
)
def test_page_is_followed_without_an_edit(page: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    environment = environment_with(tmp_path / "environment", tmp_path_factory, "backend")
    follower = Follower(folder, environment, "shop.settings", INSTALLED)
    try:
        follower.follow(blocks_of(DOCS / f"{page}.rst"))
        assert follower.run("python manage.py check --fail-level ERROR")
    finally:
        follower.close()


def test_settings_of_a_server_read_what_its_files_set(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = {block.caption: block.text for block in blocks_of(DOCS / "how-to" / "deploy.rst")}
    for name, value in (line.split("=", 1) for line in blocks["/etc/shop.env, for systemd"].splitlines()):
        monkeypatch.setenv(name, value)
    found: dict[str, Any] = {"DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3"}}}
    exec(blocks["shop/settings.py, at the end"], found)
    database = found["DATABASES"]["default"]
    assert {name: database[name] for name in ("NAME", "USER", "PASSWORD", "HOST")} == {
        "NAME": "shop", "USER": "shop", "PASSWORD": "secret", "HOST": "localhost",
    }  # fmt: skip
    assert (found["DEBUG"], found["ALLOWED_HOSTS"]) == (False, ["shop.example.com"])
    compose = (DOCS.parent / "deploy" / "docker" / "compose.yml").read_text()
    for line in blocks[".env, for Docker"].splitlines():
        assert f"${{{line.partition('=')[0]}" in compose, line
