"""A conversation through the proxy with a real SGLang whose weights change: what is recorded is what was computed.

The client is OpenAI's, the judge is transformers: the recorded ids, put through the model of each span of versions,
give the recorded log-probs. The weights change between replies and in the middle of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("sglang", reason="a real engine needs SGLang")
torch = pytest.importorskip("torch", reason="log-probs are computed again with torch")
transformers = pytest.importorskip("transformers", reason="log-probs are computed again with transformers")
httpx = pytest.importorskip("httpx")
openai = pytest.importorskip("openai", reason="a real client of the chat protocol")

from harness_runs import check_one_conversation  # noqa: E402
from proxy_bench import Bench, bench  # noqa: E402

from gyre.backends.engines.engine import Sampling  # noqa: E402
from gyre.backends.engines.launching import Server  # noqa: E402
from gyre.backends.engines.sglang import SGLangEngine  # noqa: E402
from gyre.backends.proxy.settings import ProxySettings  # noqa: E402
from gyre.backends.proxy.tokens import Parsers, Renderer  # noqa: E402
from gyre.trajectory import CallRecord  # noqa: E402

SETTINGS: Final = ProxySettings(sampling=Sampling(max_new_tokens=160), keep_alive_s=1.0)
PIECES_FIRST: Final = 20  # of a reply, before the weights change
TRIES: Final = 12  # at a reply that is long enough for that, or whole: a random model may stop at any token, or never
TOOL: Final = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]},
    },
}


class Conversation:
    """A harness that talks with a model, streamed, and keeps all that it said."""

    def __init__(self, opened: Any) -> None:
        self._client = openai.OpenAI(base_url=f"{opened.base_url}/v1", api_key=opened.key, max_retries=0, timeout=300)
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": "Assist."}]

    def ask(self, words: str, after_pieces: Callable[[], None] = lambda: None, **more: Any) -> None:
        """Say something, hear the reply, answer the tool calls in it; `after_pieces` runs in mid-reply."""
        self.messages.append({"role": "user", "content": words})
        parts = []
        with self._client.chat.completions.stream(model="m", messages=self.messages, tools=[TOOL], **more) as stream:
            for event in stream:
                if event.type == "chunk":
                    parts.append(event)
                    if len(parts) == PIECES_FIRST:
                        after_pieces()
            message = stream.current_completion_snapshot.choices[0].message.to_dict()
        kept = ("role", "content", "reasoning_content", "tool_calls")
        turn = {name: message[name] for name in kept if message.get(name)}
        calls = [{name: call[name] for name in ("id", "type", "function")} for call in turn.get("tool_calls", ())]
        for call in calls:
            call["function"] = {name: call["function"][name] for name in ("name", "arguments")}
        self.messages.append(turn | ({"tool_calls": calls} if calls else {}))
        for call in calls:
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": "nothing ✓"})


@pytest.fixture
def running(sglang_engine: Server, tiny_model: Path, tmp_path: Path) -> Iterator[Bench]:
    renderer = Renderer(tiny_model, parsers=Parsers(tool_calls="qwen25", reasoning="qwen3"))
    engines: Any = lambda: [SGLangEngine(sglang_engine.url)]  # noqa: E731
    with bench(renderer, tmp_path / "log", engines, SETTINGS) as made:
        yield made


def worst_difference(record: CallRecord, models: dict[int, Any]) -> float:
    """The largest difference of a recorded log-prob to that of the model that has its version."""
    assert record.logprobs is not None
    assert record.versions is not None
    start = len(record.input_ids)
    row = torch.from_numpy(np.concatenate((record.input_ids, record.output_ids)).astype(np.int64))[None]
    worst = 0.0
    for version in np.unique(record.versions).tolist():
        with torch.no_grad():
            logits = models[version](row).logits[0, start - 1 : -1]
        chosen = torch.log_softmax(logits, -1).gather(1, row[0, start:, None])[:, 0].numpy()
        there = record.versions == version
        worst = max(worst, float(np.abs(chosen - record.logprobs)[there].max()))
    return worst


def test_recorded_log_probs_are_those_of_each_version(
    running: Bench, sglang_engine: Server, tiny_model: Path, other_tiny_model: Path
) -> None:
    folders, version = (tiny_model, other_tiny_model), 0
    server = httpx.Client(base_url=sglang_engine.url, timeout=120)

    def publish(name: str, folder: Path) -> None:
        for path, body in (
            ("/pause_generation", {"mode": "retract"}),
            ("/update_weights_from_disk", {"model_path": str(folder), "weight_version": name, "flush_cache": True}),
            ("/continue_generation", {}),
        ):
            server.post(path, json=body).raise_for_status()

    def update() -> None:
        nonlocal version
        version += 1
        publish(f"v{version}", folders[version % 2])

    def spanned() -> bool:
        last = running.records("task")[-1].versions
        return last is not None and len(set(last.tolist())) > 1

    talk = Conversation(running.open("task"))
    constrained: list[int] = []
    try:
        talk.ask("What is there?")
        for _ in range(TRIES):
            constrained.append(len(running.records("task")))
            talk.ask("Look.", tool_choice="required")
            if talk.messages[-1]["role"] == "tool":
                break
        assert talk.messages[-1]["role"] == "tool"
        update()
        talk.ask("And now?")
        for _ in range(TRIES):
            talk.ask("Go on.", after_pieces=update)
            if spanned():
                break
        talk.ask("Is that all?")
    finally:
        publish("0", tiny_model)
        server.close()

    records = running.records("task")
    check_one_conversation(records)
    assert any(len(set(record.versions.tolist())) > 1 for record in records if record.versions is not None)
    models = [
        transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval() for folder in folders
    ]
    by_version = {one: models[one % 2] for one in range(version + 1)}
    for at, record in enumerate(records):
        if at not in constrained:  # a grammar's log-probs are of what it allows
            assert worst_difference(record, by_version) < 1e-4
