"""The index in the admin: to be searched, not to be edited."""

import pytest
from django.test import Client

from tests.stator.admin.requests import confirm

from .conftest import Tree

pytestmark = pytest.mark.django_db


@pytest.fixture
def searched(tree: Tree) -> Tree:
    tree.write("shapes.py", "class Circle: ...\n")
    tree.write("broken.py", "class :\n")
    tree.update()
    return tree


def test_files_are_searched_by_path_and_listed_with_their_state(searched: Tree, admin_client: Client) -> None:
    page = admin_client.get("/admin/codeindex/sourcefile/", {"q": "broken"}).content.decode()
    assert "broken.py" in page
    assert "line 1: " in page
    assert "shapes.py" not in page


LIST = "/admin/codeindex/sourcefile/"


def test_an_operator_has_a_file_indexed_again(searched: Tree, admin_client: Client) -> None:
    chosen = {"action": "stator_move", "_selected_action": searched.row("shapes.py").pk}
    answer = confirm(admin_client, LIST, {**chosen, "state": "found", "reason": "once more"})
    assert answer.status_code == 302
    assert searched.states() == {"shapes.py": "found", "broken.py": "broken"}
