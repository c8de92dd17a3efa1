"""Problems as the overview shows them: what people can do about them, as buttons and links that this user may use."""

from uuid import UUID

from django.db.models import Model, UUIDField
from django.utils.text import slugify

from stator.admin.access import Pages
from stator.extensions.problems.kinds import kind_of
from stator.models import StatorModel
from stator.rows.meta import model_named
from stator.rows.problem import AdminAction, Problem

# Schemas that a problem links to.
NAMED = 10

# Kinds that no button ends, although they have some, so the page says what to do and what to type.
TYPED = ("unserved", "throttled", "starved")


def shown_problem(problem: Problem, pages: Pages) -> dict[str, object]:
    """Return a problem as the template has it; only users who may see all objects get its detail, which names some.

    ``text``: the cause and its effect, then the remedy in words unless a button is the remedy.
    ``retry``: the fingerprint of errors that may be retried at a rate. ``command``: what to type, if no page of the
    admin leads to the objects, or if no button ends the problem. ``schemas``: those that have the problem, on a page
    about all of them. ``alike``: what it shares with others of its kind, of which the page folds all but five.
    """
    model = model_named(problem.model) if problem.model else None
    sees = model is None or pages.sees_all(model)
    actions = [shown for action in problem.actions if (shown := _shown(action, pages)) is not None]
    # Objects of several schemas are retried in each of them.
    fingerprint = "" if problem.schemas else str(problem.numbers.get("fingerprint", ""))
    retry = fingerprint if fingerprint and model is not None and pages.may_retry(model) else ""
    has_button = bool(retry) or any(one["action"] for one in actions)
    typed = sees and problem.code in TYPED
    complete = typed or (sees and not has_button)
    return {
        "alike": f"{problem.code}-{problem.level}-{slugify(problem.where)}",
        "code": problem.code, "model": problem.model, "level": problem.level,
        "where": problem.where,
        "text": f"{problem.text.rstrip('.')}. {problem.remedy[:1].upper()}{problem.remedy[1:]}".rstrip(". ") if complete
        else problem.text if sees else problem.sentence,
        "url": _address(problem, pages),
        "retry": retry,
        "actions": actions,
        "command": problem.command if sees and (pages.elsewhere or (typed and not _is_in_remedy(problem))) else "",
        "schemas": problem.schemas[:NAMED],
    }  # fmt: skip


def _is_in_remedy(problem: Problem) -> bool:
    return problem.code == "unserved" or problem.command in problem.remedy


def _address(problem: Problem, pages: Pages) -> str:
    """Return where there is more: a section of the page, the awaited object, or the list of the objects."""
    if (section := kind_of(problem.code).section) and not problem.schemas:
        return f"#stator-{section}"
    if "awaited" in problem.numbers and not pages.elsewhere:
        return pages.page_of(model_named(problem.numbers["awaited"]), problem.numbers["pk"])
    lists = (pages.list_of(model_named(one.model), **dict(one.query)) for one in problem.actions if one.query)
    return next(lists, "")


def _shown(action: AdminAction, pages: Pages) -> dict[str, object] | None:
    """Return what a user may do: the action, or else the list with the objects; None if neither is allowed.

    A link has no ``action``; otherwise a form posts it for ``pks``, or ``across`` everything that the list finds.
    """
    model: type[Model] = model_named(action.model)
    is_link = bool(action.pks) and not action.action
    url = pages.page_of(model, action.pks[0]) if is_link else pages.list_of(model, **dict(action.query))
    if not url:
        return None
    link = {"label": action.label, "url": url, "action": "", "pks": [], "across": False}
    if is_link:
        return link
    # Keys are named only to users who may see every object.
    narrowed = bool(action.pks) and issubclass(model, StatorModel) and not pages.sees_all(model)
    may = bool(action.action) and pages.may_act(model, action.action) and not narrowed
    if may:
        pks = [*action.pks] or [_any_key(model)]
        return link | {"action": action.action, "pks": pks, "across": not action.pks}
    # Of an action that the user may not do, the list of its objects is left.
    return link | {"label": "List" if action.action else action.label} if action.query else None


def _any_key(model: type[Model]) -> object:
    """Return a key as the model has them; Django asks for one even if an action is for all objects of a list."""
    pk = model._meta.pk
    return UUID(int=0) if isinstance(getattr(pk, "target_field", pk), UUIDField) else 0
