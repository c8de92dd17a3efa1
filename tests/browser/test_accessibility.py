"""The pages of operators, as axe-core judges them: contrast, labels, roles. Skipped without ``axe-core-python``."""

from datetime import timedelta
from importlib.resources import files

import pytest
from django.utils import timezone
from selenium.webdriver.common.keys import Keys

from stator.models import Action, Depth, Report, Worker
from stator.rows import columns
from stator.rows.workers import worker_of
from stator.testing import attempt, drain
from tasks.models import Schedule
from tests.browser.conftest import Browser
from tests.stator.admin.requests import LIST, claim, page_of, set_columns
from tests.stator.overviews import PARCELS
from tests.stator.overviews import URL as OVERVIEW
from tests.tasks.admin.pages import page
from tests.tasks.making import make_queue, make_task
from tests.testapp.approvals import Expense
from tests.testapp.operators import Parcel

pytest.importorskip("axe_core_python", reason="needs axe-core-python, which is in requirements-dev.txt")

# Only the content, since the header and the menu are Django's own; and so are its fields of dates.
RULES = """
    const [done] = arguments;
    const told = node => `${node.html} ${node.any.map(check => check.message).join("; ")}`;
    axe.run({include: ["#content"], exclude: [".datetime"]}, {runOnly: ["wcag2a", "wcag2aa"]}).then(
        found => done(found.violations.map(rule => `${rule.id}: ${rule.nodes.map(told).join(" | ")}`))
    );
"""
# A colour on its way to another one is neither, and Django's links take their time.
AT_ONCE = """
    const style = new CSSStyleSheet();
    style.replaceSync("* {transition: none !important}");
    document.adoptedStyleSheets = [style];
"""


@pytest.fixture
def pages(transactional_db: None) -> dict[str, str]:
    """The address of each kind of page, with something to see on it."""
    failing = Parcel.objects.create(orders="fail", address="no such street")
    attempt(failing)
    set_columns(failing, state_next_attempt=columns.after(3600), state_changed=columns.after(-7200))
    held = Parcel.objects.create(address="held")
    token = claim(Parcel).token
    Worker.objects.create(id=worker_of(token), host="web-1", pid=41, models=["testapp.parcel"])
    Parcel.objects.create(address="sent", state="sent")
    this = timezone.now().replace(second=0, microsecond=0)
    for back in (1, 2):
        minute = this - timedelta(minutes=back)
        Depth.objects.create(model_label="testapp.parcel", minute=minute, queued=5, oldest=3)
    queue = make_queue("encode")
    tasks = [make_task(queue, status, key=f"of-{status}") for status in ("errored", "completed", "pending")]
    schedule = Schedule.objects.create(name="nightly", queue=queue, action="resize", cron="0 3 * * *", jitter=5.0)
    drain(Schedule)
    Parcel.objects.create(address="retried")
    Parcel.stator.filter(address="retried").retry(actor="ada")
    assert Report.objects.exists()
    expense = Expense.objects.create()
    return {
        "overview": OVERVIEW, "model": PARCELS, "inbox": "/admin/stator/event/waiting/",
        "list": LIST, "filtered list": f"{LIST}?condition=failing", "failing": page_of(failing), "held": page_of(held),
        "worker": f"/admin/stator/worker/{worker_of(token)}/change/", "reports": "/admin/stator/report/",
        "add pause": "/admin/stator/pause/add/", "tasks": "/admin/tasks/task/", "queues": "/admin/tasks/queue/",
        "queue": page(queue), "dead letter": page(tasks[0]), "schedule": page(schedule),
        "schedules": "/admin/tasks/schedule/", "publish": "/admin/tasks/task/add/",
        "search": f"{OVERVIEW}?q=street", "actions": "/admin/stator/action/",
        "event": f"/admin/testapp/expense/{expense.pk}/change/",
        "action": f"/admin/stator/action/{Action.objects.get().pk}/change/",
    }  # fmt: skip


def violations(browser: Browser) -> list[str]:
    """Return the violations that axe-core finds on the open page."""
    browser.driver.execute_script((files("axe_core_python") / "axe.min.js").read_text())
    found: list[str] = browser.driver.execute_async_script(RULES)
    return found


# The pages that have a layout of their own on phones; they are looked at in dark colours as well.
NARROW = ("overview", "inbox", "list", "failing", "schedule", "search", "actions")


def test_pages_are_accessible(browser: Browser, pages: dict[str, str]) -> None:
    browser.log_in()
    found = {}
    for name, address in pages.items():
        browser.narrow(1400)
        browser.go(address)
        browser.one("#content")
        browser.driver.execute_script(AT_ONCE)
        assert len(browser.driver.page_source) < 300_000, name
        for width, theme in [(1400, "light"), *([(1400, "dark"), (390, "dark")] if name in NARROW else [])]:
            browser.narrow(width)
            scheme = {"name": "prefers-color-scheme", "value": theme}
            browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
            found[name, width, theme] = violations(browser)
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert {shown: each for shown, each in found.items() if each} == {}


def test_unlock_is_reached_by_keyboard(browser: Browser, pages: dict[str, str]) -> None:
    browser.log_in()
    browser.go(pages["held"])
    browser.click("[value=stator_unlock] ~ button")
    browser.reads("#content", "which is alive")
    assert violations(browser) == []
    browser.one("[name=reason]").send_keys("runs wild", Keys.ENTER)
    browser.reads(".messagelist", "1 parcel unlocked and paused.")
