"""Random numbers of a generated workload, keyed so that group g is the same however many groups are drawn.

A group draws from `SeedSequence([seed, g])`, its member m from `SeedSequence([seed, g, 1 + m])`. The groups' effects
are a Latin hypercube over blocks of `BLOCK` groups (McKay, Beckman & Conover 1979), drawn from the seed and the block:
like tasks taken from a set without replacement, a whole block has the law's mean, while one step's groups still differ
from the next one's. Only raw draws are made here, execution by execution; what they become is reckoned elsewhere, for
all calls at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import ndtri

from ...arrays import FloatArray, Int64Array
from ...errors import InputError
from .bounds import MOST_CALLS
from .profile import Profile, Reward

EFFECTS: Final = ("calls", "input_tokens", "growth_tokens", "output_tokens", "tool_wait_s")
DRAWN_EFFECTS: Final = (*EFFECTS, "first_wait_s")  # a first wait has the normals of the tool waits
COLUMNS: Final = ("growth", "output", "wait", "retry", "context_after")  # uniforms of a turn
BLOCK: Final = 256
MOST_TURNS: Final = 20_000_000  # of a workload: beyond, its draws would not fit into memory
SCALARS: Final = ("setup", "scoring", "setup_failed", "scoring_failed", "outlier")  # uniforms of an execution


@dataclass(frozen=True, slots=True)
class Draws:
    """E executions, H threads (ordered by execution, main thread first), T turns (ordered by thread).

    A turn is a call that a thread makes, before summaries and retries are added.
    """

    effect: dict[str, FloatArray]  # each E: group's plus member's effect on the logarithm
    scalar: dict[str, FloatArray]  # each E, uniform
    reward: FloatArray  # E
    thread_execution: Int64Array  # H
    thread_number: Int64Array  # H, 0 for main
    thread_turns: Int64Array  # H
    spawn_turn: Int64Array  # H, turn of the main thread that spawned it; -1 for main
    first_input_normal: FloatArray  # H, standard normal of a sub-agent's first input; 0 for main
    uniform: FloatArray  # T x len(COLUMNS)


@dataclass(slots=True)
class _Member:
    scalars: FloatArray
    effects: FloatArray
    turns: Int64Array
    spawn_turn: Int64Array
    first_input_normal: FloatArray
    uniform: FloatArray


def draw(profile: Profile, *, groups: int, seed: int) -> Draws:
    """Draws of `groups` groups of `profile.training.group_size` executions each.

    Raises:
        InputError: the workload would have more than `MOST_TURNS` turns.
    """
    _within_reach(groups * profile.training.group_size, profile)
    members: list[_Member] = []
    rewards: list[FloatArray] = []
    size = profile.training.group_size
    effects = _group_normals(groups, seed)
    turns = 0
    for group in range(groups):
        rng = np.random.default_rng(np.random.SeedSequence([seed, group]))
        group_normal = effects[group]
        with_sub_agents = bool(rng.random() < profile.sub_agents.group_share)
        rewards.append(_rewards(profile.reward, size, rng))
        for member in range(size):
            member_rng = np.random.default_rng(np.random.SeedSequence([seed, group, 1 + member]))
            members.append(_member(profile, group_normal, with_sub_agents, member_rng))
            turns += len(members[-1].uniform)
            _within_reach(turns, profile)
    return _gather(members, np.concatenate(rewards))


def _within_reach(turns: int, profile: Profile) -> None:
    if turns > MOST_TURNS:
        raise InputError(
            f"profile {profile.name}: the workload drawn would have more than {MOST_TURNS:,} calls; draw fewer groups, "
            "or lower calls.median, calls.cap, sub_agents or training.group_size"
        )


def _group_normals(groups: int, seed: int) -> FloatArray:
    """Standard normal effects, groups x len(EFFECTS): in each block and column one of every stratum."""
    blocks = []
    for block in range(-(-groups // BLOCK)):
        rng = np.random.default_rng(np.random.SeedSequence([seed], spawn_key=(block,)))
        strata = rng.permuted(np.tile(np.arange(BLOCK), (len(EFFECTS), 1)), axis=1).T
        blocks.append(ndtri((strata + rng.random(strata.shape)) / BLOCK))
    return np.asarray(np.concatenate(blocks)[:groups], np.float64)


def _member(profile: Profile, group_normal: FloatArray, with_sub_agents: bool, rng: np.random.Generator) -> _Member:
    scalars = rng.random(len(SCALARS))
    sigma_group, sigma_member = _sigmas(profile)
    if scalars[SCALARS.index("outlier")] < profile.calls.outlier_share:
        sigma_member[EFFECTS.index("calls")] = profile.calls.sigma_outlier
    member_normal = rng.standard_normal(len(EFFECTS))
    effects = np.append(
        sigma_group * group_normal + sigma_member * member_normal, _first_wait(profile, group_normal, member_normal)
    )
    length = profile.calls.median * np.exp(effects[0] + profile.calls.sigma * rng.standard_normal())
    main_turns = max(1, round(min(length, profile.calls.cap or MOST_CALLS, MOST_CALLS)))
    spawn_turn, sub_turns = _sub_agents(profile, main_turns, rng) if with_sub_agents else (_NONE, _NONE)
    turns = np.concatenate([[main_turns], sub_turns])
    return _Member(
        scalars=scalars,
        effects=effects,
        turns=turns,
        spawn_turn=np.concatenate([[-1], spawn_turn]),
        first_input_normal=np.concatenate([[0.0], rng.standard_normal(len(sub_turns))]),
        uniform=rng.random((int(turns.sum()), len(COLUMNS))),
    )


_NONE: Final[Int64Array] = np.zeros(0, np.int64)


def _sub_agents(profile: Profile, main_turns: int, rng: np.random.Generator) -> tuple[Int64Array, Int64Array]:
    """Spawning turn and number of turns of each sub-agent. The last turn spawns none: none could wait for them."""
    settings = profile.sub_agents
    spawning = np.flatnonzero(rng.random(main_turns)[:-1] < settings.per_call)
    spawned = rng.geometric(1.0 / settings.width, len(spawning))
    _within_reach(int(spawned.sum()), profile)
    spawn_turn = np.repeat(spawning, spawned)
    length = settings.calls.median * np.exp(settings.calls.sigma * rng.standard_normal(len(spawn_turn)))
    length = np.minimum(length, min(settings.calls.cap or MOST_CALLS, MOST_CALLS))
    _within_reach(int(length.sum()), profile)
    return spawn_turn, np.maximum(1, np.rint(length)).astype(np.int64)


def _first_wait(profile: Profile, group_normal: FloatArray, member_normal: FloatArray) -> float:
    """Effect on the wait before the first call, from the normals of the tool waits: a slow task is slow from the start.

    Normals of its own would change every draw of the profiles that have no such wait.
    """
    law, normal = profile.first_wait_s, EFFECTS.index("tool_wait_s")
    if law is None:
        return 0.0
    return float(law.sigma_group * group_normal[normal] + law.sigma_member * member_normal[normal])


def _sigmas(profile: Profile) -> tuple[FloatArray, FloatArray]:
    tables = [getattr(profile, name) for name in EFFECTS]
    return np.array([table.sigma_group for table in tables]), np.array([table.sigma_member for table in tables])


def _rewards(reward: Reward, size: int, rng: np.random.Generator) -> FloatArray:
    """Rewards of a group's members; a group drawn to have a spread gets one even where the binomials agree."""
    flat, one, nudge = rng.random(3)
    if flat < reward.flat_groups:
        return np.full(size, float(one < reward.flat_one))
    a = reward.mean * reward.concentration
    hits = rng.binomial(reward.levels, rng.beta(a, reward.concentration - a), size)
    if size > 1 and np.all(hits == hits[0]):
        hits[int(nudge * size)] += 1 if hits[0] < reward.levels else -1
    return np.asarray(hits / reward.levels, np.float64)


def _gather(members: list[_Member], reward: FloatArray) -> Draws:
    effects = np.stack([member.effects for member in members])
    scalars = np.stack([member.scalars for member in members])
    threads = np.array([len(member.turns) for member in members])
    first_thread = np.cumsum(threads) - threads
    return Draws(
        effect={name: effects[:, column] for column, name in enumerate(DRAWN_EFFECTS)},
        scalar={name: scalars[:, column] for column, name in enumerate(SCALARS)},
        reward=reward,
        thread_execution=np.repeat(np.arange(len(members)), threads),
        thread_number=np.arange(threads.sum()) - np.repeat(first_thread, threads),
        thread_turns=np.concatenate([member.turns for member in members]),
        spawn_turn=np.concatenate([member.spawn_turn for member in members]),
        first_input_normal=np.concatenate([member.first_input_normal for member in members]),
        uniform=np.concatenate([member.uniform for member in members]),
    )
