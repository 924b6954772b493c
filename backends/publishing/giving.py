"""One engine gets weights: paused, changed, asked what it has, and let go on only if that is what it was given."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from .control import ControlError, ControlUnreachableError, EngineControl, PausePolicy
from .weights import Weights

_log = logging.getLogger(__name__)
_TRIES: Final = 2  # the second finds out whether an answer that was lost, or wrong, had a lasting reason


@dataclass(frozen=True, slots=True)
class GiveSettings:
    """How engines are given weights."""

    policy: PausePolicy = PausePolicy.RETRACT
    within_s: float = 600.0  # for one engine, all in all


class NotGivenError(Exception):
    """An engine does not have the weights, or nobody knows. It may be paused, and must not serve before it has."""


async def give(control: EngineControl, weights: Weights, settings: GiveSettings) -> None:
    """Give an engine weights and let it go on. Done twice, it does the same.

    An answer is never believed alone, neither that it worked nor that it did not: the engine is asked for its version.

    Raises:
        NotGivenError: it did not work in the time, whatever the reason.
    """
    try:
        async with asyncio.timeout(settings.within_s), control.lock:
            await _tried(control, weights, settings)
    except TimeoutError as error:
        raise NotGivenError(f"{control.name}: not given in {settings.within_s:g} s") from error
    except ControlError as error:
        raise NotGivenError(str(error)) from error


async def _tried(control: EngineControl, weights: Weights, settings: GiveSettings) -> None:
    for left in reversed(range(_TRIES)):
        try:
            await _once(control, weights, settings)
            return
        except ControlUnreachableError:
            raise
        except ControlError as error:
            if not left:
                raise
            _log.warning("weights are given again: %s", error)


async def _once(control: EngineControl, weights: Weights, settings: GiveSettings) -> None:
    policy = settings.policy
    await control.pause(policy)
    if await control.version() == str(weights.version):
        # It may hold others of this number, made before a restart: the name alone would prove nothing afterwards.
        await control.name_weights(f"before {weights.version}")
    await control.begin_update()
    try:
        flush = not policy.keeps_kv
        await weights.transfer.send(control, weights.version, flush=flush, within_s=settings.within_s)
    except ControlUnreachableError:
        raise
    except ControlError as error:
        if await control.version() != str(weights.version):
            raise
        _log.warning("the engine has version %d all the same: %s", weights.version, error)
    await control.end_update()
    if (has := await control.version()) != str(weights.version):
        raise ControlError(f"{control.name}: calls its weights {has!r} after it was given version {weights.version}")
    await control.resume()
