"""What the evidence cannot decide: questions about a column, each with its figures, for a person."""

from collections.abc import Iterator

from stator.extensions.adopt.histories import HistoryLook
from stator.extensions.adopt.proposal import Proposal, Proposed
from stator.extensions.adopt.sources import CodeLook
from stator.extensions.adopt.table import TableLook
from stator.extensions.adopt.target import Target
from stator.graph.durations import span
from stator.graph.options import STATE_NAME_LENGTH
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.texts import listed


def decisions(
    target: Target, table: TableLook, code: CodeLook, histories: list[HistoryLook], proposal: Proposal, idle: float
) -> list[str]:
    """Return what a person has to decide, the most urgent first."""
    return [
        *_stuck(table, proposal, idle),
        *_values(target, table, proposal),
        *_moves(code, histories, proposal),
        *_columns(target, table),
        *_workers(proposal),
    ]


def _stuck(table: TableLook, proposal: Proposal, idle: float) -> Iterator[str]:
    for state in proposal.states:
        count = state.count
        if state.final or count is None or not count.unmoved or count.oldest is None:
            continue
        many = f"{count.unmoved:,}{'+' * count.cut} in {state.name}, {100 * count.unmoved // count.rows} % of its rows,"
        yield (
            f"{many} have not moved for {span(idle)}, the oldest for {span(count.oldest)}. Are they stuck? What "
            "moves them on, and after which time is it to give up (times_out_to)?"
        )
    if table.clock is None:
        yield "No column has a time, so nobody can see what is stuck. Stator adds state_changed, which begins now."


def _values(target: Target, table: TableLook, proposal: Proposal) -> Iterator[str]:
    if nulls := [each for each in table.values if each.value is None]:
        yield f"{nulls[0].shown} with NULL: do they begin in {proposal.initial}, or stay outside (null=True)?"
    undeclared = [state for state in proposal.states if state.value in proposal.undeclared]
    for state in undeclared:
        yield f"{state.value!r} is not in choices; {_holders(state, proposal)}. Is it a state, or a mistake?"
    unused = [state.name for state in proposal.states if state.count is None and state not in undeclared]
    if unused and table.whole:
        yield f"No row is in {listed(unused)}. Still used?"
    lengthy = [
        state.name for state in proposal.states if isinstance(state.value, str) and len(state.value) > STATE_NAME_LENGTH
    ]
    if lengthy:
        yield f"The values of {listed(lengthy)} have more than {STATE_NAME_LENGTH} characters. Shorten them first."


def _holders(state: Proposed, proposal: Proposal) -> str:
    """Return who has a value, and which other one is spelled nearly so."""
    rows = f"{state.count.shown} with it" if state.count else "no row has it, but code or a history does"
    alike = [
        each.value
        for each in proposal.states
        if each is not state and str(each.value).strip().lower() == str(state.value).strip().lower()
    ]
    return rows + "".join(f", and it is nearly {value!r}" for value in alike)


def _moves(code: CodeLook, histories: list[HistoryLook], proposal: Proposal) -> Iterator[str]:
    if proposal.loose:
        places = listed((write.where for write in proposal.loose), 4)
        yield f"From which states may these write? The code does not show it: {places}."
    if unsure := [write.where for write in code.writes if not write.sure]:
        yield f"Do these write this column, or another one of that name: {listed(unsure, 4)}?"
    unseen = [each for each in proposal.transitions if each.assumed and not each.asked]
    if assumed := [f"{each.source} to {each.target}" for each in unseen]:
        yield f"Nothing shows how rows get there; these transitions are assumed: {listed(assumed)}."
    by_code = {(each.source, each.target) for each in proposal.transitions if each.places}
    if code.writes and any(look.moves for look in histories):
        only = [each for each in proposal.transitions if each.recorded and (each.source, each.target) not in by_code]
        if only:
            names = listed(f"{each.source} to {each.target}" for each in only)
            yield f"Recorded, but not seen in the code: {names}. Who makes these moves: people, or another program?"
    if by_sql := [write.where for write in code.writes if write.how == "SQL"]:
        yield f"SQL writes the column at {listed(by_sql, 4)}. It passes by Stator; see the how-to guide on raw SQL."


def _columns(target: Target, table: TableLook) -> Iterator[str]:
    own = {field.column for field in target.model._meta.concrete_fields} - {target.column}
    if taken := [name for name in FRAMEWORK_COLUMNS if name in own]:
        yield f"The table has {listed(taken)}, which are names of Stator's own columns. Rename them first."


def _workers(proposal: Proposal) -> Iterator[str]:
    for state in proposal.states:
        if not state.final and state.takers:
            yield (
                f"Shall workers move what is in {state.name}? Then handle_{state.name} does what is done at "
                f"{listed(state.takers, 3)}."
            )
    if final := [state.name for state in proposal.states if state.final and state.count]:
        yield f"Nothing leaves {listed(final)}. Are they final? If their rows may go after a time: delete_after."


def is_stuck(state: Proposed) -> bool:
    """Return whether rows of a state that rows leave have not moved for the given time."""
    return not state.final and state.count is not None and bool(state.count.unmoved)
