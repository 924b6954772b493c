"""Textbook results on scheduling and staleness: bounds, list schedules and steady states in closed form."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence


def mcnaughton(jobs: Sequence[float], machines: int) -> float:
    """Optimal preemptive makespan on identical machines, max(sum/m, max) (McNaughton 1959)."""
    _require_machines(machines)
    return max(math.fsum(jobs) / machines, max(jobs, default=0.0))


def malleable_bound(works: Sequence[float], caps: Sequence[float], gpus: float) -> float:
    """Lower bound on the makespan of malleable jobs: total work over all GPUs, or one job at its cap.

    `works` in GPU-seconds, `caps` the GPUs that each job can use at most. Raises ValueError on unequal lengths.
    """
    alone_s = max((work / cap for work, cap in zip(works, caps, strict=True)), default=0.0)
    return max(math.fsum(works) / gpus, alone_s)


def list_schedule(jobs: Sequence[float], machines: int) -> float:
    """Makespan of Graham's list scheduling: each job, in order, goes to the machine that is free first."""
    _require_machines(machines)
    free_at = [0.0] * machines
    for job in jobs:
        heapq.heapreplace(free_at, free_at[0] + job)
    return max(free_at)


def lpt(jobs: Sequence[float], machines: int) -> float:
    """Makespan of list scheduling with the longest jobs first; at most 4/3 - 1/(3m) of the optimum (Graham 1969)."""
    return list_schedule(sorted(jobs, reverse=True), machines)


def fixed_split_period(serve_gpu_s: float, train_gpu_s: float, serving_gpus: float, training_gpus: float) -> float:
    """Seconds per step where some GPUs only serve and the others only train, both at full use in a pipeline."""
    return max(serve_gpu_s / serving_gpus, train_gpu_s / training_gpus)


def elastic_period(serve_gpu_s: float, train_gpu_s: float, gpus: float) -> float:
    """Seconds per step where every GPU does whichever work there is: no GPU is ever idle."""
    return (serve_gpu_s + train_gpu_s) / gpus


def harmonic(n: int) -> float:
    """H_n = 1 + 1/2 + ... + 1/n, the expected maximum of n independent Exp(1) lengths; 0 for n = 0."""
    return math.fsum(1.0 / k for k in range(1, n + 1))


def bounded_staleness_period(batch: float, capacity: float, length_s: float, training_s: float, eta: float) -> float:
    """Seconds per step of an asynchronous run with constant lengths whose staleness may not exceed `eta` versions.

    The slowest of three: training, serving `batch` rollouts of `length_s` on `capacity` slots, and the way of one
    rollout from dispatch to update, of which eta + 1 overlap. `eta` may be infinite.
    """
    return max(training_s, batch * length_s / capacity, (length_s + training_s) / (eta + 1.0))


def queue_staleness(in_flight: float, batch: float, queue_batches: float, rho: float, tail: float) -> float:
    """Mean versions from a rollout's start to its training in a continuous asynchronous run with a bounded queue.

    `in_flight` rollouts at a time, `batch` samples a step, a queue that holds `queue_batches` batches, `rho` the
    serving rate over the training rate, `tail` the mean of the longest of a group over the mean length. Source: Applied
    Compute.
    """
    before_queue = in_flight * tail / (batch * max(1.0, rho))
    in_queue = rho if rho < 1.0 else (2.0 * queue_batches + rho - 1.0) / (2.0 * rho)
    return before_queue + in_queue


def _require_machines(machines: int) -> None:
    if machines < 1:
        raise ValueError(f"a schedule needs at least one machine, got {machines}")
