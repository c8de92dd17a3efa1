"""Mutants of what is done to many rows: looks for work, chores, batches of outcomes, lines, rows that wait."""

from tests.mutation.mutant import Mutant, of_chores, of_records, tests

LOOK, CHORES, INTERFACE, LINES, RECORDS = (
    f"stator/db/{name}.py" for name in ("probe", "chores", "interface", "ordering", "records")
)

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
        "for part in operations.expired()],\n    ]",
        "for part in operations.expired()[:1]],\n    ]",
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
        "for part in columns.come_due()]\n    return _change(operations, MARK_READY",
        "for part in columns.come_due()[:1]]\n    return _change(operations, MARK_READY",
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
        "filter(condition, where, state=state.name)",
        "filter(condition, state=state.name)",
        tests("stator/db/test_chores_transitions.py", "sql_transition_leaves_claimed_rows_alone_and_is_bounded"),
    ),
    Mutant(
        "a pass reopens what waits",
        CHORES,
        "return parked.exclude(waiting(operations.model, operations.alias)) if operations.waits else parked",
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
        "entered(operations.model, operations.alias, batch.to, accepted)",
        "pass",
        tests("stator/rows/test_waits.py", "waiting_row_is_woken_in_the_transaction_of_the_move"),
    ),
]
