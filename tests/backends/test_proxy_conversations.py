"""Many requests of one execution at once: each has its own prompt, or its own error."""

from __future__ import annotations

import asyncio

import pytest
from tokens_kit import STYLES, deltas, save_tokenizer, turn_of

for package in ("orjson", "starlette", "transformers"):
    pytest.importorskip(package, reason="the proxy needs the extra gyre[proxy]")

from gyre.backends.proxy.conversation import Message, Request, Speaker  # noqa: E402
from gyre.backends.proxy.conversations import Conversations  # noqa: E402
from gyre.backends.proxy.tokens import Prompt, Renderer  # noqa: E402
from gyre.backends.proxy.wire import BadRequestError  # noqa: E402

QWEN3 = next(style for style in STYLES if style.name == "qwen3")
REFUSING = "{%- if messages[-1].content == 'refuse' %}{{- raise_exception('no') }}{%- endif %}"


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    folder = save_tokenizer(tmp_path_factory.mktemp("qwen3"), QWEN3)
    return Renderer(folder, template=REFUSING + QWEN3.template)


def _asked(number: int) -> Request:
    return Request((Message(Speaker.USER, "refuse" if number % 7 == 3 else f"question {number}"),))


def test_each_of_many_has_its_own_prompt_or_error(renderer: Renderer) -> None:
    async def run() -> list[Prompt | BaseException]:
        conversations = Conversations(renderer)
        conversations.open("one")
        asking = [asyncio.create_task(conversations.prompt("one", _asked(number))) for number in range(100)]
        await asyncio.sleep(0)
        asking[50].cancel()
        found = await asyncio.gather(*asking, return_exceptions=True)
        conversations.close()
        return found

    for number, prompt in enumerate(asyncio.run(run())):
        if number == 50:
            assert isinstance(prompt, asyncio.CancelledError)
        elif number % 7 == 3:
            assert isinstance(prompt, BadRequestError)
        else:
            assert isinstance(prompt, Prompt)
            assert prompt.input_ids.tolist() == renderer.ids(renderer.text(_asked(number))).tolist()


def test_calls_are_recorded_while_others_ask(renderer: Renderer) -> None:
    async def call(conversations: Conversations, number: int) -> None:
        asked = Request((Message(Speaker.USER, f"question {number}"),))
        prompt = await conversations.prompt("one", asked)
        turn = turn_of(QWEN3, number, calls=0, text=f"answer {number}", reasoning="")
        output = [*renderer.ids(f"answer {number}").tolist(), renderer.tokenizer.eos_token_id]
        await conversations.record("one", prompt, output, deltas(turn))
        after = Request((*asked.messages, turn, Message(Speaker.USER, "and?")))
        again = await conversations.prompt("one", after)
        assert again.reused_tokens == len(prompt.input_ids) + len(output)

    async def run() -> None:
        conversations = Conversations(renderer)
        conversations.open("one")
        await asyncio.gather(*(call(conversations, number) for number in range(60)))
        conversations.close()

    asyncio.run(run())


def test_who_waits_when_the_threads_go_is_let_go(renderer: Renderer) -> None:
    async def run() -> None:
        conversations = Conversations(renderer)
        conversations.open("one")
        conversations.close()
        with pytest.raises(asyncio.CancelledError):
            await conversations.prompt("one", _asked(0))

    asyncio.run(run())
