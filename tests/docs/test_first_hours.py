"""The first hours: pages that a reader follows from an empty folder, by copy, with the wheel and what it requires."""

from pathlib import Path

import pytest

from tests.docs.following import Follower, blocks_of
from tests.installing import environment_with

DOCS = Path(__file__).parents[2] / "docs"
INSTALLED = {"pip install django-stator": "", "pip install 'django-stator[backend]'": ""}


# The pages use SQLite whatever this run uses.
@pytest.mark.sqlite
@pytest.mark.parametrize("page", ["how-to/payment", "how-to/events", "how-to/from-celery", "guides/django-tasks"])
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
