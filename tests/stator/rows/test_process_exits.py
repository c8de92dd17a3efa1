"""How worker processes ended, as told by those that replaced them."""

import pytest
from django.db.models import Q

from stator.models import Worker
from stator.rows.process_exits import exit_reason, processes_of


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (1, "exit 1"),
        (-9, "exit 137, SIGKILL: out of memory?"),
        (-11, "exit 139, SIGSEGV"),
        (-63, "exit 191, signal 63"),
    ],
)
def test_end_of_a_process_is_told_as_shells_tell_it(exit_code, words):
    assert exit_reason(exit_code) == words


@pytest.mark.django_db
def test_process_is_known_by_its_host_and_number(django_assert_max_num_queries):
    row = {"version": "1", "models": [], "database": "default"}
    Worker.objects.create(id="a" * 12, host="oak", pid=4242, **row)
    Worker.objects.create(id="b" * 12, host="elm", pid=4242, **row)
    told = {"replaced": {"pid": 4242, "exit_code": -9}}
    Worker.objects.create(id="c" * 12, host="oak", pid=4243, published=told, **row)
    with django_assert_max_num_queries(1):
        found = processes_of(Q(pk__in=["a" * 12, "b" * 12]), "default")
    assert {pk: str(process) for pk, process in found.items()} == {
        "a" * 12: "process 4242 on oak, exit 137, SIGKILL: out of memory?",
        "b" * 12: "process 4242 on elm",
    }
