"""Exploration of graphs for ``check_graph``: checks of the whole graph, then random walks. Needs Hypothesis."""

from stator.testing_graph.certain import WalkPlan, check_backoff, check_reached, check_rest, entries_of, shortest_paths
from stator.testing_graph.walks import run_walks

__all__ = ["WalkPlan", "entries_of", "explore"]


def explore(plan: WalkPlan, max_examples: int, max_steps: int) -> None:
    """Check all states, then run random walks; raise ``AssertionError`` for the first fault."""
    paths = shortest_paths(plan.graph, plan.entries)
    check_reached(plan, paths)
    check_rest(plan.graph, paths)
    for state in plan.graph.states.values():
        if state.automatic:
            plan.errors[state.name] = check_backoff(state, paths[state.name])
    run_walks(plan, max_examples, max_steps)
