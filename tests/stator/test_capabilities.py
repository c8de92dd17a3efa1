"""Capabilities of each vendor; an unknown one has only those that every database has."""

from dataclasses import fields
from types import SimpleNamespace

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
