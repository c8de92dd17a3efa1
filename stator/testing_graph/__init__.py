"""Exploration of graphs: checks of the whole graph first, then random walks. Needs Hypothesis."""

from stator.testing_graph.certain import Plan, check_backoff, check_reached, check_rest, entries_of, shortest_ways
from stator.testing_graph.walks import walk_about

__all__ = ["Plan", "entries_of", "explore"]


def explore(plan: Plan, max_examples: int, max_steps: int) -> None:
    """Check all states, then walk; raise ``AssertionError`` with one message for the first fault."""
    ways = shortest_ways(plan.graph, plan.entries)
    check_reached(plan, ways)
    check_rest(plan.graph, ways)
    for state in plan.graph.states.values():
        if state.automatic:
            plan.errors[state.name] = check_backoff(state, ways[state.name])
    walk_about(plan, max_examples, max_steps)
