"""Capabilities of each vendor; an unknown one has only those that every database has."""

import ast
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.db import connection

from stator import capabilities
from stator.capabilities import KNOWN, Capabilities, capabilities_of
from stator.db import VENDORS
from stator.db.schema import INDEXES, index_names


def test_every_vendor_with_statements_of_its_own_is_known():
    assert set(KNOWN) == set(VENDORS) == set(INDEXES)
    assert [KNOWN[vendor].name for vendor in KNOWN] == list(KNOWN)


def test_this_database_is_known():
    assert capabilities_of(connection) is KNOWN[connection.vendor]


def test_database_of_an_unknown_vendor_can_do_what_every_database_can():
    found = capabilities_of(SimpleNamespace(vendor="oracle"))
    assert found == Capabilities(name="oracle")
    assert [field.name for field in fields(found) if getattr(found, field.name) is True] == [
        "concurrent_writers",
        "locks_tables",
    ]


def test_every_capability_differs_between_known_databases():
    for field in fields(Capabilities):
        assert len({getattr(known, field.name) for known in KNOWN.values()}) > 1, field.name


def test_every_capability_has_one_line_about_it():
    source = Path(capabilities.__file__).read_text()
    lines = source.splitlines()
    [body] = [node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    attributes = [node.lineno for node in body if isinstance(node, ast.AnnAssign)]
    assert len(attributes) == len(fields(Capabilities))
    assert all(lines[number - 2].strip().startswith("# ") for number in attributes)


@pytest.mark.parametrize("vendor", VENDORS)
def test_capabilities_cannot_be_changed(vendor):
    with pytest.raises(AttributeError):
        KNOWN[vendor].notifies = not KNOWN[vendor].notifies


def test_indexes_of_an_unknown_vendor_are_not_asked_for():
    assert index_names(SimpleNamespace(vendor="oracle")) is None


@pytest.mark.parametrize(
    ("look", "name"), [("clocks.skew", "clock"), ("tables.indexes", "indexes")], ids=["clock", "indexes"]
)
def test_doctor_names_the_vendor_that_it_cannot_look_at(monkeypatch, look, name):
    module, _, function = look.partition(".")
    module = import_module(f"stator.commands.doctor.{module}")
    monkeypatch.setattr(module, "connections", {"default": SimpleNamespace(vendor="oracle")})
    finding = getattr(module, function)("default", [])
    assert (finding.check, finding.level, finding.message) == (name, "ok", "not checked on oracle")
