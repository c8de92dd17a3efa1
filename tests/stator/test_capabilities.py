"""Capabilities of each vendor; an unknown one has only those that every database has."""

from dataclasses import fields
from importlib import import_module
from types import SimpleNamespace

import pytest
from django.db import connection

from stator.capabilities import KNOWN, Capabilities, capabilities_of
from stator.citus.base import CITUS


def test_this_database_is_known():
    assert capabilities_of(connection) in (*KNOWN.values(), CITUS)


def test_database_of_an_unknown_vendor_can_do_what_every_database_can():
    found = capabilities_of(SimpleNamespace(vendor="oracle"))
    assert found == Capabilities(name="oracle")
    has = [field.name for field in fields(found) if getattr(found, field.name) is True]
    assert has == ["concurrent_writers", "locks_tables"]


@pytest.mark.parametrize(
    ("look", "name"), [("servers.skew", "clock"), ("tables.indexes", "indexes")], ids=["clock", "indexes"]
)
def test_doctor_names_the_vendor_that_it_cannot_look_at(monkeypatch, look, name):
    module, _, function = look.partition(".")
    module = import_module(f"stator.extensions.problems.commands.doctor.{module}")
    monkeypatch.setattr(module, "connections", {"default": SimpleNamespace(vendor="oracle")})
    found = getattr(module, function)("default", [])
    finding = found[0] if isinstance(found, list) else found
    assert (finding.code, finding.level, finding.sentence) == (name, "ok", "not checked on oracle")
