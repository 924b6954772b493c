"""Routing: budgets, stickiness, fairness; against invariants and against a slow rewriting of the rule."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre.backends.engines.routing import Routing, Ticket


def placed(routing: Routing) -> list[tuple[int, str]]:
    return [(ticket.arrival, engine) for ticket, engine in routing.place()]


def routing_of(**budgets: int) -> Routing:
    routing = Routing()
    for name, budget in budgets.items():
        routing.join(name, budget, 100)
    return routing


def test_an_execution_goes_back_to_its_engine_though_others_are_emptier() -> None:
    routing = routing_of(a=1000, b=1000, c=1000)
    routing.ask(Ticket(0, "x", 100, 10))
    [(_, home)] = placed(routing)
    for arrival in range(1, 5):
        routing.ask(Ticket(arrival, "x", 100, 10))
    assert {engine for _, engine in placed(routing)} == {home}


def test_an_execution_leaves_a_full_engine_and_stays_where_it_went() -> None:
    routing = routing_of(a=1000, b=1000)
    first = Ticket(0, "x", 600, 0)
    routing.ask(first)
    [(_, home)] = placed(routing)
    routing.ask(Ticket(1, "x", 600, 0))
    [(_, second)] = placed(routing)
    assert second != home
    routing.release(home, first)
    routing.ask(Ticket(2, "x", 300, 0))
    assert placed(routing) == [(2, second)]


def test_load_is_relative_to_capacity() -> None:
    routing = routing_of(small=1000, large=4000)
    for arrival in range(50):
        routing.ask(Ticket(arrival, f"x{arrival}", 100, 0))
    on = [engine for _, engine in placed(routing)]
    assert on.count("small") == 10
    assert on.count("large") == 40


def test_equals_are_not_all_given_to_the_first() -> None:
    chosen = set()
    for execution in range(40):
        routing = routing_of(a=1000, b=1000, c=1000)
        routing.ask(Ticket(0, f"x{execution}", 10, 10))
        chosen |= {engine for _, engine in placed(routing)}
    assert chosen == {"a", "b", "c"}


def test_a_request_larger_than_any_engine_runs_alone() -> None:
    routing = routing_of(a=1000)
    large, small = Ticket(0, "x", 5000, 10), Ticket(1, "y", 10, 0)
    routing.ask(large)
    routing.ask(small)
    assert placed(routing) == [(0, "a")]
    routing.release("a", large)
    assert placed(routing) == [(1, "a")]


def test_a_request_that_waits_holds_up_those_behind_it() -> None:
    routing = routing_of(a=1000)
    running = Ticket(0, "x", 500, 0)
    routing.ask(running)
    assert placed(routing) == [(0, "a")]
    routing.ask(Ticket(1, "y", 900, 0))
    routing.ask(Ticket(2, "z", 10, 0))
    assert placed(routing) == []
    routing.release("a", running)
    assert placed(routing) == [(1, "a"), (2, "a")]


def test_one_that_comes_back_keeps_its_place() -> None:
    routing = routing_of(a=100)
    routing.shut("a")
    for arrival in (3, 5, 1):
        routing.ask(Ticket(arrival, f"x{arrival}", 10, 0))
    routing.open("a")
    assert [arrival for arrival, _ in placed(routing)] == [1, 3, 5]


def test_output_is_reserved_up_to_a_bound() -> None:
    assert Ticket(0, "x", 10_000, 128_000).reserve(1_000_000) == 10_000 + 4096
    assert Ticket(0, "x", 10_000, 100).reserve(1_000_000) == 10_100
    assert Ticket(0, "x", 10_000, 100).reserve(5_000) == 5_000


def test_what_ran_where_an_engine_was_is_forgotten_with_it() -> None:
    routing = routing_of(a=1000)
    old = Ticket(0, "x", 900, 0)
    routing.ask(old)
    placed(routing)
    routing.leave("a")
    routing.join("a", 1000, 10)
    routing.ask(Ticket(1, "y", 900, 0))
    assert placed(routing) == [(1, "a")]
    routing.release("a", old)
    assert routing.reserved("a") == 900


def test_limits_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="runs nothing"):
        Routing().join("a", 0, 1)


@dataclass
class Model:
    """The rule, written again without any of its data structures: every question is answered from the whole history."""

    engines: dict[str, tuple[int, int, bool]] = field(default_factory=dict)  # budget, most running, open
    queue: list[Ticket] = field(default_factory=list)
    running: list[tuple[Ticket, str]] = field(default_factory=list)
    homes: dict[str, str] = field(default_factory=dict)

    def reserved(self, name: str) -> int:
        return sum(ticket.reserve(self.engines[name][0]) for ticket, on in self.running if on == name)

    def room(self, ticket: Ticket) -> set[str]:
        return {
            name
            for name, (budget, most, is_open) in self.engines.items()
            if is_open
            and self.reserved(name) + ticket.reserve(budget) <= budget
            and sum(on == name for _, on in self.running) < most
        }

    def allowed(self, ticket: Ticket) -> set[str]:
        room = self.room(ticket)
        if self.homes.get(ticket.execution) in room:
            return {self.homes[ticket.execution]}
        loads = {name: self.reserved(name) / self.engines[name][0] for name in room}
        return {name for name in room if loads[name] == min(loads.values())}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "release", "withdraw", "join", "leave", "shut", "open"]),
        st.integers(0, 3),
        st.integers(1, 900),
        st.integers(0, 300),
    ),
    max_size=60,
)


@given(STEPS)
def test_any_course_of_events_follows_the_rule(steps: list[tuple[str, int, int, int]]) -> None:
    routing, model = Routing(), Model()
    for arrival, (what, which, size, more) in enumerate(steps):
        name = f"e{which}"
        if what == "ask":
            ticket = Ticket(arrival, f"x{which}", size, more)
            routing.ask(ticket)
            model.queue.append(ticket)
        elif what == "release" and model.running:
            ticket, on = model.running.pop(size % len(model.running))
            routing.release(on, ticket)
        elif what == "withdraw" and model.queue:
            routing.withdraw(model.queue.pop(size % len(model.queue)))
        elif what == "join" and name not in model.engines:
            routing.join(name, size + 100, 1 + more % 5)
            model.engines[name] = (size + 100, 1 + more % 5, True)
        elif what == "leave" and name in model.engines:
            routing.leave(name)
            del model.engines[name]
            model.running = [(ticket, on) for ticket, on in model.running if on != name]
        elif what in ("shut", "open") and name in model.engines:
            (routing.open if what == "open" else routing.shut)(name)
            model.engines[name] = (*model.engines[name][:2], what == "open")
        for ticket, engine in routing.place():
            assert ticket is model.queue.pop(0)  # strictly by arrival
            assert engine in model.allowed(ticket)
            model.running.append((ticket, engine))
            model.homes[ticket.execution] = engine
        # None waits that has room, none has more than its budget, nothing is lost.
        assert not model.queue or not model.room(model.queue[0])
        assert routing.queued() == len(model.queue)
        for engine, (budget, most, _) in model.engines.items():
            assert routing.reserved(engine) == model.reserved(engine) <= budget
            assert routing.running(engine) <= most


@given(st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 500)), min_size=1, max_size=40))
def test_every_request_is_served_in_the_end_and_in_order(sizes: list[tuple[int, int]]) -> None:
    routing = routing_of(a=1000, b=700)
    for arrival, (size, more) in enumerate(sizes):
        routing.ask(Ticket(arrival, f"x{arrival % 3}", size, more))
    served: list[int] = []
    running: list[tuple[Ticket, str]] = []
    while routing.queued() or running:
        now = list(routing.place())
        served += [ticket.arrival for ticket, _ in now]
        running += now
        ticket, engine = running.pop(0)
        routing.release(engine, ticket)
    assert served == list(range(len(sizes)))
    assert routing.reserved("a") == routing.reserved("b") == 0
