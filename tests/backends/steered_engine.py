"""A real SGLang whose outputs are given: a grammar lets it say one text and no other, in tokens of its own choice."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

from gyre.backends.engines.engine import Chunk, Generation
from gyre.backends.engines.sglang import SGLangEngine
from gyre.backends.proxy.tokens import Renderer


class SteeredEngine(SGLangEngine):
    """`text_for` says what the whole reply to a generation is; `begun` is awaited after a reply's first chunk."""

    def __init__(
        self,
        url: str,
        renderer: Renderer,
        text_for: Callable[[Generation], str],
        begun: Callable[[Generation], Awaitable[None]],
    ) -> None:
        super().__init__(url)
        self._renderer = renderer
        self._text_for = text_for
        self._begun = begun
        self.generations: list[Generation] = []

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        """See `Engine.generate`."""
        self.generations.append(generation)
        said = generation.input_ids[len(generation.input_ids) - generation.continued_tokens :].tolist()
        text = self._text_for(generation)
        before = self._renderer.tokenizer.decode(said)
        assert text.startswith(before)
        grammar = {"ebnf": f"root ::= {json.dumps(text[len(before) :])}"}
        steered = replace(generation, sampling=replace(generation.sampling, constraint=grammar))
        async with aclosing(super().generate(steered)) as chunks:
            yield await anext(chunks)
            await self._begun(generation)
            async for chunk in chunks:
                yield chunk
