"""Runs tasks side by side in processes, with a progress bar a task."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ..errors import InputError
from ..report import RunResult
from ..sim.matched import leaves_split_open
from .interrupt import Interrupt
from .tasks import StoppedError, Task, run_task

_LOOK_S: Final = 0.1

# Set in a worker by `_begin`: what its parent shares with it.
_shared: dict[str, Any] = {}


def _begin(stop: Event, steps: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # they reach the parent too, which asks all workers to stop
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.stdout = sys.stderr  # what a user's policy prints must not get between the figures
    _shared.update(stop=stop, steps=steps)


def _end_with_parent() -> None:
    """End this worker when its parent is gone, however that ended: nobody is left to take its result or give it work.

    A journal's last line may be torn then; the run is made again by --resume.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None  # a worker has one
    parent.join()
    os._exit(1)


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


def run_all(
    tasks: Sequence[Task], interrupt: Interrupt, *, jobs: int | None = None, quiet: bool = False
) -> list[RunResult]:
    """Make all runs, `jobs` at once (all cores if left out); return their results in the order of the tasks.

    When `interrupt` is asked, the runs in work stop and give partial results, those that had not begun none.

    Raises:
        InputError: a run cannot be made; the others are stopped.
    """
    jobs = min(len(tasks), jobs or os.cpu_count() or 1)
    with _progress(tasks, quiet) as (progress, bars), contextlib.redirect_stdout(sys.stderr):
        if jobs == 1:
            return _one_by_one(tasks, progress, bars, interrupt)
        return _side_by_side(tasks, jobs, progress, bars, interrupt)


def _one_by_one(
    tasks: Sequence[Task], progress: Progress, bars: Sequence[TaskID], interrupt: Interrupt
) -> list[RunResult]:
    results: list[RunResult] = []
    for task, bar in zip(tasks, bars, strict=True):

        def on_step(step: int, bar: TaskID = bar) -> None:
            progress.update(bar, completed=step)

        try:
            results.append(run_task(task, on_step, interrupt))
        except StoppedError:
            break
        if interrupt.asked:
            break
    return results


def _longest_first(tasks: Sequence[Task]) -> list[int]:
    """Order tasks so that those that have a split to choose begin first, and the end is not spent waiting for them."""
    return sorted(range(len(tasks)), key=lambda index: not leaves_split_open(tasks[index].settings))


def _side_by_side(
    tasks: Sequence[Task], jobs: int, progress: Progress, bars: Sequence[TaskID], interrupt: Interrupt
) -> list[RunResult]:
    context = multiprocessing.get_context("spawn")
    stop, steps = context.Event(), context.Array("q", len(tasks), lock=False)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(stop, steps)) as executor:
        submitted = {index: executor.submit(_work, index, tasks[index]) for index in _longest_first(tasks)}
        futures: list[Future[RunResult]] = [submitted[index] for index in range(len(tasks))]
        pending = set(futures)
        try:
            while pending and not interrupt.asked:
                done, pending = wait(pending, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
                for bar, step in zip(bars, steps, strict=True):
                    progress.update(bar, completed=step)
                for future in done:
                    future.result()
        except BrokenProcessPool as error:
            raise InputError("a worker process was killed (out of memory?); use fewer --jobs, or --resume") from error
        finally:
            if pending:
                stop.set()
                executor.shutdown(wait=True, cancel_futures=True)
        return [future.result() for future in futures if not future.cancelled() and _made(future)]


def _made(future: Future[RunResult]) -> bool:
    """Whether a run gave a result; raise what went wrong with it, other than that it was stopped before it began."""
    error = future.exception()
    if error is not None and not isinstance(error, StoppedError | BrokenProcessPool):
        raise error
    return error is None
