"""The tutorial, step by step, in an empty folder, with the wheel and nothing but what it requires."""

from pathlib import Path

import httpx
import pytest

from tests.docs.following import Follower, blocks_of
from tests.installing import environment_with
from tests.processes import wait_until
from tests.servers.user import free_port

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.rst"


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/admin/login/").status_code == 200
    except httpx.TransportError:
        return False


# The page uses SQLite whatever this run uses.
@pytest.mark.sqlite
@pytest.mark.newest
def test_every_step_prints_what_the_page_says(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    port = free_port()
    replaced = {
        "python -m venv .venv": "",
        ". .venv/bin/activate": "",
        "pip install django-stator": "",
        "python manage.py runserver": f"python manage.py runserver --noreload {port}",
    }
    folder = tmp_path / "shop"
    folder.mkdir()
    environment = environment_with(tmp_path / "environment", tmp_path_factory)
    follower = Follower(folder, environment, "shop.settings", replaced)
    blocks = blocks_of(PAGE)
    try:
        [served] = [at for at, block in enumerate(blocks) if "runserver" in block.text]
        follower.follow(blocks[: served + 1])
        look_at_the_admin(f"http://127.0.0.1:{port}")
        follower.follow(blocks[served + 1 :])
    finally:
        follower.close()
    printed = follower.run("python -c 'import stator; print(stator.__file__)'")
    assert printed.startswith(str(environment))


def look_at_the_admin(address: str) -> None:
    """Log in as the page says, and find what it says is there."""
    with httpx.Client(base_url=address, follow_redirects=True, timeout=60) as client:
        wait_until(lambda: answers(client))
        form = {"username": "ada", "password": "tutorial", "csrfmiddlewaretoken": client.cookies["csrftoken"]}
        client.post("/admin/login/?next=/admin/", data=form, headers={"Referer": address})
        assert "invoice 1 of Ada" in client.get("/admin/invoices/invoice/").text
        page = client.get("/admin/invoices/invoice/1/change/").text
        assert "FileNotFoundError" in page
        assert "svg" in page
        assert "invoices.Invoice" in client.get("/admin/stator/overview/").text
