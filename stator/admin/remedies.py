"""Troubles as the overview shows them: their remedies as buttons and links that this user may use."""

from typing import TypedDict
from uuid import UUID

from django.apps import apps
from django.db.models import Model, UUIDField

from stator.admin.access import Pages
from stator.explain.troubles import Remedy, Trouble
from stator.models import StatorModel


class ShownRemedy(TypedDict):
    """A remedy as the template has it: a link without ``action``, or a form that posts it for ``pks``.

    ``across``: the action is for everything that the list at ``url`` finds.
    """

    label: str
    url: str
    action: str
    pks: list[object]
    across: bool


class ShownTrouble(TypedDict):
    """A trouble as the template has it. ``retry``: the fingerprint of errors that may be retried at a rate."""

    code: str
    level: str
    where: str
    text: str
    url: str
    retry: str
    remedies: list[ShownRemedy]


def shown_trouble(trouble: Trouble, known: dict[str, type[StatorModel]], pages: Pages) -> ShownTrouble:
    """Return a trouble for a user; its detail, which names objects, only if the user may see all of them."""
    model = known.get(trouble.model)
    sees = pages.may_see_all_of(apps.get_model(trouble.model)) if trouble.model else True
    remedies = [shown for remedy in trouble.remedies if (shown := _shown(remedy, pages)) is not None]
    fingerprint = str(trouble.numbers.get("fingerprint", ""))
    return {
        "code": trouble.code, "level": trouble.level, "where": trouble.where,
        "text": f"{trouble.text}. {trouble.advice}".strip(". ") if sees and trouble.code == "unserved"
        else trouble.text if sees else trouble.sentence,
        "url": _address(trouble, pages),
        "retry": fingerprint if fingerprint and model is not None and pages.may_retry(model) else "",
        "remedies": remedies,
    }  # fmt: skip


def _address(trouble: Trouble, pages: Pages) -> str:
    """Return where there is more: a section of the page, the awaited object, or the list of the objects."""
    if trouble.code in ANCHORS:
        return f"#stator-{ANCHORS[trouble.code]}"
    if "awaited" in trouble.numbers:
        return pages.page_of(apps.get_model(trouble.numbers["awaited"]), trouble.numbers["pk"])
    lists = (pages.list_for(apps.get_model(one.model), **dict(one.query)) for one in trouble.remedies if one.query)
    return next(lists, "")


# Where the page itself has more.
ANCHORS = {
    "no_worker": "workers", "silent_worker": "workers", "late_leases": "workers", "failing": "errors", "stuck": "stuck",
    "versions": "workers", "deaf_worker": "workers",
}  # fmt: skip


def _shown(remedy: Remedy, pages: Pages) -> ShownRemedy | None:
    """Return the remedy for a user: its action, or else the list with the objects; None if neither is allowed."""
    model: type[Model] = apps.get_model(remedy.model)
    url = pages.list_for(model, **dict(remedy.query))
    if not url:
        return None
    # Keys are named only to users who may see every object.
    narrowed = bool(remedy.pks) and issubclass(model, StatorModel) and not pages.may_see_all_of(model)
    may = bool(remedy.action) and pages.may_act(model, remedy.action) and not narrowed
    if not may:
        return {"label": "List", "url": url, "action": "", "pks": [], "across": False} if remedy.query else None
    return {
        "label": remedy.label, "url": url, "action": remedy.action, "pks": [*remedy.pks] or [_any_key(model)],
        "across": not remedy.pks,
    }  # fmt: skip


def _any_key(model: type[Model]) -> object:
    """Return a key as the model has them; Django asks for one even if an action is for all objects of a list."""
    pk = model._meta.pk
    return UUID(int=0) if isinstance(getattr(pk, "target_field", pk), UUIDField) else 0
