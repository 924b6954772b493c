"""A service as evaluator: the subject is posted to it, its reply is the evaluation."""

from __future__ import annotations

import asyncio
import os
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ..errors import InputError
from .evaluation import Evaluation, Subject
from .result import evaluation_of_json, invalid
from .settings import HttpSettings
from .subject_form import subject_json

if TYPE_CHECKING:
    import aiohttp

_TRY_AGAIN: Final = frozenset({502, 503})
_MOST_WAIT_S: Final = 30.0
_SHOWN_BYTES: Final = 2048


class HttpEvaluator:
    """Posts each subject to a service; tries again where that is gone for a moment."""

    def __init__(self, settings: HttpSettings) -> None:
        """Check that what it needs is there.

        Raises:
            InputError: aiohttp is not installed, or the variable with the key is not set.
        """
        self.settings = settings
        self._aiohttp = _aiohttp()
        self._headers = {"content-type": "application/json", **settings.headers}
        if settings.key_env:
            if settings.key_env not in os.environ:
                raise InputError(f"key_env: {settings.key_env} is not set; set it to the service's key")
            self._headers["authorization"] = f"Bearer {os.environ[settings.key_env]}"

    async def evaluate(self, subject: Subject) -> Evaluation:
        """Ask the service; see `Evaluator`."""
        failure = ""
        try:
            body = subject_json(subject, subject.folder.resolve() if subject.folder is not None else None)
            async with asyncio.timeout(self.settings.timeout_s), self._session() as session:
                wait_s = self.settings.retry_s
                while True:
                    evaluation, failure = await self._ask(session, body)
                    if evaluation is not None:
                        return evaluation
                    await asyncio.sleep(wait_s)
                    wait_s = min(2 * wait_s, _MOST_WAIT_S)
        except TimeoutError:
            return invalid(f"not done within {self.settings.timeout_s:g} s" + (f"; last: {failure}" if failure else ""))
        except (ValueError, TypeError) as error:
            return invalid(f"cannot be evaluated: {error}")

    def _session(self) -> aiohttp.ClientSession:
        timeout = self._aiohttp.ClientTimeout(total=None)  # the attempt's own is around all of them
        session: aiohttp.ClientSession = self._aiohttp.ClientSession(timeout=timeout)
        return session

    async def _ask(self, session: aiohttp.ClientSession, body: bytes) -> tuple[Evaluation | None, str]:
        """Ask once; return the evaluation, or none and why it is worth to try again."""
        try:
            async with session.post(
                self.settings.url, data=body, headers=self._headers, allow_redirects=False
            ) as reply:
                if reply.status in _TRY_AGAIN:
                    return None, f"HTTP {reply.status}"
                text = await self._read(reply)
        except (self._aiohttp.ClientError, OSError) as error:
            return None, f"{type(error).__name__}: {error}"
        if reply.status != 200:
            said = text[:_SHOWN_BYTES].decode(errors="replace")
            whose = "it redirects" if 300 <= reply.status < 400 else said
            return invalid(f"HTTP {reply.status}: {whose}"), ""
        if len(text) > self.settings.most_bytes:
            return invalid(f"unusable result: it has more than {self.settings.most_bytes:,} bytes, the limit"), ""
        return evaluation_of_json(text), ""

    async def _read(self, reply: Any) -> bytes:
        """Read a body, but no more than shows that it is too large; the connection is not used again then."""
        text = bytearray()
        async for chunk in reply.content.iter_any():
            text += chunk
            if len(text) > self.settings.most_bytes:
                reply.close()
                break
        return bytes(text)


def _aiohttp() -> ModuleType:
    try:
        import aiohttp
    except ImportError as error:
        raise InputError("an HTTP evaluator needs aiohttp; pip install 'gyre[proxy]'") from error
    return aiohttp
