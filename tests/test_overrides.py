"""Methods that override one of Django's, on the Django of this run: they take all the arguments that Django's takes.

Other packages pass arguments that Django itself does not, by position or by name.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Any

import pytest
from django.db import models

import stator
import tasks
from tests.testapp.basic import Step

# Constructors of our own classes take what they like. Django passes what ``as_sql`` takes besides by name.
APART = {"__init__", "__new__", "as_sql"}


def overridden() -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any]]]:
    """Every method of ours, by its name, with the one of Django's that it overrides."""
    for package in (stator, tasks):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".migrations." in found.name:
                continue
            for cls in vars(importlib.import_module(found.name)).values():
                if isinstance(cls, type) and cls.__module__ == found.name:
                    yield from _methods(cls)


def _methods(cls: type) -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any]]]:
    for name in vars(cls).keys() - APART:
        bases = [base for base in cls.__mro__[1:] if base.__module__.startswith("django.") and name in vars(base)]
        pair = [inspect.unwrap(getattr(vars(each)[name], "__func__", vars(each)[name])) for each in [cls, *bases[:1]]]
        if len(pair) == 2 and all(map(inspect.isfunction, pair)):
            yield f"{cls.__module__}.{cls.__qualname__}.{name}", pair[0], pair[1]


def refused(own: Callable[..., Any], theirs: Callable[..., Any]) -> list[str]:
    """The parameters of ``theirs`` that ``own`` does not take, by place or by name."""
    mine, django = inspect.signature(own).parameters.values(), inspect.signature(theirs).parameters.values()
    kinds = {parameter.kind for parameter in mine}
    places = [parameter.name for parameter in mine if parameter.kind in PLACED]
    found = []
    for place, parameter in enumerate(each for each in django if each.kind in PLACED):
        at_place = places[place] == parameter.name if place < len(places) else Parameter.VAR_POSITIONAL in kinds
        if place and not at_place:
            found.append(parameter.name)
    for parameter in django:
        if parameter.name == "args" and theirs.__name__ == "save":
            # Places that are deprecated in Django 5.2, and gone in 6.
            continue
        if parameter.kind is Parameter.KEYWORD_ONLY:
            known = parameter.name in [each.name for each in mine]
            found += [] if known or Parameter.VAR_KEYWORD in kinds else [parameter.name]
        elif parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) and parameter.kind not in kinds:
            found.append(str(parameter))
    return found


PLACED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def test_methods_of_djangos_classes_take_what_django_takes():
    methods = list(overridden())
    assert len(methods) > 100
    assert {name: wrong for name, own, theirs in methods if (wrong := refused(own, theirs))} == {}


@pytest.mark.django_db
def test_refresh_from_db_takes_a_queryset_by_its_place():
    step = Step.objects.create(name="a")
    with pytest.raises(Step.DoesNotExist):
        step.refresh_from_db(None, None, Step.objects.filter(name="b"))
    step.refresh_from_db(None, ["name"], models.QuerySet(Step).filter(name="a"))
