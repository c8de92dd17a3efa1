"""Addresses of admin pages that other pages link to; each page checks by itself who may see it."""

from urllib.parse import urlencode

from django.contrib.admin.sites import AdminSite
from django.contrib.admin.utils import quote
from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html

from stator.rows.keys import shown_text
from stator.rows.meta import model_named, model_of
from stator.rows.problem import Numbers, Reason
from stator.rows.state_column import state_field
from stator.rows.workers import Worker


def address_of(site: AdminSite, model: type[Model], page: str, *args: object) -> str:
    """Return the address of an admin page of a model, whoever may see it."""
    opts = model._meta
    return reverse(f"admin:{opts.app_label}_{opts.model_name}_{page}", args=args, current_app=site.name)


def page_of(site: AdminSite, model: type[Model], pk: object) -> str:
    """Return the address of one object's page; "" if the site has none."""
    return address_of(site, model, "change", quote(str(pk))) if site.is_registered(model) else ""


def list_of(site: AdminSite, model: type[Model], **lookups: str) -> str:
    """Return the address of the list of objects that match the lookups; "" if the site has none."""
    if not site.is_registered(model):
        return ""
    return f"{address_of(site, model, 'changelist')}{'?' if lookups else ''}{urlencode(lookups)}"


def link_to_object(site: AdminSite, label: str, key: str) -> str:
    """Return a link to the object of a stored event; its key alone if the code or the site has no such model."""
    model = model_of(label)
    address = page_of(site, model, key) if model else ""
    return format_html('<a href="{}">{}</a>', address, key) if address else shown_text(model, key)


def ways_of(site: AdminSite, model: type[Model], reason: Reason) -> list[tuple[str, str]]:
    """Return links, as labels with addresses, to what a reason names: awaited objects, holders of a limit, worker."""
    numbers = reason.numbers
    ways: list[tuple[str, str]] = []
    if reason.code == "waits_for":
        awaited, pk = numbers["model"], numbers["pk"]
        ways.append((f"{awaited} {pk}", page_of(site, model_named(awaited), pk)))
    if reason.code in ("awaits_related", "heeds_related"):
        ways += _related(site, numbers)
    if reason.code == "at_limit" and (state := numbers.get("state")):
        holders = list_of(site, model, **state_field(model).asked([state]), condition="leased")
        ways.append(("Those that hold it", holders))
    if reason.code in ("leased", "lease_lost") and "host" in numbers:
        ways.append((f"Worker {numbers['worker']}", page_of(site, Worker, numbers["worker"])))
    return [(label, address) for label, address in ways if address]


def _related(site: AdminSite, numbers: Numbers) -> list[tuple[str, str]]:
    """Return links to the related object, or to those in each state."""
    model: type[Model] = model_named(numbers["model"])
    if numbers["pk"] is not None:
        return [(f"{numbers['model']} {numbers['pk']}", page_of(site, model, numbers["pk"]))]
    if not numbers["key"]:
        return []
    mine = {f"{numbers['key']}__exact": numbers["of"]}
    asked = state_field(model).asked
    return [(f"Those in {state}", list_of(site, model, **mine, **asked([state]))) for state in numbers["states"]]
