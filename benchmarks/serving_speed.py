"""CPU time and memory of the compiled serving model: 512 executions in flight x 300 calls x 48 waves on 8 engines.

Prints one line a size (a quarter, half and the whole of the waves by default), after a warm-up that compiles. Every
execution grows its context over its calls, waits for tools between them, and shares its engine's KV with more
executions than fit, so that prefixes are evicted and computed again.

    python benchmarks/serving_speed.py [--waves 48]
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from gyre.sim.serving import EngineSpec, ServingModel
from gyre.workload.program import Program

EXECUTIONS, CALLS, ENGINES = 512, 300, 8
ENGINE = EngineSpec(  # Qwen3-235B-A22B on 8 GPUs; the KV holds about half of what its executions keep
    step_base_s=6.81e-3,
    step_expert_s=16.4e-3,
    expert_share=8 / 128,
    step_sequence_s=5.14e-5,
    step_context_s=1.109e-8,
    prefill_base_s=26.4e-3,
    prefill_token_s=4.15e-5,
    prefill_attention_s=6.02e-10,
    kv_tokens=2_500_000,
    kv_sequence_tokens=0,
    max_running=256,
    max_prefill_tokens=16_384,
    migration_s_per_token=float("inf"),
)


def program_of_chains(executions: int, calls: int, seed: int) -> Program:
    """Executions that append to one context call after call, with lognormal outputs, tool results and tool waits."""
    rng = np.random.default_rng(seed)
    shape = (executions, calls)
    outputs = np.maximum(rng.lognormal(np.log(90.0), 0.9, shape), 1.0).astype(np.int64)
    results = np.maximum(rng.lognormal(np.log(60.0), 1.0, shape), 1.0).astype(np.int64)
    results[:, 0] = 6_000
    context = np.cumsum(outputs + results, axis=1)
    inputs = context - outputs
    prefix = np.concatenate([np.zeros((executions, 1), np.int64), context[:, :-1]], axis=1)
    index = np.tile(np.arange(calls, dtype=np.int32), executions)
    last = index == calls - 1
    return Program(
        execution_ids=tuple(str(execution) for execution in range(executions)),
        group=np.zeros(executions, np.int32),
        group_ids=("benchmark",),
        call_start=np.arange(executions + 1, dtype=np.int64) * calls,
        thread_count=np.ones(executions, np.int32),
        setup_s=np.zeros(executions),
        scoring_s=np.zeros(executions),
        outcome=np.zeros(executions, np.int8),
        reward=np.zeros(executions),
        thread=np.zeros(index.size, np.int32),
        role=np.zeros(index.size, np.int8),
        input_tokens=inputs.ravel(),
        output_tokens=outputs.ravel(),
        prefix_call=index - 1,
        prefix_tokens=prefix.ravel(),
        wait_s=rng.lognormal(np.log(4.0), 1.2, index.size),
        dependencies=(index > 0).astype(np.int32),
        successor_start=np.concatenate([[0], np.cumsum(~last)]).astype(np.int64),
        successor=index[~last] + 1,
        path_start=np.zeros(executions + 1, np.int64),
        path_tokens=np.zeros(0, np.int64),
    )


def replay(program: Program, waves: int) -> ServingModel:
    """Run `waves` times as many executions as the program has, as many as it has at once."""
    model = ServingModel(program, [ENGINE] * ENGINES)
    for engine in range(ENGINES):
        model.open(engine)
    setups = np.random.default_rng(1).uniform(0.0, 600.0, program.executions * waves)

    def start(execution: int) -> None:
        model.start(
            execution,
            execution % program.executions,
            setup_s=float(setups[execution]),
            harness_deadline_s=model.now_s + 40_000.0,
            overall_deadline_s=model.now_s + 50_000.0,
        )

    for execution in range(program.executions):
        start(execution)
    started = program.executions
    while model.advance(float("inf")) is not None:
        if started < len(setups):
            start(started)
            started += 1
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waves", type=int, default=48, help="waves of 512 executions of 300 calls")
    waves = parser.parse_args().waves
    replay(program_of_chains(4, 3, 0), 2)
    program = program_of_chains(EXECUTIONS, CALLS, 0)
    for part in (4, 2, 1):
        begun = time.process_time()
        model = replay(program, max(waves // part, 1))
        cpu_s = time.process_time() - begun
        calls = EXECUTIONS * CALLS * max(waves // part, 1)
        meters = [model.meters(engine) for engine in range(ENGINES)]
        busy = sum(meter.busy_s for meter in meters) / (ENGINES * model.now_s)
        cached = sum(meter.cached_tokens for meter in meters)
        hits = cached / (cached + sum(meter.prefilled_tokens for meter in meters))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        print(
            f"{calls:9,} calls: {cpu_s:6.2f} CPU-s, {cpu_s / calls * 1e6:.2f} us a call, peak {memory:.0f} MiB "
            f"({model.now_s / 3600:.1f} h simulated, engines busy {busy:.0%}, prefix hits {hits:.0%})"
        )


if __name__ == "__main__":
    main()
