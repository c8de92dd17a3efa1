"""A project written for Takahe's Stator runs on ours: everything it names is there and means the same.

The HTTP runner is tried in ``test_views.py``.
"""

import threading
import time

import pytest
from asgiref.sync import async_to_sync
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.db import connection, migrations, models
from django.db.migrations.state import ProjectState
from django.test import override_settings

import stator.exceptions
import stator.graph
import stator.models
import stator.runner
from stator.exceptions import TryAgainLater
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel, Stats
from stator.runner import StatorRunner
from stator.signals import on_schedule, on_start
from tests.stator.making import ago, change, put, raw, row
from tests.testapp.takahe import (
    Domain,
    DomainStates,
    FanOut,
    FanOutStates,
    Pin,
    PinStates,
    Post,
    PostStates,
)

MODELS = [Post, FanOut, Domain, Pin]


@pytest.fixture
def runner():
    """The fixture from the ``conftest.py`` of such a project."""
    runner = StatorRunner(MODELS, concurrency=100, schedule_interval=30)
    runner.handled = {}
    runner.started = time.monotonic()
    runner.tasks = {}
    runner.last_clean = time.monotonic() - runner.schedule_interval
    return runner


# What it imports


def test_names_are_where_they_were():
    assert issubclass(stator.exceptions.TryAgainLater, BaseException)
    assert stator.graph.State is stator.models.State
    assert stator.graph.StateGraph is stator.models.StateGraph
    assert stator.runner.StatorModel is stator.models.StatorModel
    assert stator.runner.StatorRunner is StatorRunner
    assert apps.get_app_config("stator").label == "stator"
    for name in ("StateField", "StateGraph", "StatorModel", "Stats"):
        assert hasattr(stator.models, name)


def test_no_settings_are_required():
    with override_settings():
        del settings.STATOR
        StatorRunner([Post]).settings()


# What it declares


def test_every_option_of_a_state_is_taken_by_its_name():
    class Everything(StateGraph):
        start = State(
            try_interval=300, handler_name="work", externally_progressed=False, attempt_immediately=False,
            force_initial=True, delete_after=86400,
        )  # fmt: skip
        end = State()
        start.transitions_to(end)
        start.times_out_to(end, seconds=5)

        @classmethod
        def work(cls, instance): ...

    assert (Everything.start.try_interval, Everything.start.delete_after) == (300, 86400)
    assert Everything.start.handler.__name__ == "work"


def test_timeouts_are_given_by_position_or_by_name():
    class Positional(StateGraph):
        start = State(externally_progressed=True)
        end = State()
        start.times_out_to(end, 5)

    assert Positional.start.timeout_value == 5
    assert FanOutStates.new.timeout_value == 86400 * 3
    assert FanOutStates.new.timeout_state is FanOutStates.failed


@pytest.mark.parametrize("count", [0, 2])
def test_graph_without_exactly_one_initial_state_is_a_value_error(count):
    with pytest.raises(ValueError, match="initial state"):
        if count:
            type("Two", (StateGraph,), {"one": State(), "two": State()})
        else:
            one, two = State(externally_progressed=True), State(externally_progressed=True)
            one.transitions_to(two)
            two.transitions_to(one)
            type("None", (StateGraph,), {"one": one, "two": two})


def test_graphs_of_such_a_project_are_legal():
    assert PostStates.initial_state == "new"
    assert PostStates.fanned_out.externally_progressed
    assert PostStates.handle_fanned_out
    assert list(PostStates.targets(None)) == [0, 1, 2]
    assert PinStates.initial_state == "settled"
    assert DomainStates.initial_state is DomainStates.outdated
    assert PostStates.deleted_fanned_out in PostStates.terminal_states
    assert PostStates.choices[0] == ("new", "new")
    assert PostStates.new.try_interval == 300
    assert PostStates.new.handler == PostStates.handle_new


def test_old_migration_makes_a_table_that_works():
    """Its migrations name our field, with all that it once took."""
    operation = migrations.CreateModel(
        name="OldPost",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("state_ready", models.BooleanField(default=True)),
            ("state_changed", models.DateTimeField(auto_now_add=True)),
            ("state_attempted", models.DateTimeField(blank=True, null=True)),
            ("state_locked_until", models.DateTimeField(blank=True, null=True)),
            (
                "state",
                StateField(
                    choices=[("new", "new"), ("fanned_out", "fanned_out")],
                    default="new",
                    graph=PostStates,
                    max_length=100,
                ),
            ),
        ],
        options={"abstract": False},
    )
    state = ProjectState()
    operation.state_forwards("testapp", state)
    old = state.apps.get_model("testapp", "OldPost")
    assert old._meta.get_field("state").default == "new"
    assert old(state=PostStates.fanned_out).state == "fanned_out"
    assert StateField(PostStates).deconstruct()[1] == "django.db.models.CharField"


@pytest.mark.usefixtures("transactional_db")
def test_old_migration_is_applied():
    field = StateField(graph=PostStates, choices=[("new", "new")], default="new", max_length=100)
    before, after = ProjectState(), ProjectState()
    operation = migrations.CreateModel("OldPin", [("id", models.BigAutoField(primary_key=True)), ("state", field)])
    operation.state_forwards("testapp", after)
    with connection.schema_editor(atomic=connection.features.can_rollback_ddl) as editor:
        operation.database_forwards("testapp", editor, before, after)
    made = after.apps.get_model("testapp", "OldPin").objects.create(state=PostStates.edited)
    assert type(made).objects.filter(state__in=[PostStates.edited]).exists()
    with connection.schema_editor(atomic=connection.features.can_rollback_ddl) as editor:
        operation.database_backwards("testapp", editor, after, before)


def test_subclasses_are_listed_in_the_order_of_their_definition():
    assert [model for model in StatorModel.subclasses if model in MODELS] == MODELS


def test_columns_keep_their_names():
    names = {field.name for field in Post._meta.fields}
    assert names >= {"state", "state_ready", "state_changed", "state_attempted", "state_locked_until"}


# What it does with objects


@pytest.mark.django_db
class TestObjects:
    def test_states_are_taken_as_values_everywhere(self):
        post = Post.objects.create(state=PostStates.fanned_out)
        other = Post.objects.create(state="edited")
        assert Post.objects.get(state=PostStates.fanned_out) == post
        assert Post.objects.filter(state__in=[PostStates.fanned_out, "edited"]).count() == 2
        assert Post.objects.exclude(state__in=[PostStates.edited]).get() == post
        assert Post.objects.exclude(state=PostStates.edited).get() == post
        assert Post.objects.filter(state__in=[PostStates.new]).count() == 0
        assert Post.objects.filter(state=PostStates.fanned_out).update(state=PostStates.deleted) == 1
        assert Post.objects.get_or_create(pk=other.pk, defaults={"state": PostStates.new}) == (other, False)
        assert post.state != PostStates.deleted
        post.refresh_from_db()
        assert post.state == PostStates.deleted

    def test_states_are_taken_across_relations(self):
        post = Post.objects.create(state=PostStates.fanned_out)
        fan_out = FanOut.objects.create(post=post)
        assert FanOut.objects.filter(post__state=PostStates.fanned_out).get() == fan_out
        assert FanOut.objects.filter(post__state__in=[PostStates.new, PostStates.fanned_out]).get() == fan_out
        assert FanOut.objects.exclude(post__state__in=[PostStates.fanned_out]).count() == 0
        assert Post.objects.filter(fan_outs__state=FanOutStates.new).get() == post
        assert post.fan_outs.filter(state=FanOutStates.new).update(state=FanOutStates.skipped) == 1

    @pytest.mark.parametrize("state", [PostStates.deleted, "deleted"])
    def test_object_is_moved_bound_unbound_by_queryset_by_manager_and_by_saving(self, state):
        post = Post.objects.create()
        for move in (
            lambda: post.transition_perform(state),
            lambda: Post.transition_perform(post, state),
            lambda: StatorModel.transition_perform(post, state),
            lambda: Post.transition_perform_queryset(Post.objects.filter(pk=post.pk), state),
            lambda: Post.transition_perform_queryset(Post.objects, state),
            lambda: Post.transition_perform_queryset(Post.objects.all()[:5], state),
            lambda: self.assign(post, state),
        ):
            Post.transition_perform(post, "new")
            change(post, state_attempted=ago(5), state_failures=3)
            post.refresh_from_db()
            move()
            found = row(post)
            assert (found.state, found.state_ready, found.state_attempted) == ("deleted", True, None)
            assert found.state_locked_until is None
            assert found.state_age < 60

    def assign(self, post, state):
        post.state = state
        post.save()

    def test_moves_are_there_for_async_code(self):
        post = Post.objects.create()

        @async_to_sync
        async def move():
            await post.atransition_perform(PostStates.edited)
            await Post.atransition_perform_queryset(Post.objects.all(), PostStates.deleted)

        move()
        assert row(post).state == "deleted"

    def test_age_and_graph_are_known(self):
        post = put(Post, state_changed=ago(60))
        assert 59 < post.state_age < 90
        assert post.state_graph is Post.state_graph is PostStates

    def test_new_objects_are_ready_unless_their_state_says_otherwise(self):
        assert row(Post.objects.create()).state_ready
        assert not row(Domain.objects.create(state=DomainStates.updated)).state_ready

    def test_saving_does_not_disturb_the_state(self):
        post = Post.objects.create()
        stale = Post.objects.get()
        post.transition_perform(PostStates.fanned_out)
        stale.content = "edited"
        stale.save()
        assert (row(post).state, row(post).content) == ("fanned_out", "edited")


# What it runs


@pytest.mark.django_db
class TestSingleCycle:
    def test_post_fans_out_over_cycles(self, runner):
        post = Post.objects.create()
        runner.run_single_cycle()
        assert row(post).state == "fanned_out"
        assert FanOut.objects.filter(state=FanOutStates.new).count() == 3
        runner.run_single_cycle()
        assert FanOut.objects.filter(state=FanOutStates.sent).count() == 3
        runner.run_single_cycle()
        assert row(post).state == "fanned_out"

    def test_external_state_waits_for_somebody_to_move_it(self, runner):
        post = Post.objects.create(state=PostStates.fanned_out)
        runner.run_single_cycle()
        assert row(post).state == "fanned_out"
        post.transition_perform(PostStates.deleted)
        runner.run_single_cycle()
        assert row(post).state == "deleted_fanned_out"

    def test_try_again_later_waits_and_times_out_at_last(self, runner):
        fan_out = FanOut.objects.create(post=Post.objects.create(), unreachable=True)
        runner.run_single_cycle()
        assert (row(fan_out).state, row(fan_out).state_ready) == ("new", False)
        change(fan_out, state_changed=ago(86400 * 3 + 1))
        runner.run_single_cycle()
        assert row(fan_out).state == "failed"

    def test_handler_saves_its_object_and_returns_a_state_or_a_name(self, runner):
        domain = Domain.objects.create()
        runner.run_single_cycle()
        assert (row(domain).state, row(domain).checked is None) == ("updated", False)
        change(domain, state_next_attempt=ago(1))
        runner.run_single_cycle()
        assert row(domain).state == "outdated"

    def test_deletions_are_done(self, runner):
        post = put(Post, state="deleted_fanned_out", state_changed=ago(86400 * 7 + 1))
        kept = put(Post, state="deleted_fanned_out", state_changed=ago(86400 * 6))
        runner.run_single_cycle()
        assert list(raw(Post).all()) == [kept]
        assert post != kept

    def test_it_runs_in_the_callers_thread_and_transaction_and_does_not_sleep(self, runner, monkeypatch):
        seen = []
        monkeypatch.setattr(time, "sleep", pytest.fail)
        monkeypatch.setattr(
            PinStates, "check", lambda instance: seen.append((threading.current_thread(), connection.in_atomic_block))
        )
        Pin.objects.create()
        runner.run_single_cycle()
        assert seen == [(threading.current_thread(), True)]

    def test_errors_of_handlers_are_contained(self, runner, monkeypatch):
        def fail(instance):
            raise TypeError("in a handler")

        monkeypatch.setattr(PinStates, "check", fail)
        pin, post = Pin.objects.create(), Post.objects.create()
        runner.run_single_cycle()
        assert row(pin).state_failures == 1
        assert row(post).state == "fanned_out"

    def test_what_was_handled_is_counted(self, runner):
        Post.objects.create()
        runner.run_single_cycle()
        assert sum(runner.handled.values()) == 1


def test_try_again_later_is_raised_without_arguments():
    assert TryAgainLater().after is None


@pytest.mark.usefixtures("transactional_db")
class TestWorker:
    def test_command_takes_its_options(self, tmp_path):
        Post.objects.create()
        call_command(
            "runstator", "testapp.Post", "testapp.FanOut", "-c", "20", "-s", "10", "-r", "3", "-x", "testapp.Pin",
            "--liveness-file", str(tmp_path / "alive"),
        )  # fmt: skip
        assert FanOut.objects.filter(state=FanOutStates.sent).count() == 3

    def test_statistics_tell_what_is_queued_and_handled(self):
        for _ in range(5):
            put(Post)
        for _ in range(2):
            put(Post, state_next_attempt=ago(-300), state_ready=False)
        StatorRunner(MODELS, until_idle=True).run()
        stats = Stats.get_for_model(Post)
        assert stats.most_recent_handled() == (5, 5, 5)
        assert stats.most_recent_queued() in range(8)
        assert Stats.get_for_model(Pin).most_recent_handled() == (0, 0, 0)

    def test_project_reloads_its_configuration_at_start_and_at_every_pass(self):
        heard = []
        hears = {signal: lambda sender, name=name, **kwargs: heard.append(name) for name, signal in HOOKS.items()}
        for signal, hear in hears.items():
            signal.connect(hear)
        try:
            StatorRunner([Post], run_for=2, schedule_interval=0.05).run()
        finally:
            for signal, hear in hears.items():
                signal.disconnect(hear)
        assert heard[0] == "start"
        assert heard.count("schedule") >= 2

    def test_project_has_its_configuration_before_the_first_handler_is_called(self):
        Post.objects.create()
        begun = []

        def load(sender, **kwargs):
            threading.Event().wait(0.3)
            begun.append(raw(Post).filter(state_attempts=0, state="new").count())

        on_start.connect(load)
        try:
            StatorRunner([Post], until_idle=True).run()
        finally:
            on_start.disconnect(load)
        assert begun == [1]
        assert raw(Post).get().state == "fanned_out"

    @override_settings(STATOR_CONCURRENCY=7, STATOR_CONCURRENCY_PER_MODEL=3, STATOR_TOKEN="t" * 40)
    def test_settings_under_their_old_names_are_honoured(self):
        settings = StatorRunner(MODELS).settings()
        assert (settings.CONCURRENCY, settings.CONCURRENCY_PER_MODEL, settings.TOKEN) == (7, 3, "t" * 40)

    def test_runner_takes_its_arguments_by_position(self):
        runner = StatorRunner(MODELS, 10, 5, None, 30, 60, 300, 0.2)
        assert (runner.concurrency, runner.lock_expiry, runner.run_for) == (10, 300, 0.2)
        runner.run()


HOOKS = {"start": on_start, "schedule": on_schedule}
