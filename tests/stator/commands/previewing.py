"""Previews that are asked for, and objects for them."""

from functools import partial

from django.apps import apps
from django.db import connections

from stator.db.interface import new_token, new_worker_id
from tests import commanding
from tests.emptying import filled
from tests.stator.making import ago, put, raw
from tests.testapp.basic import Deed, DeedGraph

HELD = {"state_claim": new_token(new_worker_id()), "state_locked_until": ago(-86400), "state_ready": False}


def everything():
    """Every row of every table of both databases that has some."""
    return {
        (alias, model._meta.label): list(raw(model, alias).order_by("pk").values())
        for alias in ("default", "other")
        for model in models_of(filled(connections[alias]))
    }


def models_of(tables):
    return [model for model in apps.get_models() if model._meta.db_table in tables]


run, refused = partial(commanding.run, "stator", "preview"), partial(commanding.refused, "stator", "preview")


def outcomes(document):
    return {
        (each["from"], each["what"], each["to"], each["error"], each["message"]): each["count"]
        for each in document["outcomes"]
    }


def deed(monkeypatch, function, **columns):
    """An object whose handler calls a function with it."""
    monkeypatch.setitem(DeedGraph.deeds, "this", function)
    return put(Deed, deed="this", **columns)
