"""Sections of the overview that other apps add."""

import pytest
from django.test import RequestFactory

from stator.overview import sections as module
from stator.overview.sections import Section, add_section, sections

# Their statements are limited.
pytestmark = pytest.mark.django_db


@pytest.fixture
def added(monkeypatch):
    """Only the sections of the test."""
    monkeypatch.setattr(module, "_added", found := [])
    return found


def test_sections_come_in_the_order_in_which_they_were_added(added):
    for slug in ("b", "a"):
        add_section(lambda request, slug=slug: Section(slug, slug.upper(), ("What",)))
    assert [section.slug for section in sections(RequestFactory().get("/"))] == ["b", "a"]


def test_function_that_returns_none_adds_nothing_for_this_request(added):
    add_section(lambda request: Section("disks", "Disks", ()) if request.GET else None)
    assert sections(RequestFactory().get("/")) == []
    assert [section.title for section in sections(RequestFactory().get("/", {"a": "1"}))] == ["Disks"]
