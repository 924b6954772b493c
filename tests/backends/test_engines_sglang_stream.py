"""SGLang's stream, read from bytes: both of its ways to stream, torn anywhere, damaged in any way."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre.backends.engines.engine import Chunk, EngineLostError, RequestRefusedError
from gyre.backends.engines.sglang_stream import EventLines, ReplyReader
from gyre.trajectory.call import Finish

# Of SGLang 0.5.23, started with --incremental-streaming-output, word for word.
RECORDED = (
    '{"text":"","output_ids":[172],"meta_info":{"id":"a","finish_reason":null,"prompt_tokens":3,"weight_version":"v0",'
    '"num_retractions":0,"input_token_logprobs":[],"output_token_logprobs":[[-7.677086353302002,172,null]],'
    '"output_token_logprobs_length":1,"reasoning_tokens":0,"completion_tokens":1,"cached_tokens":0,'
    '"cached_tokens_details":null,"dp_rank":null,"response_sent_to_client_ts":1795999694.4662051}}',
    '{"text":"\\ufffd!","output_ids":[429],"meta_info":{"id":"a","finish_reason":{"type":"length","length":4},'
    '"prompt_tokens":3,"weight_version":"v0","num_retractions":0,"input_token_logprobs":[],"output_token_logprobs":'
    '[[-6.918279647827148,429,null]],"output_token_logprobs_length":4,"reasoning_tokens":0,"completion_tokens":2,'
    '"cached_tokens":1,"weight_versions":[{"version":"v0","start":0,"end":4}],"cached_tokens_details":null,'
    '"dp_rank":null,"e2e_latency":0.0926587539997854}}',
)


def number(name: object) -> int:
    return int(str(name).removeprefix("v"))


def payloads(chunks: Sequence[int], *, cumulative: bool, spans: list[tuple[int, int]] | None = None) -> list[bytes]:
    """Events of a reply whose tokens are 1000, 1001, ... and come in chunks of these sizes. Its text is made to look
    like what the reader looks for."""
    total, events = 0, []
    for at, size in enumerate(chunks):
        before, total = (0 if cumulative else total), total + size
        last = at == len(chunks) - 1
        meta: dict[str, Any] = {
            "id": "r",
            "finish_reason": {"type": "stop", "matched": 7} if last else None,
            "weight_version": "v1",
            "input_token_logprobs": [],
            "output_token_logprobs": [[-place / 8, 1000 + place, None] for place in range(before, total)],
            "completion_tokens": total,
            "cached_tokens": 2,
        }
        if last and spans is not None:
            ends = [start for start, _ in spans[1:]] + [total]
            meta["weight_versions"] = [
                {"version": f"v{version}", "start": start, "end": end}
                for (start, version), end in zip(spans, ends, strict=True)
            ]
        text = '"meta_info":{"output_token_logprobs":[[ ]]' * (total // 4)
        event = {"text": text, "output_ids": list(range(1000 + before, 1000 + total)), "meta_info": meta}
        events.append(json.dumps(event, separators=(",", ":")).encode())
    return events


def read(events: Sequence[bytes]) -> list[Chunk]:
    reader = ReplyReader(number)
    return [reader.read(event) for event in events]


def test_recorded_events_are_read() -> None:
    first, last = read([event.encode() for event in RECORDED])
    assert first == Chunk((172,), (-7.677086353302002,), (0,))
    assert last == Chunk((429,), (-6.918279647827148,), (0,), Finish.LENGTH, cached_tokens=1)


@given(st.lists(st.integers(0, 120), min_size=1, max_size=40), st.booleans())
def test_both_ways_of_streaming_give_the_same_chunks(sizes: list[int], cumulative: bool) -> None:
    chunks = read(payloads(sizes, cumulative=cumulative))
    assert [len(chunk.token_ids) for chunk in chunks] == sizes
    assert [token for chunk in chunks for token in chunk.token_ids] == list(range(1000, 1000 + sum(sizes)))
    assert [value for chunk in chunks for value in chunk.logprobs] == [-place / 8 for place in range(sum(sizes))]
    assert [chunk.finish for chunk in chunks] == [None] * (len(sizes) - 1) + [Finish.STOP]
    assert all(chunk.versions == (1,) * len(chunk.token_ids) for chunk in chunks)


def test_of_a_long_repetition_only_the_end_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    import orjson

    parsed: list[int] = []
    loads = orjson.loads

    def counted(data: bytes) -> Any:
        parsed.append(len(data))
        return loads(data)

    monkeypatch.setattr("orjson.loads", counted)
    events = payloads([4] * 1000, cumulative=True)
    reader = ReplyReader(number)
    for event in events[:500]:
        reader.read(event)
    parsed.clear()
    for event in events[500:]:
        reader.read(event)
    assert max(parsed) < 1000 < len(events[500])


def test_versions_are_put_right_by_the_spans_of_the_last_event() -> None:
    [*_, said] = read(payloads([3, 3, 2], cumulative=False, spans=[(0, 1)]))
    assert said.exact_versions is None
    chunks = read(payloads([3, 3, 2], cumulative=False, spans=[(0, 0), (2, 1), (7, 2)]))
    assert [chunk.versions for chunk in chunks] == [(1, 1, 1), (1, 1, 1), (1, 2)]
    assert chunks[-1].exact_versions == (0, 0, 1, 1, 1, 1, 1, 2)


def test_an_abort_of_what_waited_adds_no_token() -> None:
    # SGLang repeats the last token in the event that tells of the abort; the count does not grow.
    first, last = payloads([2, 0], cumulative=False)
    event = json.loads(last)
    event["output_ids"] = [1001]
    event["meta_info"]["output_token_logprobs"] = json.loads(first)["meta_info"]["output_token_logprobs"]
    event["meta_info"]["finish_reason"] = {"type": "abort", "message": "Abort in waiting queue"}
    assert read([first, json.dumps(event).encode()])[1] == Chunk((), (), (), Finish.ABORT, cached_tokens=2)


@pytest.mark.parametrize(
    ("payload", "error", "words"),
    [
        (b'{"error":{"message":"too long","code":400}}', RequestRefusedError, "too long"),
        (b'{"error":{"message":"out of memory","code":500}}', EngineLostError, "out of memory"),
        (b'{"error":"no words"}', EngineLostError, "no words"),
        (b'{"text":"", "output_ids":[1', EngineLostError, "cannot be read"),
        (b'{"text":""}', EngineLostError, "cannot be read"),
        (b"[]", EngineLostError, "cannot be read"),
        (b'{"meta_info":{"completion_tokens":2,"output_token_logprobs":[[-1.0,5,null]]}}', EngineLostError, "1 log-p"),
        (b'{"meta_info":{"completion_tokens":1,"output_token_logprobs":[[null,5,null]]}}', EngineLostError, "cannot"),
        (
            b'{"meta_info":{"finish_reason":{"type":"abort","status_code":400,"message":"bad grammar"}}}',
            RequestRefusedError,
            "bad grammar",
        ),
    ],
)
def test_faults_are_told_apart(payload: bytes, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        ReplyReader(number).read(payload)


def bad(payload: bytes, most: int | None = None) -> EngineLostError:
    from gyre.backends.engines.sglang import SGLangEngine

    named = SGLangEngine._version_number  # the real one: it refuses what no record can hold
    with pytest.raises(EngineLostError) as lost:
        ReplyReader(lambda name: named(None, name), most).read(payload)  # type: ignore[arg-type]
    return lost.value


@pytest.mark.parametrize("token", ["-5", "2147483648", "1099511627776", "1.5", "true", '"secret"', "null"])
def test_what_is_no_token_id_is_a_lost_engine(token: str) -> None:
    meta = f'"completion_tokens":1,"weight_version":"v1","output_token_logprobs":[[-1.0,{token},null]]'
    assert "token id" in str(bad(f'{{"meta_info":{{{meta}}}}}'.encode()))


@pytest.mark.parametrize("value", ["0.5", "-1e39", "1e30", '"secret"', "[]"])
def test_what_is_no_log_prob_is_a_lost_engine(value: str) -> None:
    meta = f'"completion_tokens":1,"weight_version":"v1","output_token_logprobs":[[{value},5,null]]'
    error = bad(f'{{"meta_info":{{{meta}}}}}'.encode())
    assert "log-prob" in str(error)
    assert "secret" not in str(error)


def test_a_log_prob_may_be_rounded_to_above_zero() -> None:
    meta = b'{"meta_info":{"completion_tokens":1,"weight_version":"v1","output_token_logprobs":[[1e-7,5,null]]}}'
    assert read([meta])[0].logprobs == (0.0,)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"finish_reason": {"type": "weird"}}, "unknown way"),
        ({"finish_reason": "stop"}, "AttributeError"),
        ({"completion_tokens": 3}, "2 log-probs for 3"),
        ({"completion_tokens": 1}, "2 log-probs for 1"),
        ({"completion_tokens": -1}, "counts -1"),
        ({"completion_tokens": "2"}, "counts str"),
        ({"weight_version": "v99999999999"}, "ValueError"),
        ({"weight_versions": [{"version": "v1", "start": 0, "end": 1}]}, "versions of 1 tokens of 2"),
        ({"weight_versions": [{"version": "v1", "start": 1, "end": 2}]}, "do not follow"),
        ({"weight_versions": [{"version": "v1", "start": 0, "end": -2}]}, "do not follow"),
        ({"weight_versions": [{"version": "v99999999999", "start": 0, "end": 2}]}, "ValueError"),
    ],
)
def test_a_damaged_event_is_a_lost_engine(change: dict[str, Any], words: str) -> None:
    [event] = payloads([2], cumulative=False)
    damaged = json.loads(event)
    damaged["meta_info"] |= change
    assert words in str(bad(json.dumps(damaged).encode()))


def test_more_tokens_than_were_asked_for_are_a_lost_engine() -> None:
    [event] = payloads([3], cumulative=False)
    assert len(ReplyReader(number, 3).read(event).token_ids) == 3
    assert "3 tokens of at most 2" in str(bad(event, 2))


def test_an_unreadable_event_is_not_told() -> None:
    error = bad(b'{"text": "my-secret-password')
    assert "secret" not in str(error)
    assert "28 bytes" in str(error)


@given(st.lists(st.binary(max_size=30), max_size=12), st.data())
def test_events_are_whole_however_they_are_torn(contents: list[bytes], data: st.DataObject) -> None:
    sent = [content.replace(b"\n", b"").strip() for content in contents]
    stream = b"".join(b"data: " + content + b"\n\n" for content in sent) + b": a comment\n\ndata: never ends"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    events, got = EventLines(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += list(events.feed(stream[start:end]))
    assert got == sent
