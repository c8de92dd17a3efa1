"""Generated sites: rows in every situation, with pauses, workers, queues and schedules, and a table that is broken.

Each part says whether it stands: whether something that ought to move by itself is not about to.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models.functions import Now
from hypothesis import strategies as st

from stator.models import Pause, Report, Worker
from tasks.models import Queue, Schedule
from tasks.queue.serving import registered
from tests.stator.making import ago, change, put
from tests.testapp.explained import Errand, ErrandGraph

ERRAND, TASK, SCHEDULE = "testapp.errand", "tasks.task", "tasks.schedule"

# The models that each kind of worker serves.
SERVES = {"all": [ERRAND, TASK, SCHEDULE], "errands": [ERRAND], "tasks": [TASK, SCHEDULE], "others": ["testapp.parcel"]}
AUTOMATIC = ["new", "limited", "heir"]

# What a worker publishes: nothing, so that it may have any action; its actions; or that it serves another queue only.
PUBLISHED: dict[str, Any] = {
    "any": {}, "known": {"tasks": {"actions": registered()}},
    "other queue": {"tasks": {"actions": registered(), "queues": ["other"]}},
}  # fmt: skip

LATER, FAR = 600.0, 2 * 366 * 86400.0

# Columns of rows, and whether such a row stands even if a worker serves its model and nothing is paused.
RESTING = {"state_ready": False}
ROWS: dict[str, tuple[dict[str, Any], bool]] = {
    "fresh": ({"state_changed": 0}, False),
    "waits long": ({"state_changed": 300}, True),
    "unmarked": (RESTING | {"state_next_attempt": 300}, True),
    "later": (RESTING | {"state_next_attempt": -LATER}, False),
    "far": (RESTING | {"state_next_attempt": -FAR}, True),
    "failing": (RESTING | {"state_next_attempt": -LATER, "state_failures": 3}, True),
    "failing, due": ({"state_failures": 1, "state_changed": 10}, True),
    "quarantined": ({"state_crashes": 3, "state_changed": 10}, True),
    "quarantined, failing": (RESTING | {"state_crashes": 4, "state_failures": 2, "state_next_attempt": -LATER}, True),
}
HELD = ("by a live worker", "by a silent worker", "late")


@dataclass
class Site:
    """What was drawn. ``stands``: what stands, in words."""

    rows: list[tuple[str, str, bool]] = field(default_factory=list)
    held: list[tuple[str, str]] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    pauses: list[str] = field(default_factory=list)
    workers: list[tuple[str, str, str]] = field(default_factory=list)
    queue: str = "open"
    tasks: list[str] = field(default_factory=list)
    schedules: list[str] = field(default_factory=list)
    broken: bool = False
    stands: list[str] = field(default_factory=list)

    @property
    def live(self) -> set[str]:
        """The models that a live worker serves."""
        return {label for serves, age, _ in self.workers if age == "alive" for label in SERVES[serves]}

    def make(self) -> None:
        """Insert everything, and note what stands."""
        self._make_workers()
        for name, state, has_report in self.rows:
            self._make_row(name, state, has_report)
        for number, (how, state) in enumerate(self.held):
            self._hold(number, how, state)
        for name in self.odd:
            self._make_odd(name)
        for state in self.pauses:
            Pause.objects.create(model_label=ERRAND, state="" if state == "all" else state)
        self._make_tasks()
        for name in self.schedules:
            self._make_schedule(name)
        if self.broken:
            with connection.cursor() as cursor:
                cursor.execute("ALTER TABLE testapp_errand RENAME COLUMN state_version TO broken")
            self.stands.append("the broken table")

    def _note(self, what: str, label: str, stands: bool) -> None:
        if stands or label not in self.live:
            self.stands.append(what)

    def _make_workers(self) -> None:
        for number, (serves, age, publishes) in enumerate(self.workers):
            worker = Worker.objects.create(
                id=f"{number + 1:012x}", host="h", pid=number, version="1", models=SERVES[serves], database="default",
                published=PUBLISHED[publishes], heartbeat=ago(400 if age == "silent" else 0),
            )  # fmt: skip
            if age == "stopped":
                Worker.objects.filter(pk=worker.pk).update(stopped=ago(5))

    def _make_row(self, name: str, state: str, has_report: bool) -> None:
        columns, stands = ROWS[name]
        times = ("state_changed", "state_next_attempt")
        values = {key: ago(value) if key in times else value for key, value in columns.items()}
        row = put(Errand, state=state, **values)
        if has_report and values.get("state_failures"):
            Report.objects.create(
                model_label=ERRAND, object_pk=str(row.pk), state=state, error="OSError", message="no", fingerprint="f"
            )
        self._note(f"a row that is {name}", ERRAND, stands or bool({"all", state} & set(self.pauses)))

    def _hold(self, number: int, how: str, state: str) -> None:
        wanted = "silent" if how == "by a silent worker" else "alive"
        holders = [
            at for at, (serves, age, _) in enumerate(self.workers, 1) if age == wanted and ERRAND in SERVES[serves]
        ]  # fmt: skip
        if not holders and how != "late":
            return
        token = UUID(int=((holders or [99])[0] << 80) | number)
        left = -60 if how == "late" else 40
        put(
            Errand, state=state, state_ready=False, state_claim=token, state_locked_until=ago(-left),
            state_attempted=ago(20), state_attempts=1,
        )  # fmt: skip
        if how != "by a live worker":
            self.stands.append(f"a row that is held {how}")

    def _make_odd(self, name: str) -> None:
        """A row that workers do not attempt."""
        row = put(Errand, state_ready=False)
        change(row, state=name)
        # Of these, "outside" has a timeout and "asked" a condition, which only workers heed.
        if name == "mislaid":
            self.stands.append("a row in an unknown state")
        if name in ("outside", "asked", "former"):
            self._note(f"a row in {name}", ERRAND, False)

    def _make_tasks(self) -> None:
        if not (self.tasks or self.schedules or self.queue != "open"):
            return
        self._queue = Queue.objects.create(name="work", actions_elsewhere=True)
        if self.queue != "open":
            self._queue.pause(publish=False, claim=True)
            self.stands.append("the paused queue")
        served = {
            publishes for serves, age, publishes in self.workers
            if age == "alive" and TASK in SERVES[serves] and publishes != "other queue"
        }  # fmt: skip
        for name in self.tasks:
            action = "nobodys" if name == "unknown" else "resize"
            task = self._queue.publish(action, {"image": 1}).task
            if name == "errored":
                change(task, state="errored", state_ready=False)
                self.stands.append("a dead letter")
            elif name == "later":
                change(task, state_ready=False, state_next_attempt=ago(-LATER))
                self._note("a task that is due later", TASK, False)
            else:
                change(task, state_changed=ago(300 if name == "waits long" else 0))
                stands = not served or name == "waits long" or (name == "unknown" and "any" not in served)
                self._note(f"a task that is {name}", TASK, stands)

    def _make_schedule(self, name: str) -> None:
        schedule = Schedule.objects.create(
            name=f"{name} {Schedule.objects.count()}", action="" if name in FUNCTIONS else "resize", period=3600,
            queue=None if name in FUNCTIONS else self._queue,
        )  # fmt: skip
        rows = Schedule.objects.filter(pk=schedule.pk)
        late = name in ("late", "failing", "calling")
        rows.update(planned=Now() + timedelta(seconds=-300 if late else LATER))
        if name == "function failed":
            rows.update(failed_ticks=2, last_error="OSError: no")
        columns: dict[str, Any] = {"state_ready": False, "state_next_attempt": ago(-30 if late else -LATER)}
        columns |= {"state_attempted": ago(3)} if late else {}
        columns |= {"state_failures": 3} if name == "failing" else {}
        columns |= {"state": "calling"} if name == "calling" else {}
        change(schedule, **columns)
        self._note(f"a schedule that is {name}", SCHEDULE, name != "on time")


FUNCTIONS = ("function failed", "calling")


def sites() -> st.SearchStrategy[Site]:
    """Return a strategy of sites; each has few parts, so that what stands is often alone."""
    state = st.sampled_from(AUTOMATIC)

    def few(part: st.SearchStrategy[Any], most: int = 2) -> st.SearchStrategy[list[Any]]:
        return st.lists(part, max_size=most)

    ages = st.sampled_from(["alive", "alive", "silent", "stopped"])
    return st.builds(
        Site,
        rows=few(st.tuples(st.sampled_from(sorted(ROWS)), state, st.booleans())),
        held=few(st.tuples(st.sampled_from(HELD), state), 1),
        odd=few(st.sampled_from(["outside", "asked", "former", "done", "swept", "mislaid"]), 1),
        pauses=few(st.sampled_from(["all", *AUTOMATIC]), 1),
        workers=few(st.tuples(st.sampled_from(sorted(SERVES)), ages, st.sampled_from(sorted(PUBLISHED)))),
        queue=st.sampled_from(["open", "open", "paused"]),
        tasks=few(st.sampled_from(["fresh", "waits long", "unknown", "later", "errored"]), 1),
        schedules=few(st.sampled_from(["on time", "late", "failing", *FUNCTIONS]), 1),
        broken=st.sampled_from([False, False, False, connection.features.can_rollback_ddl]),
    )


assert set(AUTOMATIC) == {state.name for state in ErrandGraph.automatic_states}
