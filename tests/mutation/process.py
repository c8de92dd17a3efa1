"""Mutants of the worker process: what it runs, records, renews, claims and schedules, and how it stops."""

from tests.mutation.mutant import Mutant, of_claims, tests

ATTEMPTS, EXECUTOR, RECORDER, HEARTBEAT, DISPATCHER, SCHEDULER, ENDING, WORKER, ALONE = (
    f"stator/worker/{name}.py"
    for name in (
        "attempts", "executor", "recorder", "heartbeat", "dispatcher", "scheduler", "shutdown", "worker",
        "crash_isolation",
    )
)  # fmt: skip
ANNOUNCEMENTS, INTERFACE = "stator/worker/announcements.py", "stator/db/interface.py"


def in_attempts(*names: str) -> tuple[str, ...]:
    return tests("stator/worker/test_attempts.py", *names)


def in_recorder(*names: str) -> tuple[str, ...]:
    return tests("stator/worker/test_recorder.py", *names)


def in_heartbeat(*names: str) -> tuple[str, ...]:
    return tests("stator/worker/test_heartbeat.py", *names)


def in_dispatcher(*names: str) -> tuple[str, ...]:
    return tests("stator/worker/test_dispatcher.py", *names)


def in_atomic(*names: str) -> tuple[str, ...]:
    return tests("stator/worker/test_executor_atomic.py", *names)


STOPS = tests("stator/worker/test_worker.py")

MUTANTS = [
    Mutant(
        "claims in handler threads are not handed back",
        ATTEMPTS,
        "self._release([*waiting, *(call.argument for call in self._threads.take_back())])",
        "self._release(waiting)",
        in_attempts("claims_that_no_thread_has_begun_are_handed_back"),
    ),
    Mutant(
        "claims on the loop are not handed back",
        ATTEMPTS,
        "waiting = [attempt.claims for line in (self._queue, *self._ahead.values()) for attempt in line]",
        "waiting = []",
        in_attempts("attempts_that_have_not_begun_are_handed_back"),
    ),
    Mutant(
        "an answer counts though it was given up",
        ATTEMPTS,
        "if self._forget(claim):\n            self._done",
        "if self._forget(claim) or True:\n            self._done",
        in_attempts("handler_that_swallows_its_cancellation_is_abandoned_and_its_answer_dropped"),
    ),
    Mutant(
        "a handler runs on without its lease",
        ATTEMPTS,
        "elif now > claim.deadline:",
        "elif False:",
        in_attempts("async_attempt_whose_lease_ran_out_is_cancelled_and_released"),
    ),
    Mutant(
        "a handler runs for ever",
        ATTEMPTS,
        "if now - since > claim.max_runtime:",
        "if False:",
        in_attempts("async_attempt_past_its_time_is_cancelled_and_counts_as_an_error"),
    ),
    Mutant(
        "an ended claim runs on",
        ATTEMPTS,
        "if all(id(claim) in keys for claim in attempt.claims):",
        "if False:",
        in_attempts("attempt_whose_claim_has_ended_is_cancelled"),
    ),
    Mutant(
        "a stuck thread counts as free",
        ATTEMPTS,
        "self._room.stuck.add(id(attempt.claims[0]))",
        "pass",
        in_attempts("sync_handler_past_its_time_is_given_up_and_its_thread_counts_as_stuck"),
    ),
    Mutant(
        "a handler finds the context of another",
        ATTEMPTS,
        "if self._is_spent(attempt, context):",
        "if False:",
        in_attempts(
            "what_a_handler_leaves_in_its_context_is_not_found_by_the_next",
            "handler_that_cancels_its_own_task_does_not_cancel_the_next",
        ),
    ),
    Mutant(
        "a cancelled handler is waited for",
        ATTEMPTS,
        "now - attempt.cancelled_at > GRACE:",
        "now - attempt.cancelled_at > 1e9:",
        in_attempts("handler_that_swallows_its_cancellation_is_abandoned_and_its_answer_dropped"),
    ),
    Mutant(
        "nothing is released at the end",
        ATTEMPTS,
        "            self._give_up(claim, claim.unfinished(STOPPED))\n\n    def stop",
        "            pass\n\n    def stop",
        in_attempts("stopping_cancels_async_attempts_and_releases_the_rest"),
    ),
    Mutant(
        "what was claimed ahead is kept",
        ATTEMPTS,
        "        self._hand_back_ahead(now)\n",
        "",
        in_attempts("what_was_claimed_ahead_and_cannot_begin_is_handed_back_in_time"),
    ),
    Mutant(
        "stuck threads are offered",
        "stator/worker/room.py",
        "return self._settings.THREADS - len(self.stuck)\n",
        "return self._settings.THREADS\n",
        in_attempts("sync_handler_past_its_time_is_given_up_and_its_thread_counts_as_stuck"),
    ),
    Mutant(
        "a model has no limit of its own",
        "stator/worker/room.py",
        "if self._settings.CONCURRENCY_PER_MODEL:",
        "if False:",
        in_attempts("room_of_one_model_may_be_smaller_and_leaves_the_others_theirs"),
    ),
    Mutant(
        "an attempt begins after its deadline",
        INTERFACE,
        "return time.monotonic() <= self.deadline and not self.operations.stopping",
        "return not self.operations.stopping",
        tests("stator/worker/test_executor.py", "attempt_that_comes_too_late_is_not_begun"),
    ),
    Mutant(
        "an atomic handler's writes are not undone",
        EXECUTOR,
        "raise _Undone(ended)",
        "pass",
        in_atomic("effects_of_an_atomic_state_are_undone_by_an_error"),
    ),
    Mutant(
        "an atomic handler has no transaction",
        EXECUTOR,
        "with operations.handler_transaction():\n            if self.outermost:",
        "if True:\n            if self.outermost:",
        in_atomic("effects_of_an_atomic_state_are_undone_by_an_error"),
    ),
    Mutant(
        "an atomic outcome is written after the commit",
        EXECUTOR,
        "self.recording = True\n            self._recorded, self._written =",
        "self.recording = True\n        if True:\n            self._recorded, self._written =",
        in_atomic("effects_of_an_atomic_state_are_undone_where_its_move_cannot_be_written"),
    ),
    Mutant(
        "an atomic handler runs without its claim",
        EXECUTOR,
        "mine = operations.lock_claimed(self._claims)",
        "mine = self._claims",
        in_atomic("atomic_state_does_not_run_once_its_claim_has_ended"),
    ),
    Mutant(
        "an atomic handler begins before its claim is locked",
        EXECUTOR,
        "mine = operations.lock_claimed(self._claims)\n            self.begun = True",
        "self.begun = True\n            mine = operations.lock_claimed(self._claims)",
        in_atomic("atomic_attempt_that_cannot_begin_did_not_take_place"),
    ),
    Mutant(
        "a shutdown is an error of the handler",
        EXECUTOR,
        'return timed_out(claim) if claim.cancelled_for == "max_runtime" else claim.unfinished(STOPPED)',
        "return timed_out(claim)",
        tests("stator/worker/test_executor.py", "cancelled_attempt_is_released_or_timed_out"),
    ),
    Mutant(
        "a handler that failed saves its fields",
        EXECUTOR,
        "if outcome.failure is not None:\n        return outcome",
        "if False:\n        return outcome",
        tests(
            "stator/db/test_records_saved_fields.py",
            "saved_fields_are_written_when_the_object_stays_but_not_after_an_error",
        ),
    ),
    Mutant(
        "a batch answers for others",
        EXECUTOR,
        "if strangers := sum(pk not in pks for pk, _ in results):",
        "if strangers := 0:",
        tests("stator/worker/test_executor_batches.py", "result_for_an_object_outside_the_batch_is_an_error"),
    ),
    Mutant(
        "a record in doubt is not repeated as such",
        RECORDER,
        "unwritten.again = True\n",
        "unwritten.again = False\n",
        in_recorder("outage_keeps_outcomes_and_the_next_time_repeats_in_doubt"),
    ),
    Mutant(
        "recorded claims are held",
        RECORDER,
        "self.forget(map(id, batch.claims))\n        for claim, outcome",
        "for claim, outcome",
        in_recorder("what_came_in_is_written_in_batches_of_a_kind"),
    ),
    Mutant(
        "deferred outcomes are dropped",
        RECORDER,
        "asyncio.get_running_loop().call_later(DEFERRED_FOR, self._add, claim, outcome)",
        "pass",
        in_recorder("deferred_outcome_stays_held_and_is_written_later"),
    ),
    Mutant(
        "claims go on however far behind",
        RECORDER,
        "most = MAX_BATCHES * self._size",
        "most = 10**9",
        in_recorder("is_behind_while_several_batches_wait_or_are_being_written"),
    ),
    Mutant(
        "lost leases are not told of",
        ANNOUNCEMENTS,
        "if pks := [claim.pk for claim in written.lost if claim.ended_in_time is in_time]:",
        "if pks := []:",
        tests("stator/worker/test_announcements.py", "lease_that_ran_out_and_claim_that_somebody_ended_are_two_events"),
    ),
    Mutant(
        "nobody hears what cannot be recorded",
        RECORDER,
        "self._cut_off.add(operations.alias)",
        "pass",
        in_recorder("claims_that_cannot_be_recorded_are_told_by_database_until_they_can"),
    ),
    Mutant(
        "an outage drops the outcomes of others",
        RECORDER,
        "self._unwritten += self._batches()",
        "self._unwritten = self._batches()",
        in_recorder("what_came_in_during_an_outage_is_written_with_what_could_not_be"),
    ),
    Mutant(
        "a renewal leaves the worker's deadline",
        HEARTBEAT,
        "claim.deadline = sent + 0.8 * claim.lease",
        "pass",
        in_heartbeat("renewing_moves_the_deadline_of_the_worker"),
    ),
    Mutant(
        "an ended claim is not told of",
        HEARTBEAT,
        "        if ended:\n            self._ended(ended)",
        "        pass",
        in_heartbeat("ended_claims_are_reported_and_their_deadline_stays"),
    ),
    Mutant(
        "an ended claim has a new deadline",
        HEARTBEAT,
        "            else:\n                claim.deadline = sent + 0.8 * claim.lease",
        "            claim.deadline = sent + 0.8 * claim.lease",
        in_heartbeat("ended_claims_are_reported_and_their_deadline_stays"),
    ),
    Mutant(
        "what runs too long is renewed",
        HEARTBEAT,
        "runs_too_long = claim.started and now - claim.started > claim.max_runtime",
        "runs_too_long = False",
        in_heartbeat("attempt_past_its_time_is_renewed_no_more"),
    ),
    Mutant(
        "what lost its lease is renewed",
        HEARTBEAT,
        ' and claim.cancelled_for != "lease"',
        "",
        in_heartbeat("attempt_that_lost_its_lease_is_renewed_no_more"),
    ),
    Mutant(
        "claims are handed back without patience",
        HEARTBEAT,
        "if now - since < self._patience:",
        "if False:",
        in_heartbeat("nothing_is_handed_back_in_a_database_that_the_heartbeat_has_only_just_reached"),
    ),
    Mutant(
        "locked models come first",
        HEARTBEAT,
        "key=lambda group: group[0].locks.are_held",
        "key=lambda group: not group[0].locks.are_held",
        in_heartbeat("models_that_are_locked_come_last_and_keep_no_other_from_being_renewed"),
    ),
    Mutant(
        "what cannot be recorded is hoarded",
        HEARTBEAT,
        "operations.record([(claim, UNRECORDED) for claim in some])",
        "pass",
        in_heartbeat("what_cannot_be_recorded_is_handed_back_once_patience_is_over"),
    ),
    Mutant(
        "the heart beats too seldom",
        HEARTBEAT,
        "lease / 12 for lease",
        "lease * 12 for lease",
        in_heartbeat("beats_come_several_times_before_a_third_of_the_shortest_lease"),
    ),
    Mutant(
        "leases are renewed too late",
        HEARTBEAT,
        "now - renewed > claim.heartbeat and",
        "now - renewed > claim.heartbeat * 9 and",
        in_heartbeat("lease_is_renewed_once_a_third_of_it_is_over"),
    ),
    Mutant(
        "a claim whose answer was lost is forgotten",
        DISPATCHER,
        "self.doubtful.append((operations, token))",
        "pass",
        in_dispatcher("claim_whose_answer_was_lost_is_handed_back_later"),
    ),
    Mutant(
        "a worker that stops claims",
        DISPATCHER,
        "if not self.stopped:",
        "if True:",
        in_dispatcher("nothing_is_claimed_once_it_is_stopped_but_doubts_are_settled"),
    ),
    Mutant(
        "it is claimed though outcomes wait",
        DISPATCHER,
        " and not self._recorder.is_behind(lane.operations):",
        ":",
        in_dispatcher("nothing_is_claimed_while_too_many_outcomes_wait_to_be_written"),
    ),
    Mutant(
        "it is claimed without a connection to record",
        DISPATCHER,
        "alias not in outages and self._ready(alias)",
        "alias not in outages",
        in_dispatcher("nothing_is_claimed_before_it_could_be_recorded_and_renewed"),
    ),
    Mutant(
        "an object is claimed before a process waits for it",
        ALONE,
        "return bool(self._idle)",
        "return True",
        tests("stator/worker/test_crash_isolation.py", "object_is_claimed_once_a_process_waits_for_it"),
    ),
    Mutant(
        "a process whose worker is gone hands nothing back",
        "stator/worker/isolated/attempts.py",
        "await attempt.hand_back()",
        "pass",
        tests("faults/test_alone.py", "it_is_handed_back_when_its_worker_is_killed"),
    ),
    Mutant(
        "any number of rows that lost a lease run here",
        DISPATCHER,
        "min(self._room_of(lane), self._most_crashed - len(self._crashed))",
        "self._room_of(lane)",
        in_dispatcher("one_process_holds_few_rows_that_lost_a_lease_at_a_time"),
    ),
    Mutant(
        "a lane stays first in the line",
        DISPATCHER,
        "        _send_to_end(self._line, lane)\n",
        "",
        in_dispatcher("models_take_turns_at_being_first"),
    ),
    Mutant(
        "a worker is idle while a claim is on its way",
        DISPATCHER,
        "return self._claiming or self.lanes.are_wanted",
        "return self.lanes.are_wanted",
        in_dispatcher("worker_is_not_idle_while_a_claim_is_on_its_way"),
    ),
    Mutant(
        "others run beside a suspect",
        DISPATCHER,
        "if not ((is_wanted or self._isolation.engaged) and self._isolation.needs_room(is_wanted)):",
        "if True:",
        in_dispatcher("nothing_else_is_claimed_while_a_suspect_needs_the_room"),
    ),
    Mutant(
        "rows that lost a lease are forgotten after an error",
        DISPATCHER,
        "            lane.crashed = True\n            raise",
        "            raise",
        in_dispatcher("claim_of_rows_that_lost_a_lease_which_fails_is_made_again"),
    ),
    Mutant(
        "a model claims for ever first",
        "stator/worker/lanes.py",
        "max(FEW, self.batch) * 2**doublings",
        "10**6",
        in_dispatcher("burst_leaves_another_model_its_turn_after_a_few_rows"),
    ),
    Mutant(
        "leases that ran out are not looked for",
        SCHEDULER,
        "reaped = found.expired and self._may_reap(operations)",
        "reaped = False",
        tests("stator/test_runner.py", "TestWorker::leases_that_ran_out_are_found_and_the_rows_attempted_alone"),
    ),
    Mutant(
        "an idle worker looks as often as a busy one",
        SCHEDULER,
        "min(self._settings.POLL_INTERVAL, 2 * self._delay)",
        "self._delay",
        tests("stator/worker/test_scheduler.py", "pauses_of_an_idle_worker_double_up_to_the_poll_interval"),
    ),
    Mutant(
        "what is old stays",
        SCHEDULER,
        "(first or self._passes_in[place] % PRUNE.every == 0)",
        "first",
        tests("stator/worker/test_scheduler.py", "what_is_old_is_pruned_at_the_first_pass_and_then_at_each_so_many"),
    ),
    Mutant(
        "a signal counts twice",
        ENDING,
        "wanted = self._heeded + 1 if counted is None else max(1, counted)",
        "wanted = self._heeded + 1",
        tests("stator/worker/test_shutdown.py"),
    ),
    Mutant("shutdown hands nothing back", WORKER, "        self.attempts.hand_back()\n", "", STOPS),
    Mutant("shutdown does not wait for a claim", WORKER, "        await self._finish(loops[0], deadline)\n", "", STOPS),
    Mutant("shutdown releases nothing that runs", WORKER, "        self.attempts.release_all()\n", "", STOPS),
    Mutant(
        "shutdown does not wait for the records",
        WORKER,
        "not self.recorder.held or records.done(), max(",
        "True or records.done(), max(",
        STOPS,
    ),
    Mutant(
        "a second signal is as the first",
        WORKER,
        'self._forced = self._forced or self._why == why == "stopped"',
        "self._forced = False",
        STOPS,
    ),
    Mutant(
        "what waits to be recorded is not renewed",
        WORKER,
        "parts = (self.attempts.running, self.isolation.running, self.recorder.held)",
        "parts = (self.attempts.running, self.isolation.running)",
        STOPS,
    ),
    Mutant(
        "any number of processes for suspects",
        ALONE,
        "if len(self.running) >= AT_ONCE:",
        "if False:",
        tests("stator/worker/test_crash_isolation.py"),
    ),
    Mutant(
        "a process outlives its claim",
        ALONE,
        "            process.kill()\n        self._end(claim, outcome)",
        "            pass\n        self._end(claim, outcome)",
        tests("stator/worker/test_crash_isolation.py", "attempt_is_ended_before_its_row_is_handed_to_others"),
    ),
    Mutant(
        "a process that died released its row",
        ALONE,
        "            self._on_answer(claim, {})",
        "            self._record(claim, Released())",
        tests("stator/worker/test_crash_isolation.py", "of_an_object_that_ended_its_process_nothing_is_recorded"),
    ),
    Mutant(
        "a suspect keeps others waiting",
        ALONE,
        "if now - self._since < PATIENCE:",
        "if True:",
        tests("stator/worker/test_crash_isolation.py", "others_never_wait_longer_than_they_go_on_before_and_after"),
    ),
    Mutant(
        "rows that lost leases are claimed with others",
        "stator/rows/claimable.py",
        "return Q(state_crashes=0)",
        "return Q()",
        of_claims("rows_are_claimed_apart_by_the_leases_that_they_lost"),
    ),
]
