"""The engines, as a call needs them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from ..engines.continuation import Decode
from ..engines.engine import Chunk, EngineInfo, Generation
from ..engines.generating import Move, generate
from ..engines.pool import EnginePool


class Engines:
    """A pool of engines that gives unbroken replies."""

    def __init__(
        self, pool: EnginePool, decode: Decode, context_tokens: int | None = None, vocabulary: int | None = None
    ) -> None:
        """`context_tokens` bounds a context where the engines would take more; None: as they say.

        `vocabulary` is how many token ids the model has; None: any is taken.
        """
        self.pool = pool
        self._vocabulary = vocabulary
        self._decode = decode
        self._context_tokens = context_tokens

    def context_tokens(self) -> int | None:
        """Return how many tokens a context may have; None while no engine has said so."""
        said = [info.max_context_tokens for info in self._infos()]
        bounds = [*said, *([] if self._context_tokens is None else [self._context_tokens])]
        return min(bounds, default=None)

    def unproven(self) -> int:
        """Return of how many engines it cannot be told whether they serve the model that is asked for."""
        return sum(info.unproven for info in self._infos())

    def _infos(self) -> list[EngineInfo]:
        infos = (self.pool.info(name) for name in self.pool.members())
        return [info for info in infos if info is not None]

    def generate(
        self,
        execution: str,
        generation: Generation,
        *,
        on_move: Callable[[Move], None],
        on_place: Callable[[str], None],
    ) -> AsyncGenerator[Chunk, None]:
        """Yield a reply's chunks, whatever becomes of engines; see `gyre.backends.engines.generating`."""
        return generate(
            self.pool,
            execution,
            generation,
            decode=self._decode,
            on_move=on_move,
            on_place=on_place,
            vocabulary=self._vocabulary,
        )

    def forget(self, execution: str) -> None:
        """The execution has ended."""
        self.pool.forget(execution)
