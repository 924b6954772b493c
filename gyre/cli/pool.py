"""Runs tasks side by side in processes, with a progress bar a task."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing.synchronize import Event
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ..report import RunResult
from ..sim.matched import leaves_split_open
from .tasks import Task, run_task

_LOOK_S: Final = 0.1

# Set in a worker by `_begin`: what its parent shares with it.
_shared: dict[str, Any] = {}


def _begin(stop: Event, steps: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which asks all workers to stop
    _shared.update(stop=stop, steps=steps)


def _work(index: int, task: Task) -> RunResult:
    def on_step(step: int) -> None:
        _shared["steps"][index] = step

    return run_task(task, on_step, _shared["stop"].is_set)


@contextlib.contextmanager
def _progress(tasks: Sequence[Task], quiet: bool) -> Iterator[tuple[Progress, list[TaskID]]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        yield (
            progress,
            [
                progress.add_task(f"{task.label}, seed {task.settings.seed}", total=task.settings.training.steps)
                for task in tasks
            ],
        )


def run_all(tasks: Sequence[Task], *, jobs: int | None = None, quiet: bool = False) -> list[RunResult]:
    """Make all runs, `jobs` at once (all cores if left out); return their results in the order of the tasks.

    After Ctrl-C the runs in work stop and give partial results, the others none.

    Raises:
        InputError: a run cannot be made; the others are stopped.
    """
    jobs = min(len(tasks), jobs or os.cpu_count() or 1)
    with _progress(tasks, quiet) as (progress, bars):
        if jobs == 1:
            return _one_by_one(tasks, progress, bars)
        return _side_by_side(tasks, jobs, progress, bars)


def _one_by_one(tasks: Sequence[Task], progress: Progress, bars: Sequence[TaskID]) -> list[RunResult]:
    results: list[RunResult] = []
    for task, bar in zip(tasks, bars, strict=True):
        results.append(run_task(task, lambda step, bar=bar: progress.update(bar, completed=step), lambda: False))  # type: ignore[misc]
        if not results[-1].summary.complete:
            break
    return results


def _longest_first(tasks: Sequence[Task]) -> list[int]:
    """Order tasks so that those that have a split to choose begin first, and the end is not spent waiting for them."""
    return sorted(range(len(tasks)), key=lambda index: not leaves_split_open(tasks[index].settings))


def _side_by_side(tasks: Sequence[Task], jobs: int, progress: Progress, bars: Sequence[TaskID]) -> list[RunResult]:
    context = multiprocessing.get_context("spawn")
    stop, steps = context.Event(), context.Array("q", len(tasks), lock=False)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(stop, steps)) as executor:
        submitted = {index: executor.submit(_work, index, tasks[index]) for index in _longest_first(tasks)}
        futures: list[Future[RunResult]] = [submitted[index] for index in range(len(tasks))]
        pending = set(futures)
        try:
            while pending:
                done, pending = wait(pending, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
                for bar, step in zip(bars, steps, strict=True):
                    progress.update(bar, completed=step)
                for future in done:
                    future.result()
        except BaseException as error:
            stop.set()
            executor.shutdown(wait=True, cancel_futures=True)
            if not isinstance(error, KeyboardInterrupt):
                raise
        return [future.result() for future in futures if not future.cancelled()]
