"""The clairvoyant bound: no scheduler, even one that knows every length, makes a run end sooner.

A run makes S updates; update s trains B groups with weights of version s - 1, so its gradients are computed between
update s - 1 and update s. Notation: U_s the end of update s, U_0 = 0 the start; P_g the time from a group's dispatch to
the end of the update that trains it if nothing stood in its way; G all GPUs. The bound is the largest of three terms:

- gpu_work: (serving of all groups in the best batches + training + updates) / G.
- training: updates follow one another, each after its own tokens on all G GPUs.
- critical_path: the longest groups. Which groups a step trains is the policy's choice (it may take them as they become
  ready), so the argument holds for every assignment of the run's groups to steps:
  * Staleness of at most eta versions from dispatch to training: a group of step s was dispatched after U_(s-1-eta), so
    U_s >= U_(s-1-eta) + the largest P of the step. That makes eta + 1 chains of steps, and the longest chain is at
    least their mean. Whatever the assignment, the k-th largest of the steps' maxima is at least m_k, the
    ((k-1)B + 1)-th largest P, since k - 1 steps hold at most (k-1)B groups. Hence
    U_S >= max(m_1, sum of m_k / (eta + 1)).
  * At most Q groups dispatched and not yet consumed: each holds one of Q places for P_g or longer, hence
    U_S >= max(largest P, sum of P_g / Q). Under boundary dispatch Q = (phi + mu) * B holds for every policy, also in
    ready order, where one group's staleness has no bound. A mean staleness alone bounds nothing.
  * `in_order`: step s trains exactly row s, as a synchronous policy or a strict first-in-first-out one does. Then
    U_s = max(U_(s-1) + training of s, U_(s-1-eta) + largest P of row s) is evaluated step by step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from gyre.arrays import FloatArray, Int64Array, row_sums
from gyre.outcome import Outcome
from gyre.workload.program import Program

from .closed_forms import mcnaughton
from .hardware_profile import HardwareProfile
from .serving_work import serving_work_gpu_s
from .training import micro_step_s, training_work_gpu_s, update_s
from .unloaded import served_calls, unloaded_seconds

__all__ = ["LowerBound", "Term", "lower_bound", "serving_work_gpu_s", "unloaded_seconds"]

_UNSCORED = (Outcome.OVERALL_TIMEOUT, Outcome.CANCELLED, Outcome.ENV_SETUP_FAILED)
_UNTRAINED = (*_UNSCORED, Outcome.SCORE_FAILED)


class Term(StrEnum):
    """What a bound rests on."""

    GPU_WORK = "gpu_work"
    TRAINING = "training"
    CRITICAL_PATH = "critical_path"


@dataclass(frozen=True, slots=True)
class LowerBound:
    """Seconds that a run takes at least, the term that gives them, and every term's own bound in seconds."""

    seconds: float
    term: Term
    terms: dict[Term, float]

    def fraction(self, achieved_s: float) -> float:
        """Fraction of the bound that a run of `achieved_s` seconds reaches; 1 is optimal."""
        return self.seconds / achieved_s


@dataclass(frozen=True, slots=True)
class _Costs:
    """What executions or groups take at least; arrays of one shape."""

    ready_s: FloatArray  # dispatch to a valid score, unloaded
    serving_gpu_s: FloatArray
    training_gpu_s: FloatArray  # forward and backward

    def of_groups(self, groups: Int64Array) -> _Costs:
        """From (E,) executions to the (R,) groups of the run, given as (R, N) executions."""
        return _Costs(
            self.ready_s[groups].max(axis=1),
            self.serving_gpu_s[groups].sum(axis=1),
            self.training_gpu_s[groups].sum(axis=1),
        )


def lower_bound(
    program: Program,
    hardware: HardwareProfile,
    steps: Sequence[npt.ArrayLike] | npt.ArrayLike,
    gpus: int,
    *,
    max_staleness: int | None = None,
    depth_groups: int | None = None,
    in_order: bool = False,
    harness_timeout_s: float = math.inf,
    overall_timeout_s: float = math.inf,
) -> LowerBound:
    """Lower bound on the seconds from a run's start to the end of its last update.

    `steps`: for each of S steps the program's rows, (B, N) integers, that the N executions of its B groups replay; B
    may differ from step to step (then B below is the largest), a row may occur several times. `gpus`: all GPUs.

    Assumed: the run trains exactly these groups; `max_staleness` (eta, versions between a group's dispatch and its
    training) and `depth_groups` (Q, groups in flight) hold for every group, None where there is no such limit. With
    `in_order`, which needs `max_staleness`, row s is what step s trains. Training counts the selected paths, and
    nothing of executions that are dropped. Of an execution that its time-out, counted from
    dispatch, would cut short unloaded, only the calls that end by then are counted; see `serving_work_gpu_s`.

    Raises ValueError where `steps` is not such an array, or a limit is out of range.
    """
    drawn, sizes = _checked_steps(program, steps)
    _check_limits(gpus, max_staleness, depth_groups, in_order)
    groups = _execution_costs(program, hardware, harness_timeout_s, overall_timeout_s).of_groups(drawn)
    starts = np.cumsum(sizes) - sizes
    training_s = _training_seconds(hardware, np.add.reduceat(groups.training_gpu_s, starts), gpus)
    # Only the group itself must still be trained once it is ready: with streaming the rest of its step may be done.
    path_s = groups.ready_s + _training_seconds(hardware, groups.training_gpu_s, gpus)
    if in_order:
        assert max_staleness is not None
        critical_s = _in_order_path(np.maximum.reduceat(path_s, starts), training_s, max_staleness)
    else:
        critical_s = _any_order_path(path_s, int(sizes.max()), max_staleness, depth_groups)
    terms = {
        Term.GPU_WORK: _work_gpu_s(hardware, groups, len(sizes), gpus) / gpus,
        Term.TRAINING: float(training_s.sum()),
        Term.CRITICAL_PATH: critical_s,
    }
    binding = max(terms, key=lambda term: terms[term])
    return LowerBound(terms[binding], binding, terms)


def _execution_costs(program: Program, hardware: HardwareProfile, harness_s: float, overall_s: float) -> _Costs:
    timeout_s = min(harness_s, overall_s)
    ends_s = unloaded_seconds(program, hardware)
    scored = ~_has_outcome(program, _UNSCORED) & ((ends_s < overall_s) | (harness_s <= overall_s))
    ready_s = np.minimum(ends_s, timeout_s) + np.where(scored, program.scoring_s, 0.0)
    serving_gpu_s = serving_work_gpu_s(program, hardware, timeout_s)
    never_set_up = _has_outcome(program, (Outcome.ENV_SETUP_FAILED,))
    return _Costs(
        np.where(never_set_up, np.minimum(program.setup_s, timeout_s), ready_s),
        np.where(never_set_up, 0.0, serving_gpu_s),
        np.where(scored & ~_has_outcome(program, _UNTRAINED), _training_gpu_s(program, hardware, timeout_s), 0.0),
    )


def _has_outcome(program: Program, outcomes: tuple[Outcome, ...]) -> npt.NDArray[np.bool_]:
    return np.isin(program.outcome, [list(Outcome).index(outcome) for outcome in outcomes])


def _training_gpu_s(program: Program, hardware: HardwareProfile, timeout_s: float) -> FloatArray:
    """GPU-seconds (E,) to train the selected paths; those of an execution cut short shrink with what it sampled."""
    sampled = np.where(served_calls(program, hardware, timeout_s), program.output_tokens, 0)
    whole = row_sums(program.output_tokens, program.call_start)
    share = row_sums(sampled, program.call_start) / np.maximum(whole, 1)
    lengths = program.path_tokens * np.repeat(share, np.diff(program.path_start))
    pairs = row_sums(lengths * (lengths + 1.0) / 2.0, program.path_start)
    return training_work_gpu_s(hardware, row_sums(lengths, program.path_start), pairs)


def _training_seconds(hardware: HardwareProfile, work_gpu_s: FloatArray, gpus: int) -> FloatArray:
    """Least seconds to do `work_gpu_s` of training on all GPUs at fixed weights, and to update; same shape."""
    overhead_s = np.where(work_gpu_s > 0, micro_step_s(hardware, 0.0, gpus), 0.0)
    seconds: FloatArray = work_gpu_s / gpus + overhead_s + update_s(hardware)
    return seconds


def _work_gpu_s(hardware: HardwareProfile, groups: _Costs, steps: int, gpus: int) -> float:
    """GPU-seconds of the run: serving, training, and the updates, during each of which one cell does nothing else."""
    updating = min(hardware.cell.gpus, gpus) * update_s(hardware) * steps
    return float(groups.serving_gpu_s.sum()) + float(groups.training_gpu_s.sum()) + updating


def _in_order_path(path_s: FloatArray, training_s: FloatArray, eta: int) -> float:
    ends = [0.0]
    for step, (longest_s, train_s) in enumerate(zip(path_s, training_s, strict=True), start=1):
        ends.append(max(ends[step - 1] + float(train_s), ends[max(step - 1 - eta, 0)] + float(longest_s)))
    return ends[-1]


def _any_order_path(path_s: FloatArray, batch: int, eta: int | None, depth_groups: int | None) -> float:
    descending = np.sort(path_s)[::-1]
    bounds = [float(descending[0])]
    if eta is not None:
        bounds.append(mcnaughton(descending[::batch].tolist(), eta + 1))
    if depth_groups is not None:
        bounds.append(mcnaughton(descending.tolist(), depth_groups))
    return max(bounds)


def _checked_steps(program: Program, steps: Sequence[npt.ArrayLike] | npt.ArrayLike) -> tuple[Int64Array, Int64Array]:
    """Return the groups of all steps, (R, N), and how many each step has, (S,)."""
    arrays = [np.asarray(step) for step in steps]  # type: ignore[union-attr]
    if not arrays or any(array.ndim != 2 or array.size == 0 or array.dtype.kind not in "iu" for array in arrays):
        raise ValueError("steps must be the rows of the program that each step trains, (B, N) integers")
    if len({array.shape[1] for array in arrays}) > 1:
        raise ValueError("steps must all have groups of the same size")
    drawn = np.concatenate(arrays).astype(np.int64)
    if drawn.min() < 0 or drawn.max() >= program.executions:
        raise ValueError(f"steps names rows {drawn.min()} to {drawn.max()}, the program has {program.executions}")
    return drawn, np.array([len(array) for array in arrays])


def _check_limits(gpus: int, eta: int | None, depth_groups: int | None, in_order: bool) -> None:
    if gpus < 1:
        raise ValueError(f"gpus must be at least 1, got {gpus}")
    if eta is not None and eta < 0:
        raise ValueError(f"max_staleness must not be negative, got {eta}")
    if depth_groups is not None and depth_groups < 1:
        raise ValueError(f"depth_groups must be at least 1, got {depth_groups}")
    if in_order and eta is None:
        raise ValueError("in_order needs max_staleness")
