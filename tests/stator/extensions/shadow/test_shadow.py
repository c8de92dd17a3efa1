"""Models in shadow: other code moves their rows, workers run nothing and write down what they would do."""

import pickle
from types import SimpleNamespace

import pytest
from django.db import connection
from django.db.models import Case, F, Value, When
from django.test.utils import isolate_apps

from stator.exceptions import ProtectedColumn
from stator.extensions.fleet.presence import published_by
from stator.extensions.shadow.models import ShadowLine
from stator.extensions.shadow.options import put_in_shadow
from stator.extensions.shadow.report import report_on
from stator.extensions.shadow.watch import look_at_all
from stator.graph import State, StateGraph
from stator.models import Depth, History, StateField, Stats
from stator.signals import transitioned
from tests.commanding import asked, run
from tests.stator.making import LEASED, ago, change, model_of, operations_of, put, raw
from tests.stator.overviews import URL, text_of, worker
from tests.stator.running import hearing, work
from tests.testapp.models import SyncLine
from tests.testapp.shadowed import Flyer, Leaflet, MailingGraph

pytestmark = pytest.mark.django_db


@pytest.fixture
def everything():
    """One row of each kind that a worker would write, as the table is after a migration of additions."""
    return [
        put(Flyer, state="queued", state_changed=ago(90)),
        put(Flyer, state="queued", state_ready=False, state_next_attempt=ago(60)),
        put(Flyer, state="sending", state_ready=False, state_changed=ago(7200)),
        put(Flyer, state="sent", state_ready=True, state_changed=ago(7200)),
        put(Flyer, state="returned", text="", state_ready=False),
        put(Flyer, state="void", state_ready=True),
        put(Flyer, state="sending", **LEASED),
    ]


def stored(model=Flyer):
    return list(raw(model).order_by("pk").values())


def looked(model=Flyer):
    look_at_all(operations_of(model))


def lines(**lookups):
    return list(ShadowLine.objects.filter(**lookups).order_by("pk"))


class TestWorkers:
    @pytest.mark.django_db(transaction=True)
    def test_worker_runs_nothing_and_writes_no_row(self, everything):
        before = stored()

        summary = work(Flyer)

        assert (stored(), summary.handled, summary.moved) == (before, {}, {})
        assert not History.objects.exists()
        for model in (Stats, Depth):
            assert not model.objects.filter(model_label="testapp.flyer").exists()
        # It has written down what it would do.
        acts = {(line.object_pk, line.act, line.to) for line in lines()}
        at_once, due, late, old, empty, _, held = (str(each.pk) for each in everything)
        assert acts == {
            (at_once, "handle_queued", ""), (due, "handle_queued", ""), (late, "times out", "queued"),
            (old, "deleted", ""), (empty, "condition met", "void"), (held, "", ""),
        }  # fmt: skip

    @pytest.mark.django_db(transaction=True)
    def test_states_out_of_shadow_are_worked_on(self):
        taken, left = put(Leaflet, state="queued"), put(Leaflet, state="sending", state_changed=ago(7200))

        work(Leaflet)

        assert raw(Leaflet).get(pk=taken.pk).state == "sent"
        assert stored(Leaflet)[1]["state"] == "sending"
        assert [line.act for line in lines(object_pk=str(left.pk))] == ["times out"]

    def test_state_can_be_pickled(self):
        assert pickle.loads(pickle.dumps(Leaflet.state_graph.queued)) is MailingGraph.queued


class TestPlainWrites:
    """The old code owns the rows: what it writes is what it always wrote."""

    @pytest.fixture
    def flyer(self):
        return put(Flyer, state="queued")

    @pytest.fixture(params=["save", "save_unloaded", "update", "expression", "bulk_update", "upsert"])
    def write(self, request, flyer):
        def save():
            flyer.state = "sending"
            flyer.save()

        def bulk_update():
            flyer.state = "sending"
            Flyer.objects.bulk_update([flyer], ["state"])

        named = {"unique_fields": ["pk"]} if connection.features.supports_update_conflicts_with_target else {}
        upserted = {"update_conflicts": True, "update_fields": ["state"], **named}
        sending = Case(When(state="queued", then=Value("sending")), default=F("state"))
        return {
            "save": save,
            "save_unloaded": lambda: Flyer(pk=flyer.pk, state=MailingGraph.sending).save(),
            "update": lambda: Flyer.objects.filter(state="queued").update(state="sending"),
            "expression": lambda: Flyer.objects.update(state=sending),
            "bulk_update": bulk_update,
            "upsert": lambda: Flyer.objects.bulk_create([Flyer(pk=flyer.pk, state="sending")], **upserted),
        }[request.param]

    def test_write_of_the_state_passes_and_is_no_move(self, flyer, write, django_capture_on_commit_callbacks):
        [before] = stored()

        with hearing(transitioned) as told, django_capture_on_commit_callbacks(execute=True):
            write()

        [after] = stored()
        assert after == {**before, "state": "sending"}
        assert not told
        assert not History.objects.exists()

    def test_framework_columns_are_still_refused(self, flyer):
        with pytest.raises(ProtectedColumn):
            Flyer.objects.update(state_ready=False)

    @pytest.mark.django_db(transaction=True)
    def test_new_objects_wake_nobody(self):
        with hearing(transitioned) as told:
            Flyer.objects.create()
            Flyer.objects.bulk_create([Flyer(), Flyer(state="sent")])
        assert not told

    def test_save_within_states_in_shadow_is_plain(self):
        leaflet = put(Leaflet, state="sending")
        [before] = stored(Leaflet)
        leaflet.state = "sent"
        leaflet.save()
        Leaflet.objects.filter(state="sent").update(state="sending")
        assert stored(Leaflet) == [before]

    def test_write_that_takes_a_row_to_the_workers_is_a_move(self):
        leaflet = put(Leaflet, state="sending", state_ready=False)
        leaflet.state = "queued"
        leaflet.save()
        [after] = stored(Leaflet)
        assert (after["state"], after["state_ready"], after["state_version"]) == ("queued", True, 1)

    def test_update_moves_the_rows_of_workers_and_writes_the_others(self):
        of_workers, own = put(Leaflet, state="queued"), put(Leaflet, state="sending")
        assert Leaflet.objects.update(state="sent") == 2
        versions = dict(raw(Leaflet).values_list("pk", "state_version"))
        assert versions == {of_workers.pk: 1, own.pk: 0}


class TestLines:
    def test_move_closes_the_line_and_opens_another_one(self):
        flyer = put(Flyer, state="queued", state_changed=ago(90))
        looked()
        Flyer.objects.update(state="sending")
        looked()

        first, second = lines(object_pk=str(flyer.pk))
        assert (first.source, first.moved_to, first.ended) == ("queued", "sending", first.pk)
        assert (first.closed - first.due).total_seconds() == pytest.approx(90, abs=20)
        assert (second.source, second.act, second.ended) == ("sending", "", 0)

    def test_object_is_due_only_since_it_was_seen_to_come_back(self):
        put(Flyer, state="queued", state_changed=ago(3600))
        looked()
        Flyer.objects.update(state="sending")
        looked()
        Flyer.objects.update(state="queued")
        looked()
        assert lines()[-1].due >= lines()[0].closed

    def test_what_comes_due_later_changes_the_line(self):
        flyer = put(Flyer, state="sending", state_ready=False)
        looked()
        change(flyer, state_changed=ago(7200))
        looked()
        [line] = lines()
        assert (line.act, line.to) == ("times out", "queued")
        assert line.due < ago(3000)

    def test_state_that_workers_take_over_has_no_lines(self):
        put(Leaflet, state="sending")
        looked(Leaflet)
        put_in_shadow(Leaflet, ["sent"])
        try:
            looked(Leaflet)
        finally:
            put_in_shadow(Leaflet, Leaflet.StatorMeta.shadow)
        assert not lines()

    def test_state_that_old_columns_tell_counts_as_a_move(self):
        flyer = put(Flyer, state="queued", state_changed=ago(90))
        looked()
        change(flyer, text="on its way")
        looked()
        change(flyer, text="thrown away")
        looked()

        first, second = lines(object_pk=str(flyer.pk))
        assert (first.source, first.act, first.moved_to) == ("queued", "handle_queued", "sending")
        assert (second.source, second.act, second.moved_to) == ("sending", "", "void")
        assert stored()[0]["state"] == "queued"

    def test_objects_that_are_done_by_old_columns_have_no_lines(self):
        put(Flyer, state="queued", text="thrown away")
        flyer = put(Flyer, state="queued", text="on its way")
        looked()
        [line] = lines()
        assert (line.object_pk, line.source, line.act) == (str(flyer.pk), "sending", "")

    @pytest.mark.django_db(transaction=True)
    @isolate_apps("tests.testapp")
    def test_object_in_a_state_with_a_long_or_a_former_name_has_one_line(self):
        name = "n" * 99
        states = {name: State(try_interval=5, renamed_from="old"), "done": State()}
        states[name].transitions_to(states["done"])
        handler = {f"handle_{name}": classmethod(lambda cls, row: cls.done)}
        graph = type("LongGraph", (StateGraph,), {**states, **handler, "__module__": __name__})
        model = model_of("LongNamed", state=StateField(graph), options={"shadow": True})
        with connection.schema_editor() as editor:
            editor.create_model(model)
        try:
            former, waiting = model.objects.create(), model.objects.create()
            change(former, state="old")
            for _ in range(2):
                looked(model)
            raw(model).filter(pk=waiting.pk).update(state="done")
            looked(model)
            assert [(line.source, line.ended > 0) for line in lines()] == [("old", False), (name, True)]
            assert [each.count for each in report_on(model, "default").as_here] == [1]
        finally:
            with connection.schema_editor() as editor:
                editor.delete_model(model)

    def test_table_and_lines_are_read_part_by_part(self, monkeypatch, django_assert_max_num_queries):
        monkeypatch.setattr("stator.extensions.shadow.watch.KEYS", 3)
        monkeypatch.setattr("stator.extensions.shadow.watch.AT_ONCE", 2)
        for number in range(8):
            put(Flyer, state="queued" if number % 4 else "void")
        looked()
        assert len(lines()) == 6
        Flyer.objects.filter(state="queued").update(state="sent")
        looked()
        assert len(lines(ended=0)) == 6
        assert len(lines(moved_to="sent")) == 6


class TestReport:
    @pytest.fixture
    def seen(self):
        """Of seven objects, the old code has moved five."""
        as_here, elsewhere, not_here, waits, rests, late, gone = (
            put(Flyer, state=state, state_changed=ago(age), state_ready=False)
            for state, age in [
                ("queued", 100), ("queued", 100), ("sending", 10), ("queued", 500), ("sending", 10),
                ("sending", 7200), ("sent", 7200),
            ]
        )  # fmt: skip
        looked()
        moves = {as_here: "sent", elsewhere: "returned", not_here: "sent", late: "queued"}
        for flyer, state in moves.items():
            raw(Flyer).filter(pk=flyer.pk).update(state=state)
        raw(Flyer).filter(pk=gone.pk).delete()
        looked()
        return as_here, elsewhere, not_here, waits, rests, late, gone

    @pytest.mark.django_db(databases=["default", "other"])
    def test_report_has_the_differences_and_status_names_it(self, seen):
        as_here, elsewhere, not_here, waits, rests, late, gone = (str(each.pk) for each in seen)
        data = asked("stator", "shadow", "testapp.Flyer")

        def told(name):
            return {(one["source"], one["act"], one["to"]): one["examples"] for one in data[name]}

        assert data["shadow"] == ["queued", "sending", "sent", "void", "returned"]
        assert told("as_here") == {
            ("queued", "handle_queued", "sent"): [as_here],
            ("sending", "times out", "queued"): [late],
            ("sent", "deleted", ""): [gone],
        }
        assert told("elsewhere") == {("queued", "handle_queued", "returned"): [elsewhere]}
        assert told("not_here") == {("sending", "", "sent"): [not_here]}
        assert told("not_there") == {("queued", "handle_queued", ""): [waits, late]}
        [lateness] = [one["late"] for one in data["as_here"] if one["to"] == "sent"]
        assert lateness == pytest.approx(100, abs=20)
        assert data["differences"] == 4
        text = run("stator", "shadow", "testapp.Flyer")
        assert "testapp.Flyer in shadow: queued, sending, sent, void, returned. Workers run nothing." in text
        assert "Other code moved these, and workers would have left them alone:" in text
        [trouble] = asked("stator", "status", "testapp.Flyer")["troubles"]
        assert (trouble["code"], trouble["command"]) == ("shadow", "manage.py stator shadow testapp.Flyer")

    @pytest.mark.django_db(transaction=True, databases=["default", "other"])
    def test_preview_of_a_model_in_shadow_runs_its_handlers(self):
        put(Flyer, state="queued")
        before = stored()
        data = asked("stator", "preview", "testapp.Flyer")
        assert [(one["from"], one["to"]) for one in data["outcomes"]] == [("queued", "sent")]
        assert stored() == before
        assert "Nothing was seen yet" in run("stator", "shadow", "testapp.Flyer")


class TestOfAnotherProcess:
    """What a process says that has the model as it is, of workers with the option."""

    @pytest.fixture
    def live(self):
        """Makes a live worker, which publishes what it has in shadow."""

        def made(number, states):
            put_in_shadow(SyncLine, states)
            published = published_by(SimpleNamespace(kinds=[operations_of(SyncLine)]))
            put_in_shadow(SyncLine, False)
            worker(
                id=f"{number:012x}", pid=number, models=["testapp.syncline"], published=published, heartbeat=ago(-600)
            )  # fmt: skip

        yield made
        put_in_shadow(SyncLine, False)

    @pytest.fixture(autouse=True)
    def waiting(self):
        return put(SyncLine, state_changed=ago(7200), state_next_attempt=ago(7200))

    @pytest.mark.django_db(databases=["default", "other"])
    def test_status_and_overview_say_shadow_and_neither_late_nor_another_version(self, live, admin_client):
        live(1, True)
        assert [one["code"] for one in asked("stator", "status", "testapp.SyncLine")["troubles"]] == ["shadow"]
        assert "testapp.SyncLine in shadow: workers run nothing" in text_of(admin_client, URL, "troubles")

    @pytest.mark.django_db(databases=["default", "other"])
    def test_object_says_shadow_and_not_that_it_is_next_in_line(self, live, waiting):
        live(1, True)
        assert [reason.code for reason in waiting.explain()] == ["shadow"]
        # States that one live worker has are not in shadow.
        live(2, False)
        assert "shadow" not in [reason.code for reason in waiting.explain()]
        assert "shadow" not in [one["code"] for one in asked("stator", "status", "testapp.SyncLine")["troubles"]]
