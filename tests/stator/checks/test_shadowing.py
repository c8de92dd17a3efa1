"""A project's own package or module ``tasks`` stands before ours."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.projects import Project, temporary_project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with temporary_project(tmp_path) as made:
        yield made


def test_own_app_of_this_name_is_a_warning_that_names_it(project: Project) -> None:
    project.begin("tasks")
    printed = project.manage("check")
    assert "stator.W004" in printed
    assert f"The app 'tasks' is {project.folder / 'tasks'}, not the one of django-stator." in printed


def test_it_is_an_error_where_ours_is_configured(project: Project) -> None:
    project.begin("tasks", further='TASKS = {"default": {"BACKEND": "tasks.backend.StatorBackend"}}')
    # Django 6 has a check of its own for TASKS, which cannot import the backend.
    printed = project.manage("check", "--tag", "stator", code=1)
    assert "stator.E003" in printed
    assert f"TASKS needs the package tasks of django-stator, but Python imports {project.folder / 'tasks'}." in printed


def test_another_package_that_nobody_installed_is_no_finding(project: Project) -> None:
    project.begin("shop")
    project.write("tasks.py", "")
    assert "stator." not in project.manage("check", "--tag", "stator")
