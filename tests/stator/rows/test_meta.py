"""The options of a model, the owner of its columns, and its states by name."""

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Value

from stator.rows.meta import column_of, field_of, graph_of, managed, named_state, options_of, owner_of
from tests.testapp.basic import Step
from tests.testapp.explained import Errand, ErrandGraph
from tests.testapp.keys import BigKeyed, BigProxy, Branch
from tests.testapp.waiting import Rollout


@pytest.fixture
def given(monkeypatch):
    """Gives errands options for one test."""

    def give(**options):
        monkeypatch.setattr(Errand, "StatorMeta", type("StatorMeta", (), options), raising=False)
        options_of.cache_clear()
        return options_of(Errand)

    yield give
    options_of.cache_clear()


def test_graph_is_that_of_a_managed_model_and_others_are_refused():
    assert graph_of(Errand) is ErrandGraph
    with pytest.raises(TypeError, match="User is not managed by Stator; let it inherit StatorModel"):
        graph_of(User)
    assert column_of(field_of(Errand, "tenant")) == "tenant"
    with pytest.raises(TypeError, match=r"auth\.User\.logentry is a ManyToOneRel, which is not a field of its table"):
        field_of(User, "logentry")


def test_child_and_proxy_are_owned_by_the_model_whose_table_has_the_state():
    assert owner_of(BigProxy) is BigKeyed
    assert owner_of(Branch) is BigKeyed
    assert managed([Branch, BigProxy, BigKeyed, Errand]) == [BigKeyed, Errand]


def test_state_is_found_by_its_name_and_an_unknown_one_names_all():
    assert named_state(Errand, "done") is ErrandGraph.done
    assert named_state(Errand, Step.state_graph.initial_state).name == Step.state_graph.initial_state.name
    with pytest.raises(ValueError, match="'nowhere' is not a state of ErrandGraph; its states are new, limited"):
        named_state(Errand, "nowhere")


def test_options_are_immutable_however_they_are_given(given):
    options = given(beside=["shop.Order"], history=True, priority="tenant", fair_by="tenant")
    assert (options.beside, options.of_extensions) == (("shop.Order",), {"history": True})
    assert options_of(Rollout).waits_for == (("build", ("built", "broken")), ("after", ("done",)))


IN_COLUMNS = [("reconcile_on", ["state_ready"], "names 'state_ready', which is not a field with a column")]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("histories", True, "has no option 'histories'; did you mean 'history'?"),
        ("zzz", True, "has no option 'zzz'; options are adopts, "),
        ("history", "yes", "history='yes' must be True or False"),  # stator.extensions.reports
        ("logs", True, "logs=True needs history = True, which stores them"),  # stator.extensions.reports
        ("reconcile_on", "tenant", "must be a list of field names"),  # stator.extensions.reconcile
        *IN_COLUMNS,  # stator.extensions.reconcile
        ("priority", "name", "is a CharField; it must be an integer field"),
        ("priority", "nothing", "is not a field with a column"),
        ("priority", 3, "must be the name of a field"),
        ("then", "tenant", "must be an expression"),
        ("then", Value(1), "needs a priority"),
        ("fair_by", "state", "is not a field with a column"),
        ("spread", "a shard", "must be the name of a field, or a name for a column"),
        ("spread", "state", "is a column of Stator; name another one"),
        ("heartbeat", "tenant", "must be the name of a FloatField"),
        ("claimable", 3, "must be a function from the id of a worker and a Q to a Q"),
        ("reasons", 3, "must be a function of a database's alias"),
        ("lease_end", 3, "must be a function"),
    ],
)
def test_wrong_option_is_refused_in_one_line(given, name, value, told):
    with pytest.raises(ImproperlyConfigured) as refused:
        given(**{name: value})
    assert str(refused.value).startswith("Errand.StatorMeta")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
