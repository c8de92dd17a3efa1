"""A project written for Takahe's Stator runs on ours: everything it names is there and means the same.

The HTTP runner is tried in ``test_views.py``.
"""

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection, migrations, models
from django.db.migrations.state import ProjectState

import stator.exceptions
import stator.graph
import stator.models
import stator.runner
from stator.models import StateField, Stats
from stator.runner import StatorRunner
from tests.stator.making import ago, put
from tests.testapp.takahe import Domain, DomainStates, FanOut, FanOutStates, Pin, PinStates, Post, PostStates

MODELS = [Post, FanOut, Domain, Pin]


# What it imports


def test_names_are_where_they_were():
    assert issubclass(stator.exceptions.TryAgainLater, BaseException)
    assert stator.graph.State is stator.models.State
    assert stator.graph.StateGraph is stator.models.StateGraph
    assert stator.runner.StatorModel is stator.models.StatorModel
    assert stator.runner.StatorRunner is StatorRunner
    assert apps.get_app_config("stator").label == "stator"


# What it declares


def test_graphs_of_such_a_project_are_legal():
    assert (PostStates.initial_state, PinStates.initial_state) == ("new", "settled")
    assert DomainStates.initial_state is DomainStates.outdated
    assert PostStates.fanned_out.externally_progressed
    assert PostStates.handle_fanned_out
    assert list(PostStates.targets(None)) == [0, 1, 2]
    assert PostStates.deleted_fanned_out in PostStates.terminal_states
    assert (PostStates.new.try_interval, PostStates.new.handler) == (300, PostStates.handle_new)


@pytest.mark.usefixtures("transactional_db")
def test_old_migration_is_applied():
    field = StateField(graph=PostStates, choices=[("new", "new")], default="outdated", max_length=100)
    before, after = ProjectState(), ProjectState()
    operation = migrations.CreateModel("OldPin", [("id", models.BigAutoField(primary_key=True)), ("state", field)])
    operation.state_forwards("testapp", after)
    with connection.schema_editor(atomic=connection.features.can_rollback_ddl) as editor:
        operation.database_forwards("testapp", editor, before, after)
    made = after.apps.get_model("testapp", "OldPin").objects.create(state=PostStates.edited)
    assert type(made).objects.filter(state__in=[PostStates.edited]).exists()
    assert type(made)().state == "new"
    with connection.schema_editor(atomic=connection.features.can_rollback_ddl) as editor:
        operation.database_backwards("testapp", editor, after, before)


# What it does with objects


# What it runs


@pytest.mark.usefixtures("transactional_db")
class TestWorker:
    @pytest.mark.needs("watchdog")
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
