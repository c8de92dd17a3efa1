"""Mutants of what a row is: its columns, what an attempt means, moves by hand, the guard, claims of programs."""

from tests.mutation.mutant import Mutant, of_chores, of_claims, of_leases, of_records, tests

COLUMNS, OUTCOMES, MOVES = "stator/rows/columns.py", "stator/graph/outcomes.py", "stator/rows/transitions.py"
GUARD, CLAIMS = "stator/rows/column_guard.py", "stator/claims.py"
SINGLE_STATEMENT = "stator/db/single_statement.py"

ENTERED = of_records("recorded_move_enters_the_next_state_with_a_clean_slate")
CLAIMED = of_claims("claim_marks_the_row_and_gives_it_with_its_claim")
WAITED = of_records("recorded_wait_makes_the_row_due_after_its_delay")
RELEASED = of_records("released_row_is_ready_again_and_the_attempt_is_refunded")
REAPED = of_leases("reaped_row_is_ready_and_its_crash_counted")
QUARANTINED = of_leases("row_that_loses_too_many_leases_is_quarantined_visibly_until_somebody_retries")
TABLE = tests("stator/graph/test_outcomes.py")
LATE = tests("stator/test_claims.py", "holder_past_its_lease_is_refused_before_anybody_reaps_it")

MUTANTS = [
    Mutant(
        "a move leaves the claim",
        COLUMNS,
        '"state_version": F("state_version") + 1,\n        **_UNCLAIMED,',
        '"state_version": F("state_version") + 1,',
        tests("stator/rows/test_transitions.py", "move_ends_every_claim"),
    ),
    Mutant(
        "a move counts no version",
        COLUMNS,
        '"state_version": F("state_version") + 1,',
        '"state_version": F("state_version"),',
        ENTERED,
    ),
    Mutant(
        "a move keeps the attempts", COLUMNS, '"state_attempts": 0,', '"state_attempts": F("state_attempts"),', ENTERED
    ),
    Mutant(
        "a move keeps the failures",
        COLUMNS,
        '"state_failures": 0,\n        "state_crashes": 0,',
        '"state_crashes": 0,',
        ENTERED,
    ),
    Mutant(
        "a move keeps the moment", COLUMNS, '"state_changed": Now(),', '"state_changed": F("state_changed"),', ENTERED
    ),
    Mutant(
        "a move never makes ready",
        COLUMNS,
        '"state_ready": ready_at_once(state),',
        '"state_ready": False,',
        of_records("state_that_is_entered_is_ready_where_it_is_attempted_at_once"),
    ),
    Mutant(
        "a state begins without its delay",
        COLUMNS,
        "return after(state.try_interval or 0)",
        "return None",
        of_records("state_with_a_first_delay_is_due_after_its_interval"),
    ),
    Mutant(
        "a claim counts no attempt",
        COLUMNS,
        '"state_attempts": F("state_attempts") + 1,',
        '"state_attempts": F("state_attempts"),',
        CLAIMED,
    ),
    Mutant(
        "a claim leaves the row ready",
        COLUMNS,
        '"state_locked_until": until,\n        "state_ready": False,',
        '"state_locked_until": until,\n        "state_ready": True,',
        CLAIMED,
    ),
    Mutant(
        "a row is claimed before it is due",
        COLUMNS,
        "early = Q(state_next_attempt__gt=Now())",
        "early = Q(state_attempts__lt=0)",
        of_claims("row_that_is_ready_before_its_time_is_not_claimed_and_loses_the_mark"),
    ),
    Mutant(
        "an end keeps the crashes",
        COLUMNS,
        '"state_failures": failures,\n        "state_crashes": 0,',
        '"state_failures": failures,',
        of_records("attempt_that_ends_at_all_clears_the_count_of_crashes"),
    ),
    Mutant(
        "a wait keeps the claim", COLUMNS, '"state_crashes": 0,\n        **_UNCLAIMED,', '"state_crashes": 0,', WAITED
    ),
    Mutant(
        "a wait leaves the row ready",
        COLUMNS,
        '"state_ready": False,\n        "state_next_attempt": due,',
        '"state_ready": True,\n        "state_next_attempt": due,',
        WAITED,
    ),
    Mutant(
        "a release refunds nothing",
        COLUMNS,
        "(0 if begun else 1)",
        "0",
        RELEASED,
    ),
    Mutant("a release loses the row", COLUMNS, 'else {"state_ready": True}', 'else {"state_ready": False}', RELEASED),
    Mutant(
        "the reaper counts nothing",
        COLUMNS,
        'crashes: Expression = F("state_crashes") + 1',
        'crashes: Expression = F("state_crashes")',
        REAPED,
    ),
    Mutant(
        "the reaper leaves the claim",
        COLUMNS,
        "None,\n        **_UNCLAIMED,\n    }\n\n\ndef parking",
        "None,\n    }\n\n\ndef parking",
        REAPED,
    ),
    Mutant(
        "the quarantine comes one crash late",
        COLUMNS,
        "goes_on = Q(state_crashes__lt=max_crashes - 1)",
        "goes_on = Q(state_crashes__lt=max_crashes)",
        QUARANTINED,
    ),
    Mutant(
        "a state without quarantine has one",
        COLUMNS,
        "goes_on |= spared",
        "goes_on |= Q(state__in=[])",
        tests(
            "stator/db/test_claims_limits.py",
            "row_of_a_state_without_quarantine_is_claimed_however_many_leases_it_lost",
        ),
    ),
    Mutant(
        "a parked row is due",
        COLUMNS,
        '"state_next_attempt": Value(_year(5000), output_field=DateTimeField())',
        '"state_next_attempt": Now()',
        tests(
            "stator/rows/test_waits.py",
            "nothing_is_claimed_that_waits_and_everything_else_is",
            "idle_worker_meets_no_row_that_waits",
        ),
    ),
    Mutant(
        "a retry keeps the crashes",
        COLUMNS,
        '"state_failures": 0, "state_crashes": 0}',
        '"state_failures": 0}',
        tests("stator/test_querysets.py", "retry_has_rows_attempted_now_with_a_clean_record"),
    ),
    Mutant(
        "an unlocked row keeps its claim",
        COLUMNS,
        'return {"state_ready": True, "state_next_attempt": None, **_UNCLAIMED}',
        'return {"state_ready": True, "state_next_attempt": None}',
        tests("stator/test_querysets.py", "unlock_ends_claims_and_only_those"),
    ),
    Mutant(
        "what is not due is marked ready",
        COLUMNS,
        "return [Q(state_next_attempt__lte=Now())",
        "return [Q(state_next_attempt__gte=Now())",
        of_chores("due_rows_are_marked_ready"),
    ),
    Mutant(
        "a save may write the claim",
        COLUMNS,
        '"state_version",\n        "state_claim",\n',
        '"state_version",\n',
        tests("stator/test_models_saving.py", "saving_never_writes_the_columns_of_the_framework"),
    ),
    Mutant("what did not begin is an error", OUTCOMES, "if isinstance(result, NotBegun):", "if False:", TABLE),
    Mutant(
        "any state may be returned", OUTCOMES, "if result in state.children:", "if result.graph is not None:", TABLE
    ),
    Mutant(
        "any name may be returned",
        OUTCOMES,
        "return named if named in state.children else None",
        "return named",
        TABLE,
    ),
    Mutant(
        "one error more than allowed",
        OUTCOMES,
        "failures >= state.max_failures",
        "failures > state.max_failures",
        TABLE,
    ),
    Mutant("Fail is tried again", OUTCOMES, "return isinstance(error, Fail) or (", "return bool(", TABLE),
    Mutant("a timeout does not fire", OUTCOMES, "if left <= 0:", "if left <= -1e9:", TABLE),
    Mutant("a wait goes beyond the timeout", OUTCOMES, "delay = min(delay, left)", "delay = delay", TABLE),
    Mutant("TryAgainLater is an error", OUTCOMES, "if isinstance(error, TryAgainLater):", "if False:", TABLE),
    Mutant(
        "the back-off stays behind",
        OUTCOMES,
        "delay_after(state.backoff, failures + 1,",
        "delay_after(state.backoff, failures,",
        TABLE,
    ),
    Mutant(
        "moves by hand lock nothing",
        MOVES,
        'part.order_by("pk").select_for_update(**options)',
        'part.order_by("pk")',
        tests(
            "stator/rows/test_transitions.py",
            "rows_are_locked_in_the_order_of_their_keys",
            "TestRaces::move_waits_for_another_and_leaves_what_it_no_longer_means",
        ),
        "postgresql",
    ),
    Mutant(
        "moves by hand lock in any order",
        MOVES,
        'part.order_by("pk").select',
        "part.select",
        tests("stator/rows/test_transitions.py", "rows_are_locked_in_the_order_of_their_keys"),
        "postgresql",
    ),
    Mutant(
        "moves by hand do not look again",
        MOVES,
        "return [row for row in found if row.pk in meant]",
        "return found",
        tests(
            "stator/rows/test_transitions.py", "TestRaces::move_waits_for_another_and_leaves_what_it_no_longer_means"
        ),
        "postgresql",
    ),
    Mutant(
        "moves by hand have no history",
        MOVES,
        "keep_moves(owner, using, [row.pk for row in before], target, reason, kind, actor=actor)",
        "pass",
        tests("stator/rows/test_transitions.py", "each_manual_move_is_recorded_with_its_author_and_bounded"),
    ),
    Mutant(
        "moves by hand are told before the commit",
        MOVES,
        "transaction.on_commit(lambda: signals.transitioned.send(owner, **told), using=using)",
        "signals.transitioned.send(owner, **told)",
        tests(
            "stator/rows/test_transitions.py",
            "moves_are_sent_after_the_commit",
            "moves_that_are_rolled_back_are_not_sent",
        ),
    ),
    Mutant(
        "states of the framework are entered by hand",
        MOVES,
        "if not found.enter_by_hand:",
        "if False:",
        tests(
            "stator/rows/test_transitions.py", "state_that_only_the_framework_enters_is_refused_to_every_move_by_hand"
        ),
    ),
    Mutant(
        "moves by hand wake no worker",
        MOVES,
        "if columns.ready_at_once(target):",
        "if False:",
        tests("stator/rows/test_transitions.py", "workers_are_woken_where_the_new_state_is_attempted"),
    ),
    Mutant(
        "moves by hand wake nothing that waits",
        MOVES,
        "entered(owner, using, target.name, [row.pk for row in before])",
        "pass",
        tests("stator/rows/test_waits.py", "waiting_row_is_woken_in_the_transaction_of_the_move"),
    ),
    Mutant(
        "update() writes framework columns",
        GUARD,
        "_refuse(self.model, values.keys() & columns.FRAMEWORK_COLUMNS)",
        "pass",
        tests("stator/rows/test_column_guard.py", "update_of_a_framework_column_is_refused_whatever_the_manager"),
    ),
    Mutant(
        "update() takes an expression for a state",
        GUARD,
        'if hasattr(state, "resolve_expression"):',
        "if False:",
        tests("stator/rows/test_column_guard.py", "update_of_the_state_by_an_expression_is_refused"),
    ),
    Mutant(
        "bulk_create() overwrites framework columns",
        GUARD,
        "_refuse(self.model, set(update_fields or ()) & _GUARDED)",
        "pass",
        tests("stator/rows/test_column_guard.py", "bulk_create_may_not_overwrite_our_columns_on_conflict"),
    ),
    Mutant(
        "managers that build their queryset are not guarded",
        GUARD,
        "if not isinstance(queryset, GuardedQuerySet):",
        "if False:",
        tests(
            "stator/rows/test_column_guard.py",
            "update_of_the_state_moves_the_rows_whatever_the_manager",
            "update_of_a_framework_column_is_refused_whatever_the_manager",
        ),
    ),
    Mutant(
        "a program holds on after its lease",
        SINGLE_STATEMENT,
        "state_claim=token, state_locked_until__gt=Now())",
        "state_claim=token)",
        tests("stator/test_claims.py", "lease_is_held_for_longer_while_the_row_is_as_it_should_be"),
    ),
    Mutant(
        "a program writes after its lease",
        CLAIMS,
        "filter(pk__in=list(held), state_locked_until__gt=Now())",
        "filter(pk__in=list(held))",
        LATE,
    ),
    Mutant(
        "a program holds what others have claimed",
        SINGLE_STATEMENT,
        "operations.rows.filter(pk=pk, state_claim=token, state",
        "operations.rows.filter(pk=pk, state",
        tests("tasks/queue/test_held_claims.py", "late_holder_is_told_why_and_changes_nothing"),
    ),
    Mutant(
        "a program is not told of its loss",
        CLAIMS,
        "        written.lost += [claim for claim, _ in ended if claim not in valid]\n",
        "",
        LATE,
    ),
    Mutant(
        "claims that are not kept stay",
        CLAIMS,
        "operations.rows.filter(pk__in=others, state_claim=token).update(**columns.releasing())",
        "pass",
        tests("stator/test_claims.py", "claims_that_its_transaction_does_not_keep_are_released"),
    ),
    Mutant(
        "a program moves anywhere",
        CLAIMS,
        "if target not in claim.state.children:",
        "if False:",
        tests("stator/test_claims.py", "move_that_is_not_declared_is_refused"),
    ),
    Mutant(
        "a claim ignores what comes first",
        CLAIMS,
        "(first is not None and not first()) or ",
        "",
        tests("stator/test_claims.py", "what_comes_first_may_keep_anything_from_being_claimed"),
    ),
    Mutant(
        "programs quarantine rows",
        CLAIMS,
        '**columns.claiming_due(token, until), "state_crashes": 0}',
        "**columns.claiming_due(token, until)}",
        tests("stator/test_claims.py", "programs_that_lose_leases_do_not_quarantine_a_row"),
    ),
    Mutant(
        "any token finds a claim",
        CLAIMS,
        "operations.rows.filter(pk=pk, state_claim=token).first()",
        "operations.rows.filter(pk=pk).first()",
        tests("stator/test_claims.py", "claim_is_found_by_its_token"),
    ),
]
