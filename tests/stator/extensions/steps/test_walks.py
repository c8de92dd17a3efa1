"""check_graph makes steps as workers do."""

from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from stator.graph import State, StateGraph
from stator.testing import check_graph
from tests.stator.test_testing_graph import problem


class Charged(StateGraph):
    new = State(try_interval=60)
    sent = State(try_interval=60)
    done = State()
    new.transitions_to(sent)
    sent.transitions_to(done)

    @classmethod
    def handle_new(cls, instance: Any) -> Any:
        instance.stator.progress(1, 2, "charging")
        receipt = instance.stator.step("charge", lambda: instance.charge(instance.stator.idempotency_key))
        return cls.sent if receipt[0] > 1 else None

    @classmethod
    async def handle_sent(cls, instance: Any) -> Any:
        async def mail() -> None:
            instance.charge("mail")

        await instance.stator.astep("mail", mail)
        await instance.stator.astep(instance.second, mail)
        return cls.done


def test_each_step_is_called_once_in_a_visit_and_its_result_is_what_json_has() -> None:
    all_keys, attempts = [], []

    def charged(number: int) -> Any:
        keys: list[str] = []
        all_keys.append(keys)
        return SimpleNamespace(charge=lambda key: keys.append(key) or (number, "paid"), second="print")

    class Counted(Charged):
        @classmethod
        def handle_new(cls, instance: Any) -> Any:
            attempts.append(instance)
            return super().handle_new(instance)

    check_graph(Counted, objects=st.builds(charged, st.integers(0, 3)), max_examples=20)
    charges = [[key for key in keys if key.endswith(":new:charge")] for keys in all_keys]
    assert all(len(keys) == len(set(keys)) for keys in charges)
    # Objects were attempted again in the same visit.
    assert 0 < sum(map(len, charges)) < len(attempts)


def test_breach_of_their_rules_is_found() -> None:
    twice = SimpleNamespace(charge=lambda key: (2, "paid"), second="mail")
    message = problem(Charged, objects=st.builds(lambda: twice))
    assert "Charged.sent: the handler raised StepRefused: SimpleNamespace None: step 'mail' is used twice" in message
    opaque = SimpleNamespace(charge=lambda key: object(), second="print")
    assert "returned what JSON cannot express" in problem(Charged, objects=st.builds(lambda: opaque))
