"""An operator's night: twelve situations among 20,000 rows, with a worker at work.

Each is found and mended from the index of the admin by at most five clicks, and what is shown on the way is so.
"""

import pytest

from tasks.models import Schedule
from tests.browser.conftest import Browser
from tests.commanding import shell
from tests.processes import WorkerProcess, wait_until
from tests.situations import Situation, fill, inject
from tests.stator.making import raw
from tests.testapp.operators import Letter, Parcel

MAX_CLICKS = 5
SERVED = (
    *(f"testapp.{name}" for name in ("Parcel", "Letter", "Visitor", "Build", "Rollout")), "tasks.Task",
    "tasks.Schedule",
)  # fmt: skip
OVERVIEW = "#content-main .model-overview a"


class Walk:
    """One way from the index of the admin; counts its clicks."""

    def __init__(self, browser: Browser, situation: Situation) -> None:
        self.browser, self.situation, self.clicks = browser, situation, 0
        browser.go("/admin/")
        self.click(OVERVIEW)

    def click(self, selector: str) -> None:
        self.clicks += 1
        assert self.clicks <= MAX_CLICKS, self.situation.name
        self.browser.click(selector)

    def reads(self, selector: str, words: str) -> None:
        self.browser.reads(selector, words)

    def trouble(self) -> str:
        """The selector of the one line about the situation."""
        return self.one_of(lines(self.browser))

    def one_of(self, found: list[str]) -> str:
        told = [number for number, line in enumerate(found, 1) if self.situation.is_told_by(line)]
        assert len(told) == 1, f"{self.situation.name}: {self.situation.words}\n{found}"
        return f"#stator-troubles li:nth-child({told[0]})"


def lines(browser: Browser) -> list[str]:
    """The problems on the overview."""
    browser.one("#stator-troubles")
    script = "return [...document.querySelectorAll('#stator-troubles li')].map(one => one.textContent)"
    found: list[str] = browser.ask(script)
    return found


# What is done after the overview was opened. The first of the errors is mended with the three others.


def errors(walk: Walk) -> None:
    # Somebody mends the cause.
    raw(Parcel).filter(orders__startswith="fail").update(orders="")
    for _ in range(4):
        walk.click('#stator-troubles li[data-stator-code="failing"] button')
        walk.reads(".messagelist", "3 parcels become due within a minute or so, 60 a minute.")


def killer(walk: Walk) -> None:
    walk.click(f"{walk.trouble()} .stator-cause a")
    walk.click("#result_list tbody th a")
    walk.reads(".stator-sentence", "Quarantined after 3 lost leases in a row")
    walk.click(".stator-acts [value=stator_release] ~ button")
    walk.reads(".messagelist", "1 parcel released from quarantine and due now.")


def silent_worker(walk: Walk) -> None:
    walk.click(f"{walk.trouble()} button")
    walk.reads("#content", "3 parcels")
    walk.reads("#content", "web-2, process 42, silent for ")
    walk.click("[type=submit][value=Unlock]")
    walk.reads(".messagelist", "3 parcels unlocked.")


def paused_model(walk: Walk) -> None:
    walk.click(f"{walk.trouble()} button")
    walk.reads(".messagelist", "1 pause resumed.")
    wait_until(lambda: not raw(Letter).filter(state="written").exists(), message="letters are not posted")


def waiting(walk: Walk) -> None:
    walk.click(f"{walk.trouble()} .stator-cause a")
    walk.reads(".stator-sentence", "Workers do not attempt checked")
    walk.click(".stator-acts button[value=built]")
    walk.browser.one("[name=reason]").send_keys("the tests are green")
    walk.click("[type=submit][value=Move]")
    walk.reads(".stator-why .stator-badge", "built")
    walk.reads(".stator-timeline", "checked \N{RIGHTWARDS ARROW} built by hand by ada")
    walk.reads(".stator-timeline", "the tests are green")


def full_limit(walk: Walk) -> None:
    walk.click(f"{walk.trouble()} button")
    walk.reads("#content", "web-1, process 41, which is alive")
    walk.click("[type=submit][value='Unlock']")
    walk.reads(".messagelist", "2 visitors unlocked.")


def unknown_state(walk: Walk) -> None:
    walk.click(f"{walk.trouble()} button")
    walk.reads("#content", "2 parcels will be moved by hand")
    walk.click("[name=state] option[value=returned]")
    walk.click("[type=submit][value=Move]")
    walk.reads(".messagelist", "2 parcels moved to returned.")


def far_future(walk: Walk) -> None:
    walk.click(f"{walk.trouble()} button")
    walk.reads(".messagelist", "1 parcel is due now.")


def dead_letters(walk: Walk) -> None:
    walk.click(f"{walk.trouble()} button")
    walk.reads("#content", "14 dead letters will be requeued")
    walk.click("#content form [type=submit]")
    walk.reads(".messagelist", "14 tasks requeued.")


def late_schedule(walk: Walk) -> None:
    walk.click(f"{walk.trouble()} button")
    walk.reads(".messagelist", "1 queue resumed.")
    wait_until(lambda: fired("report", 1), message="the schedule does not fire")


def misspelled_action(walk: Walk) -> None:
    walk.click(f"{walk.trouble()} a[href*='/tasks/schedule/']")
    walk.reads("#content", "Nobody has action ehco for queue monthly")
    walk.browser.one("#id_action").clear()
    walk.browser.one("#id_action").send_keys("echo")
    walk.click("[name=_save]")
    walk.reads(".messagelist", "was changed successfully")
    wait_until(lambda: fired("bill", 1), message="the schedule does not fire")


def waiting_tick(walk: Walk) -> None:
    walk.click(f"{walk.trouble()} button")
    walk.click("[name=running]")
    walk.click("#content form [type=submit]")
    walk.reads(".messagelist", "1 task canceled.")
    wait_until(lambda: fired("tidy", 6), message="the schedule does not fire")


def fired(name: str, index: int) -> bool:
    """Whether a schedule has fired the ticks before this one."""
    return bool(Schedule.objects.get(name=name).tick_index >= index)


WALKS = {
    "errors: ValueError": errors, "kills its worker": killer, "silent worker": silent_worker,
    "paused model": paused_model, "waits for another": waiting, "full limit": full_limit,
    "unknown state": unknown_state, "due in two years": far_future, "dead letters": dead_letters,
    "schedule does not fire": late_schedule, "misspelled action": misspelled_action, "tick waits": waiting_tick,
}  # fmt: skip


def says_that_all_is_well(browser: Browser) -> bool:
    browser.go("/admin/stator/overview/")
    said = browser.text("#content")
    assert said
    return "No problems" in said or "No problems" in shell("stator", "status")


@pytest.mark.django_db(transaction=True)
def test_twelve_situations_are_found_and_mended_by_five_clicks_each(
    browser: Browser, worker_process: type[WorkerProcess]
) -> None:
    fill()
    situations = inject()
    browser.log_in()
    with worker_process(*SERVED):
        browser.go("/admin/")
        browser.click(OVERVIEW)
        shown: list[str] = lines(browser)
        for situation in situations:
            assert sum(situation.is_told_by(line) for line in shown) == 1, f"{situation.words}\n{shown}"
        assert len(shown) == len(situations), shown
        for name, mend in WALKS.items():
            [situation] = [one for one in situations if one.name == name]
            walk = Walk(browser, situation)
            mend(walk)
            wait_until(situation.mended, message=name)
            print(f"{name}: {walk.clicks} clicks")
        assert all(one.mended() for one in situations)
        wait_until(lambda: says_that_all_is_well(browser), message=lambda: str(lines(browser)))
    assert browser.complaints() == []
