"""Mutants of what is done to many rows: looks for work, chores, batches of outcomes, lines, rows that wait."""

from tests.mutation.mutant import Mutant, of_chores, of_records, tests

LOOK, CHORES, INTERFACE, LINES, RECORDS = (
    f"stator/db/{name}.py" for name in ("probe", "chores", "interface", "ordering", "records")
)

STEPS = "stator/db/steps.py"

DEFERRED = of_records("outcome_of_a_row_that_an_application_has_locked_is_deferred_not_lost")

MUTANTS = [
    Mutant(
        "a pause is not noticed",
        LOOK,
        "if any(operations.pauses is None or operations.pauses.seen != seen for",
        "if any(operations.pauses is None for",
        tests("stator/rows/test_pauses.py", "worker_obeys_at_its_next_look_and_works_again_after_the_resume"),
    ),
    Mutant(
        "a look finds no lease after a clock set back",
        LOOK,
        "for rows in operations.lost()],\n    ]",
        "for rows in operations.lost()[:1]],\n    ]",
        of_chores("work_tells_of_leases_from_before_the_clock_was_set_back"),
    ),
    Mutant(
        "a look tells of no row that comes due",
        LOOK,
        "return Work(ready, crashed, suspect, due, expired, nearest)",
        "return Work(ready, crashed, suspect, due, expired)",
        of_chores("work_tells_how_long_it_is_until_the_next_row_comes_due"),
    ),
    Mutant(
        "rows without a due time stay",
        CHORES,
        "_change(operations, MARK_READY, operations.due(), limit",
        "_change(operations, MARK_READY, operations.due()[:1], limit",
        of_chores("due_rows_are_marked_ready"),
    ),
    Mutant(
        "leased rows are deleted and timed out",
        CHORES,
        "rows.filter(RESTING, state=state.name)",
        "rows.filter(state_ready=False, state=state.name)",
        of_chores("claimed_row_is_not_timed_out_behind_its_handler", "row_that_is_leased_is_never_deleted"),
    ),
    Mutant(
        "a timeout fires at once",
        CHORES,
        "past = _stayed(_resting(operations, state), state.timeout_value)",
        "past = _stayed(_resting(operations, state), 0)",
        of_chores("timeout_fires_for_resting_rows_of_external_states_too"),
    ),
    Mutant(
        "a row is deleted at once",
        CHORES,
        "old = _stayed(_resting(operations, state, deletable(operations)), state.delete_after)",
        "old = _stayed(_resting(operations, state, deletable(operations)), 0)",
        of_chores("rows_are_deleted_once_they_have_stayed_long_enough"),
    ),
    Mutant(
        "conditions move claimed rows",
        CHORES,
        "filter(met, where, state=state.name)",
        "filter(met, state=state.name)",
        tests("stator/db/test_chores_transitions.py", "sql_transition_leaves_claimed_rows_alone_and_is_bounded"),
    ),
    Mutant(
        "a pass reopens what waits",
        CHORES,
        "return parked.exclude(waiting(parked)) if operations.waits else parked",
        "return parked",
        tests("stator/rows/test_waits.py", "pass_reopens_what_waits_for_nothing_and_only_that"),
    ),
    Mutant(
        "two outcomes of one row in one statement",
        INTERFACE,
        "yield list(latest.values())\n        if len(latest) == len(group):",
        "yield group\n        if group:",
        tests("stator/db/test_interface.py", "outcomes_of_one_row_are_never_in_one_part_and_the_latest_comes_first"),
    ),
    Mutant(
        "the earlier of two outcomes comes first",
        INTERFACE,
        "for ended in group}\n        yield",
        "for ended in reversed(group)}\n        yield",
        tests("stator/db/test_interface.py", "outcomes_of_one_row_are_never_in_one_part_and_the_latest_comes_first"),
    ),
    Mutant(
        "a move is written though no version was",
        RECORDS,
        "return (state, version) == (outcome.to.name, claim.version + 1)",
        "return state == outcome.to.name",
        of_records("outcome_is_found_written_in_the_row_it_left"),
    ),
    Mutant(
        "a wait is written though it is claimed",
        RECORDS,
        "(claim.state.name, claim.version, counted) and token is None",
        "(claim.state.name, claim.version, counted)",
        of_records("outcome_is_found_written_in_the_row_it_left"),
    ),
    Mutant(
        "releases are written as waits",
        INTERFACE,
        "return claim.state.name, INTERRUPTED if outcome.begun else RELEASED",
        'return claim.state.name, ""',
        of_records("released_row_is_ready_again_and_the_attempt_is_refunded"),
    ),
    Mutant(
        "lost claims are forgotten",
        INTERFACE,
        "written.lost += part.lost",
        "pass",
        of_records("lost_lease_does_not_spoil_its_batch"),
    ),
    Mutant(
        "deferred outcomes are forgotten",
        INTERFACE,
        "written.deferred += part.deferred",
        "pass",
        DEFERRED,
        "postgresql",
    ),
    Mutant(
        "no claim goes by age",
        LINES,
        "turn.by_age = turn.claims % AGEING == 0",
        "turn.by_age = False",
        tests("stator/db/test_ordering.py", "row_that_waits_is_claimed_however_many_urgent_ones_come"),
    ),
    Mutant(
        "the first value gets all",
        LINES,
        "share = min(ceil(left / len(values)), limit - len(picked))",
        "share = limit - len(picked)",
        tests("stator/db/test_ordering.py", "one_with_very_many_rows_does_not_hold_up_the_others"),
    ),
    Mutant(
        "the first value is always first",
        LINES,
        "turn.last = value if share else turn.last",
        "pass",
        tests("stator/db/test_ordering.py", "values_take_turns_where_a_claim_is_smaller_than_their_number"),
    ),
    Mutant(
        "a claim never returns to the head",
        LINES,
        "if now >= self.wait_until:\n            self.place = None",
        "if False:\n            self.place = None",
        tests("stator/db/test_ordering.py", "a_claim_that_found_enough_tells_the_next_where_to_begin_for_a_while"),
    ),
    Mutant(
        "what waits is claimed",
        LINES,
        "picked += [pk for pk in found if pk not in held]",
        "picked += found",
        tests(
            "stator/rows/test_waits.py",
            "rows_behind_any_number_of_waiting_ones_are_claimed_at_once_and_no_more_than_asked_for",
        ),
    ),
    Mutant(
        "rows are parked though their object is being moved",
        LINES,
        "parked.update(*(by_awaited[pk] for pk in held))",
        "parked.update(waiting)",
        tests(
            "stator/rows/test_waits_races.py", "object_that_is_being_moved_just_now_keeps_its_waiters_from_being_parked"
        ),
        "postgresql",
    ),
    Mutant(
        "a recorded move wakes nothing that waits",
        RECORDS,
        "entered(operations.model, operations.alias, batch.to, accepted, wait=wait)",
        "pass",
        tests("stator/rows/test_waits.py", "waiting_row_is_woken_in_the_transaction_of_the_move"),
    ),
    Mutant(
        "rows are written though they may be the last of their related rows",
        "stator/db/records_postgresql.py",
        "shape.watched]\n",
        "()]\n",
        tests("stator/rows/test_watches.py", "last_of_all_moves_the_waiting_object_in_its_own_transaction"),
        "postgresql",
    ),
    Mutant(
        "a related row that is claimed itself is handed on to",
        "stator/db/records_postgresql.py",
        "    AND s.state_claim IS NULL LIMIT 1",
        "    LIMIT 1",
        tests("stator/rows/test_watches.py", "last_of_all_moves_the_waiting_object_in_its_own_transaction"),
        "postgresql",
    ),
    Mutant(
        "a worker passes over what waits for related rows and is locked",
        "stator/rows/transitions.py",
        "raise WaiterHeld(watch.related_to(using, held, pks))",
        "pass",
        tests(
            "stator/rows/test_watches.py",
            "TestRaces::worker_puts_off_the_last_one_while_what_waits_is_held",
        ),
        "postgresql",
    ),
    Mutant(
        "what waits for related rows is not locked before they are read",
        "stator/rows/transitions.py",
        "    mine = list(locked.values_list",
        "    mine = list(rows.filter(pk__in=waiting).values_list",
        tests("stator/rows/test_watches.py", "TestRaces::last_one_waits_for_the_one_before_and_moves_it"),
        "postgresql",
    ),
    Mutant(
        "related rows in states that nobody knows are done",
        "stator/rows/watches.py",
        "met &= ~Q(self._exists(using, ~Q(stator_state__in=self.condition.in_)))",
        "pass",
        tests("stator/rows/test_watches.py", "related_object_in_a_state_that_this_code_does_not_know_is_not_done"),
    ),
    Mutant(
        "a claim that has ended records a step",
        STEPS,
        "held = rows.filter(pk=pk, state=state, state_claim=token)",
        "held = rows.filter(pk=pk, state=state)",
        tests("stator/db/test_steps.py", "claim_that_has_ended_records_nothing"),
    ),
    Mutant(
        "an attempt does not know the steps of earlier ones",
        STEPS,
        "self._done = dict(retried(operations, _read)(self._claim))",
        "self._done = {}",
        tests("stator/db/test_steps.py", "later_attempt_gets_recorded_results_without_a_call"),
    ),
    Mutant(
        "steps of an earlier visit are taken for done",
        "stator/rows/reports.py",
        "object_pk=key, entered__in=entered)",
        "object_pk=key)",
        tests("stator/db/test_steps.py", "object_that_returns_to_a_state_does_its_steps_again"),
    ),
    Mutant(
        "a move leaves the steps of its attempt",
        RECORDS,
        "if batch.stepped:",
        "if batch.stepped and False:",
        tests("stator/db/test_steps.py", "move_deletes_the_steps_of_the_visit_unless_the_model_has_history"),
    ),
]
