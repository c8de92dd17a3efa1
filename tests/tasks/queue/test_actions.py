"""Rules on actions of a queue: those of the code here, and over HTTP those that it lists."""

from types import SimpleNamespace

import pytest

import tasks
from tasks.actions.registry import registry
from tasks.conf import DJANGO
from tasks.exceptions import ActionNotAllowed, PublishRefused, UnknownAction
from tasks.queue.actions import (
    MAX_LISTED,
    may_be_published_over_http,
    problem,
    refuse_arguments,
    refuse_over_http,
    refuse_to_change_over_http,
    refuse_unknown,
)


@pytest.fixture
def registered():
    known = {name: dict(by_queue) for name, by_queue in registry.items()}
    yield
    registry.clear()
    registry.update(known)


def queue_of(*listed, elsewhere=False):
    """A queue with these actions over HTTP; rules need no database."""
    return SimpleNamespace(name="encode", http_actions=list(listed), actions_elsewhere=elsewhere)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ("resize", "must be a list of at most 1000 names"),
        (["a"] * (MAX_LISTED + 1), "must be a list of at most 1000 names"),
        ([f"{DJANGO}app.tasks.add"], "is a task of Django's framework"),
        ([3], "3 is not the name of an action"),
        (["with space"], "'with space' is not the name of an action"),
        (["resize", "resize"], "'resize' is listed twice"),
    ],
)
def test_wrong_list_of_actions_is_one_sentence(names, told):
    assert told in problem(names)


def test_action_that_no_code_has_is_refused_with_the_nearest_name():
    refuse_unknown(queue_of(), ["echo"])
    with pytest.raises(UnknownAction, match=r"no action 'ehco' is registered for queue encode; did you mean 'echo'\?"):
        refuse_unknown(queue_of(), ["echo", "ehco"])
    with pytest.raises(UnknownAction, match=r"register it with @tasks\.action"):
        refuse_unknown(queue_of(), ["zzzzzz"])


def test_data_that_the_action_does_not_take_is_refused_unless_programs_elsewhere_may_take_it(registered):
    @tasks.action("framed")
    def framed(width, height=3):
        return width

    given = [SimpleNamespace(action="framed", data=data) for data in ({"width": 1}, {"width": 2}, 7)]
    refuse_arguments(queue_of(), given)
    for data, why in ({"hight": 3}, "unexpected keyword argument 'hight'|missing"), (None, "'width'"), ({}, "'width'"):
        wrong = SimpleNamespace(action="framed", data=data)
        with pytest.raises(PublishRefused, match=f"action 'framed' cannot be called with this data: .*({why})"):
            refuse_arguments(queue_of(), [*given, wrong])
        refuse_arguments(queue_of(elsewhere=True), [wrong])


def test_programs_publish_what_the_queue_lists_and_learn_no_other_name():
    queue = queue_of("resize")
    refuse_over_http(queue, ["resize"])
    with pytest.raises(ActionNotAllowed, match="does not accept action 'echo' over HTTP; list it in http_actions"):
        refuse_over_http(queue, ["echo"])
    with pytest.raises(UnknownAction, match="has no action 'ehco'; list it in http_actions"):
        refuse_over_http(queue, ["ehco"])
    with pytest.raises(UnknownAction, match=r"did you mean 'resize'\?"):
        refuse_over_http(queue, ["resise"])


def test_queue_of_programs_elsewhere_takes_names_that_no_code_has():
    queue = queue_of(elsewhere=True)
    assert may_be_published_over_http(queue, "transcode")
    assert not may_be_published_over_http(queue, "echo")


def test_task_that_its_queue_would_not_take_over_http_is_not_changed_over_http():
    def task(action, elsewhere_only=False):
        return SimpleNamespace(pk=7, action=action, elsewhere_only=elsewhere_only)

    queue = queue_of("resize")
    refuse_to_change_over_http(queue, [task("resize"), task("echo", elsewhere_only=True)])
    with pytest.raises(ActionNotAllowed, match="task 7 has action 'echo'"):
        refuse_to_change_over_http(queue, [task("resize"), task("echo")])
