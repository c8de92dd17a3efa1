"""A graph with edges of every kind."""

from stator.graph.graphs import State, StateGraph


class Parcel(StateGraph):
    packed = State(try_interval=60)
    sent = State(try_interval=60)
    lost = State(externally_progressed=True)
    arrived = State()
    returned = State()

    packed.transitions_to(sent)
    sent.transitions_to(arrived, lost)
    sent.times_out_to(lost, seconds=86400)
    sent.fails_to(returned)
    lost.times_out_to(returned, 3600)

    @classmethod
    def handle_packed(cls, instance):
        return cls.sent

    @classmethod
    async def handle_sent(cls, instance):
        return cls.arrived
