"""Lookups that people write, as JSON: whether they fit a model, as far as the code and as the database can say."""

import json
from collections.abc import Mapping

from django.core.exceptions import EmptyResultSet, FieldError, ValidationError
from django.db import DataError, NotSupportedError, ProgrammingError, transaction
from django.db.models import BooleanField, Model, QuerySet, Value

from stator.scopes import are_apart
from stator.texts import has_nul

LENGTH = 2000

# Only the database would detect an invalid pattern, and only when it meets a row.
REFUSED_LOOKUPS = ("regex", "iregex")

# Errors of Django for lookups that it cannot compile to SQL, such as a range of one number.
UNCOMPILED = (
    FieldError, ValidationError, ValueError, TypeError, OverflowError, LookupError, AttributeError, NotSupportedError,
)  # fmt: skip


def check_lookups(model: type[Model], where: object) -> dict[str, object]:
    """Return lookups as JSON values; raise ``ValueError`` with one line if they are unusable."""
    try:
        text = json.dumps({} if where is None else where, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"where={where!r} cannot be stored as JSON: {error}") from error
    kept = json.loads(text)
    if not isinstance(kept, dict):
        raise ValueError(f"where={where!r} must be a dictionary of lookups, for instance {{'tenant': 3}}")
    if has_nul(text) or len(text) > LENGTH:
        raise ValueError(f"where must not have a NUL or more than {LENGTH} characters")
    for lookup in kept:
        if lookup.rpartition("__")[2] in REFUSED_LOOKUPS:
            raise ValueError(f"where={{{lookup!r}: ...}}: patterns are not allowed; use startswith, contains or in")
    rows: QuerySet[Model] = QuerySet(model)
    try:
        rows.filter(**kept).query.sql_with_params()
    except EmptyResultSet:
        return kept
    except UNCOMPILED as error:
        text = " ".join(getattr(error, "messages", None) or [str(error)])
        raise ValueError(f"where={kept!r} does not fit {model._meta.label}: {text}") from error
    return kept


def try_lookups(model: type[Model], using: str, where: Mapping[str, object]) -> None:
    """Let the database compile a query with the lookups; raise ``ValueError`` if it cannot."""
    # No row is read. EXPLAIN would do the same, but after it, a transaction cannot write to the same node of Citus.
    rows: QuerySet[Model] = QuerySet(model, using=using).filter(Value(False, BooleanField()))
    if are_apart(model, using) and len(rows.filter(**where).query.alias_map) > 1:
        raise ValueError(
            f"where={where!r} is about related objects, which may be on other nodes than those of {model._meta.label}; "
            "choose by its own fields"
        )
    # A missing table is not an error of the lookups, so this fails outside the ``try``.
    rows.exists()
    try:
        with transaction.atomic(using=using):
            rows.filter(**where).exists()
    except EmptyResultSet:
        return
    except (DataError, ProgrammingError, OverflowError, ValueError, TypeError) as error:
        text = " ".join(str(error).split())
        raise ValueError(f"where={where!r} does not fit {model._meta.label}: {text}") from error
