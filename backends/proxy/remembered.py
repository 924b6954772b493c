"""Calls that an earlier process recorded: put back into an execution's history, and replayed to retries."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from gyre.arrays import Int32Array
from gyre.trajectory.call import CallRecord, Finish

from .call import digest_in
from .conversation import Message, Request, Speaker
from .reply import Delta, End, Usage
from .tokens import History, Renderer, ReplyParser
from .tokens.turns import as_message, same_turn

_REPLAYED: Final = 256  # the newest calls, whose replies may not have reached the harness


class RememberedCalls:
    """An execution's recorded calls. The log holds tokens and no messages: a request that comes says which they are.

    A harness sends its whole conversation with every request. Each turn of the model's in it was once a call whose
    input was all that stands before: where a recorded call has that input, and an output that reads like the turn,
    the turn is that call.
    """

    def __init__(self, renderer: Renderer, records: Iterable[CallRecord]) -> None:
        """Take the records that are whole."""
        self._renderer = renderer
        self._by_input: dict[bytes, list[CallRecord]] = {}
        self._by_digest: OrderedDict[str, CallRecord] = OrderedDict()
        self._walked: set[int] = set()
        for record in records:
            if not record.delivered or record.finish in (Finish.ABORT, Finish.ERROR):
                continue
            self._by_input.setdefault(_key(record.input_ids), []).append(record)
            self._by_digest[digest_in(record.call_id)] = record
            if len(self._by_digest) > _REPLAYED:
                self._by_digest.popitem(last=False)

    def recall(self, history: History, request: Request) -> None:
        """Put the calls that the request's conversation holds back into the history.

        Raises:
            BadRequestError: the chat template refuses the messages.
        """
        turns = [at for at, message in enumerate(request.messages) if message.speaker is Speaker.ASSISTANT]
        if not turns or not self._by_input:
            return
        opening = hash(request.messages[: turns[0] + 1])
        if opening in self._walked:
            return
        self._walked.add(opening)
        for at in turns:
            prompt = history.prompt(replace(request, messages=request.messages[:at]))
            if (found := self._call(prompt.input_ids, request, request.messages[at])) is not None:
                record, shown = found
                history.record(prompt, record.output_ids, shown)

    def reply(self, digest: str, request: Request) -> tuple[CallRecord, Sequence[Delta], End] | None:
        """Return what was replied to a request with this digest, once."""
        record = self._by_digest.pop(digest, None)
        if record is None:
            return None
        parser = ReplyParser(self._renderer, request, reply_id=record.call_id)
        shown = [*parser.feed(record.output_ids.tolist()), *parser.end(_engine_finish(record.finish))]
        usage = Usage(len(record.input_ids), 0, len(record.output_ids), parser.reasoning_tokens)
        end = End(parser.finish, usage, parser.stop_sequence)
        if request.want_token_ids:
            end = replace(end, input_ids=tuple(record.input_ids.tolist()), output_ids=tuple(record.output_ids.tolist()))
        return record, shown, end

    def _call(self, input_ids: Int32Array, request: Request, turn: Message) -> tuple[CallRecord, list[Delta]] | None:
        for record in reversed(self._by_input.get(_key(input_ids), [])):
            parser = ReplyParser(self._renderer, request, reply_id=record.call_id)
            shown = [*parser.feed(record.output_ids.tolist()), *parser.end(_engine_finish(record.finish))]
            if same_turn(as_message(shown), turn):
                return record, shown
        return None


def _key(input_ids: Int32Array) -> bytes:
    return hashlib.blake2b(input_ids.tobytes(), digest_size=16).digest()


def _engine_finish(finish: Finish) -> Finish:
    return Finish.STOP if finish is Finish.TOOL_CALLS else finish
