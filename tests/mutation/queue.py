"""Mutants of the queue: which tasks a worker may claim, and what a holder may do."""

from tests.mutation.mutant import Mutant, tests

CLAIMING, HELD_CLAIMS = "tasks/queue/claiming.py", "tasks/queue/held_claims.py"
ELIGIBILITY = "tasks/queue/eligibility.py"


def in_claiming(*names: str) -> tuple[str, ...]:
    return tests("tasks/queue/test_claiming.py", *names)


def in_holding(*names: str) -> tuple[str, ...]:
    return tests("tasks/queue/test_held_claims.py", *names)


ONE = in_holding("worker_holds_one_task_where_the_queue_says_so")
OFTEN = in_holding("task_runs_at_most_as_often_as_it_may")

MUTANTS = [
    Mutant(
        "one task for each worker has no lock",
        CLAIMING,
        "        queue.lock()\n",
        "",
        tests(
            "tasks/queue/test_claiming_races.py",
            "claim_of_a_worker_that_holds_one_task_at_most_waits_for_its_other_claim",
        ),
        "postgresql",
    ),
    Mutant(
        "a worker may hold another task",
        CLAIMING,
        "return not model.objects.using(using).held_by(worker).filter(queue=queue).exists()",
        "return True",
        ONE,
    ),
    Mutant("a worker is given several tasks at once", CLAIMING, "1 if queue.one_per_worker else limit,", "limit,", ONE),
    Mutant(
        "a worker gets two parts",
        CLAIMING,
        "if whole is None or whole not in taken:",
        "if True:",
        tests(
            "tasks/chores/test_shared_tasks.py",
            "so_many_workers_run_it_each_once_and_then_it_is_completed",
            "worker_that_has_done_its_part_gets_no_other",
            "worker_gets_one_part_even_where_it_may_have_tasks_again",
        ),
    ),
    Mutant(
        "a worker that was left out goes on",
        HELD_CLAIMS,
        "claims.Renewal(until, allowed(worker), records, FOLLOWED)",
        "claims.Renewal(until, allowed(worker) | ~allowed(worker), records, FOLLOWED)",
        in_holding("worker_that_is_no_longer_allowed_loses_its_task_at_the_next_heartbeat"),
    ),
    Mutant(
        "a paused queue hands out tasks",
        CLAIMING,
        "if queue.claiming_paused:",
        "if False:",
        in_claiming("claim_paused_queue_hands_out_nothing_and_what_runs_may_finish"),
    ),
    Mutant(
        "a task is attempted for ever",
        HELD_CLAIMS,
        "self._end(claims.Waiting(0.0, failure, reason[:500]), records, left)",
        "self._end(claims.Waiting(0.0, failure, reason[:500]), records)",
        OFTEN,
    ),
    Mutant(
        "tasks that lost every lease stay",
        CLAIMING,
        "model.objects.using(using).end_exhausted(queue)",
        "pass",
        in_holding("task_that_lost_every_lease_is_errored_and_not_quarantined"),
    ),
    Mutant(
        "any claim was resolved",
        HELD_CLAIMS,
        "if same and tokens[run.task_id] == run.token else set()",
        "if same else set()",
        tests("tasks/api/test_claims_many.py", "token_is_that_of_the_very_task"),
    ),
    Mutant(
        "any result was that one",
        HELD_CLAIMS,
        "results is None or is_same_json(results[run.task_id], run.result)",
        "True",
        tests("tasks/api/test_claims_many.py", "who_lost_the_answer_is_answered_as_at_first"),
    ),
    Mutant(
        "one attempt more than allowed",
        ELIGIBILITY,
        "return Q(state_attempts__lt=effective(",
        "return Q(state_attempts__lte=effective(",
        OFTEN,
    ),
    Mutant(
        "anybody may claim",
        ELIGIBILITY,
        "return Q(worker_ids=[]) | Q(Names(worker))",
        "return Q()",
        in_claiming("only_named_workers_may_claim"),
    ),
    Mutant(
        "urgency counts for nothing",
        ELIGIBILITY,
        'rows.order_by("priority", names_nobody(), "pk")',
        'rows.order_by("pk")',
        in_claiming("most_urgent_is_first_and_of_equals_the_first_published"),
    ),
    Mutant(
        "a lease goes beyond the timeout",
        ELIGIBILITY,
        "return Later(Least(wanted, timeout, Value(longest)))",
        "return Later(Least(wanted, Value(longest)))",
        (
            *in_holding("heartbeat_extends_the_lease_but_not_past_the_timeout"),
            *in_claiming("lease_is_what_was_asked_else_the_tasks_the_queues_or_the_settings"),
        ),
    ),
    Mutant(
        "a heartbeat goes beyond the timeout",
        ELIGIBILITY,
        'Least(Later(Least(wanted, Value(longest))), Later(timeout, since=F("state_attempted")))',
        "Later(Least(wanted, Value(longest)))",
        in_holding("heartbeat_extends_the_lease_but_not_past_the_timeout"),
    ),
    Mutant(
        "actions are known by their name alone",
        "tasks/queue/process_eligibility.py",
        "Q(Exact(queue, Value(only)), action__in=own)",
        "Q(action__in=own)",
        tests("tasks/queue/test_eligibility.py"),
    ),
    Mutant(
        "tasks of newer code are claimed",
        "tasks/queue/process_eligibility.py",
        ' & _is_here(actions, F("queue__name"))',
        "",
        tests("tasks/queue/test_eligibility.py"),
    ),
    Mutant(
        "a worker gets its task once more",
        ELIGIBILITY,
        "rejections[again : again + 1]",
        "rejections[again + 1 : again + 2]",
        in_holding("worker_may_have_a_task_again_as_often_as_its_retries"),
    ),
    Mutant(
        "values are out of order",
        ELIGIBILITY,
        "~Q(is_any(_earlier(asking.before)))",
        "Q()",
        tests("tasks/queue/test_eligibility_exclusive.py", "batch_has_at_most_one_of_each_value_in_order"),
    ),
    Mutant(
        "a worker that failed gets it again",
        ELIGIBILITY,
        'Rule("no_eligible_worker", WORKER, _may_again),',
        "",
        in_holding("failed_task_is_for_another_worker_and_its_error_is_kept_as_it_was"),
    ),
]
