"""What the proxy decides without sockets: who may call, how often, how far, and which request repeats which call."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

for package in ("orjson", "starlette", "transformers"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from gyre.backends.proxy.call import Call, digest_in, new_call_id  # noqa: E402
from gyre.backends.proxy.call_state import MOVES, CallState, moved  # noqa: E402
from gyre.backends.proxy.conversation import Message, Request, Speaker  # noqa: E402
from gyre.backends.proxy.execution import Execution, ExecutionInfo, opened  # noqa: E402
from gyre.backends.proxy.executions import Executions  # noqa: E402
from gyre.backends.proxy.keys import KeyTable, new_key  # noqa: E402
from gyre.backends.proxy.labels import CallLabels  # noqa: E402
from gyre.backends.proxy.limits import BOUNDS, Bounds, Limits  # noqa: E402
from gyre.backends.proxy.paths import Ask, route  # noqa: E402
from gyre.backends.proxy.reply import End, Failure, Usage  # noqa: E402
from gyre.backends.proxy.request_digest import request_digest  # noqa: E402
from gyre.backends.proxy.retries import Retries  # noqa: E402
from gyre.backends.proxy.token_bucket import TokenBucket  # noqa: E402
from gyre.errors import InputError  # noqa: E402
from gyre.role import Role  # noqa: E402
from gyre.trajectory.call import Finish  # noqa: E402

REQUEST = Request((Message(Speaker.USER, "hi"),))


@given(
    st.floats(0.1, 100),
    st.integers(1, 50),
    st.lists(st.floats(0, 3), min_size=1, max_size=200),
)
def test_a_bucket_never_lets_more_through_than_burst_and_rate(rate: float, burst: int, gaps: list[float]) -> None:
    bucket = TokenBucket(rate, burst)
    now_s, passed = 100.0, []
    for gap in gaps:
        now_s += gap
        if bucket.take(now_s):
            passed.append(now_s)
    for first, start in enumerate(passed):
        for last in range(first, len(passed)):
            assert last - first + 1 <= burst + (passed[last] - start) * rate + 1e-6


def test_a_bucket_lets_a_steady_rate_through() -> None:
    bucket = TokenBucket(2.0, 1)
    assert all(bucket.take(number * 0.5) for number in range(100))


@given(st.dictionaries(st.text(min_size=1), st.sampled_from("abcdef"), min_size=1), st.text())
def test_keys_belong_to_their_owners_only(owners: dict[str, str], stranger: str) -> None:
    table = KeyTable()
    for key, owner in owners.items():
        table.add(key, owner)
    assert all(table.owner(key) == owner for key, owner in owners.items())
    assert table.owner(stranger) == owners.get(stranger)
    gone = next(iter(owners.values()))
    table.drop(gone)
    assert all(table.owner(key) == (None if owner == gone else owner) for key, owner in owners.items())


def test_keys_are_long_and_new_each_time() -> None:
    assert len({new_key() for _ in range(100)}) == 100
    assert len(new_key()) > 32


def test_every_state_is_reached_and_ends_are_ends() -> None:
    reached = {CallState.RECEIVED}
    while more := {to for state in reached for to in MOVES[state]} - reached:
        reached |= more
    assert reached == set(CallState)
    with pytest.raises(ValueError, match="cannot go from delivered"):
        moved(CallState.DELIVERED, CallState.STREAMING)


def test_a_reply_is_recorded_before_it_is_delivered() -> None:
    def paths(state: CallState, before: tuple[CallState, ...] = ()) -> Iterable[tuple[CallState, ...]]:
        yield (*before, state)
        for to in MOVES[state]:
            yield from paths(to, (*before, state))

    for path in paths(CallState.RECEIVED):
        if CallState.DELIVERED in path and CallState.ABORTED not in path:
            assert path.index(CallState.RECORDED) < path.index(CallState.DELIVERED)


def executions(*names: str, bounds: Bounds = BOUNDS) -> Executions:
    made = Executions(bounds)
    for name in names:
        made.open(ExecutionInfo(name), f"key-of-{name}", 0.0)
    return made


@pytest.mark.parametrize(
    ("key", "named", "expected"),
    [
        ("key-of-one", None, "one"),
        ("key-of-one", "one", "one"),
        ("key-of-one", "two", "forbidden"),
        ("key-of-one", "none", "forbidden"),
        ("wrong", "one", "unauthorized"),
        ("", "one", "unauthorized"),
        ("key-of-ended", None, "ended"),
        ("key-of-ended", "ended", "ended"),
        ("key-of-ended", "one", "forbidden"),
    ],
)
def test_who_calls(key: str, named: str | None, expected: str) -> None:
    made = executions("one", "two", "ended")
    made.shut("ended", 0.0)
    made.end("ended")
    found = made.identify(key, named)
    assert (found.kind if isinstance(found, Failure) else found.id) == expected


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "x" * 129, "a b", "ü", "a\n"])
def test_names_that_fit_into_no_url_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="letters, digits"):
        executions(name)


def test_what_cannot_be_opened_or_ended() -> None:
    made = executions("one")
    with pytest.raises(InputError, match="open already"):
        made.open(ExecutionInfo("one"), "other", 0.0)
    with pytest.raises(InputError, match="another execution has this key"):
        made.open(ExecutionInfo("two"), "key-of-one", 0.0)
    with pytest.raises(InputError, match="must not be empty"):
        made.open(ExecutionInfo("two"), "", 0.0)
    for key in ("two words", "\u00fc", "a\n", "a\x7f"):
        with pytest.raises(InputError, match="printable ASCII"):
            made.open(ExecutionInfo("two"), key, 0.0)
    made.shut("one", 0.0)
    made.end("one")
    with pytest.raises(InputError, match="not open"):
        made.shut("one", 0.0)
    with pytest.raises(InputError, match="has ended"):
        made.open(ExecutionInfo("one"), "new", 0.0)


def test_limits_stay_met() -> None:
    def fresh(limits: Limits) -> Execution:
        return opened(ExecutionInfo("x", limits=limits), BOUNDS, 100.0)

    steps = fresh(Limits(steps=2))
    steps.use(10, None)
    steps.use(10, Role.SIDE)  # a title is no step
    assert steps.limit_met(0.0) == ""
    steps.use(10, Role.SUB_AGENT)
    assert "2 steps" in steps.limit_met(0.0)
    given_up = fresh(Limits(steps=1))
    given_up.use(10, None, delivered=False)
    assert (given_up.limit_met(0.0), given_up.tokens) == ("", 10)
    tokens = fresh(Limits(tokens=100))
    tokens.use(60, None)
    assert (tokens.limit_met(0.0), tokens.tokens_left(30), tokens.tokens_left(50)) == ("", 10, 1)
    tokens.use(40, None)
    assert "100 tokens" in tokens.limit_met(0.0)
    seconds = fresh(Limits(seconds=5.0))
    assert (seconds.limit_met(104.9), seconds.seconds_left(104.0)) == ("", 1.0)
    assert "5 seconds" in seconds.limit_met(105.0)
    assert "5 seconds" in seconds.limit_met(0.0)
    assert fresh(Limits()).tokens_left(1) is None


@pytest.mark.parametrize(
    ("method", "path", "ask", "wire", "execution"),
    [
        ("POST", "/v1/chat/completions", Ask.REPLY, "chat", None),
        ("POST", "/x/run-1/v1/chat/completions", Ask.REPLY, "chat", "run-1"),
        ("POST", "/x/run-1/chat/completions", Ask.REPLY, "chat", "run-1"),
        ("POST", "/x/run-1/v1/messages", Ask.REPLY, "messages", "run-1"),
        ("POST", "/v1/messages/count_tokens", Ask.COUNT, "messages", None),
        ("POST", "/x/run-1/v1/responses", Ask.REPLY, "responses", "run-1"),
        ("GET", "/x/run-1/v1/models", Ask.MODELS, "chat", "run-1"),
        ("GET", "/v1/models/some/name", Ask.MODELS, "chat", None),
        ("HEAD", "/x/run-1", Ask.HELLO, "chat", "run-1"),
        ("HEAD", "/", Ask.HELLO, "chat", None),
        ("GET", "/x/run-1/api/hello", Ask.HELLO, "chat", "run-1"),
        ("GET", "/v1/messages", Ask.WRONG_METHOD, "messages", None),
        ("POST", "/v1/embeddings", Ask.UNKNOWN, "chat", None),
        ("GET", "/x//v1/models", Ask.MODELS, "chat", None),
    ],
)
def test_paths(method: str, path: str, ask: Ask, wire: str, execution: str | None) -> None:
    found = route(method, path)
    assert (found.ask, found.wire.name, found.execution) == (ask, wire, execution)


def test_upgrades_are_seen() -> None:
    assert route("GET", "/x/a/v1/responses", upgrade=True).ask is Ask.UPGRADE


def test_what_makes_two_requests_the_same() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    first = request_digest("chat", body, b"", REQUEST)
    assert first == request_digest("chat", {**body, "stream": True, "stream_options": {}}, b"other", REQUEST)
    assert first == request_digest("chat", dict(reversed(body.items())), b"", REQUEST)  # codex's retries
    assert first != request_digest("messages", body, b"", REQUEST)
    assert first != request_digest("chat", {**body, "temperature": 1}, b"", REQUEST)
    agent = Request(REQUEST.messages, labels={"agent": "a"})
    assert first != request_digest("chat", body, b"", agent)  # two sub-agents may be asked the same
    assert digest_in(new_call_id(first)) == first
    assert digest_in("x") == digest_in("a-b") == ""
    deep: object = 1
    for _ in range(500):
        deep = [deep]
    assert len(request_digest("chat", {"deep": deep}, b"raw", REQUEST)) == len(first)


def call(digest: str, execution: str = "x") -> Call:
    one = opened(ExecutionInfo(execution), BOUNDS, 0.0)
    return Call(new_call_id(digest), digest, one, "chat", REQUEST, CallLabels(), 0.0)


def finish(made: Call) -> None:
    for state in (CallState.RENDERED, CallState.QUEUED, CallState.STREAMING):
        made.move(state)
    made.finish(End(Finish.STOP, Usage(1, 0, 1)))


def test_retries_join_running_calls_and_replay_finished_ones_for_a_while() -> None:
    retries, one = Retries(replay_s=60.0, most_replays=2), call("d")
    retries.add(one)
    assert retries.find("x", "d", 0.0) is one
    assert retries.find("y", "d", 0.0) is None
    assert retries.find("x", "e", 0.0) is None
    finish(one)
    retries.finished(one, 100.0)
    assert retries.find("x", "d", 159.0) is one
    assert retries.find("x", "d", 159.0) is one
    assert retries.find("x", "d", 159.0) is None  # it wants another answer
    again = call("d")
    retries.add(again)
    assert retries.find("x", "d", 500.0) is again  # one that runs has no age
    finish(again)
    retries.finished(again, 500.0)
    assert retries.find("x", "d", 560.0) is None


def test_failed_calls_are_made_anew() -> None:
    retries, one = Retries(60.0, 3), call("d")
    retries.add(one)
    one.fail(Failure("internal", "broken"))
    assert retries.find("x", "d", 0.0) is None
    retries.forget(one)
    two = call("d")
    retries.add(two)
    retries.forget(one)  # late news of the first does not touch the second
    assert retries.find("x", "d", 0.0) is two
    retries.forget_execution("x")
    assert retries.find("x", "d", 0.0) is None


def test_calls_beyond_the_bounds_are_told_to_wait() -> None:
    made = executions("one", bounds=Bounds(calls_per_s=1.0, calls_burst=3, calls_at_once=2, calls_in_all=10))
    one = made.get("one")
    assert one is not None

    def told(now_s: float, running: int) -> tuple[str, float | None] | None:
        failure = made.admit(one, now_s, running)
        return None if failure is None else (failure.kind, failure.retry_after_s)

    assert told(100.0, 9) is None
    assert told(100.0, 10) == ("rate_limited", 20.0)  # all executions together
    one.running = 2
    assert told(100.0, 2) == ("rate_limited", 20.0)  # this one at once
    one.running = 0
    assert told(100.0, 0) == ("rate_limited", 20.0)  # too often
    assert told(101.0, 0) is None
