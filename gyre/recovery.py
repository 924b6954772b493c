"""How a run goes on after a restart: what is open is commanded again, what the trainer lost is trained again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import commands as cmd
from .buffer.removal import Removal
from .errors import InputError
from .events import RunResumed
from .groups import Group, GroupState
from .pool import entry_of
from .step import StepPhase

if TYPE_CHECKING:
    from .controller import Controller

_READY_AGAIN: Final = frozenset({GroupState.READY, GroupState.TRAINING, GroupState.CONSUMED})


def resume(controller: Controller, event: RunResumed) -> None:
    """Bring a cluster on which nothing runs to where the controller is, or the controller back to older weights.

    Weights come first, then executions from scratch and evaluations, in the order of their numbers, then the open step.

    Raises:
        InputError: the run was not started, or the trainer's version is one that it cannot go on with.
    """
    _refuse_version(controller, event.version)
    controller.fleet.start(event.cells)
    if event.version < controller.version:
        _roll_back(controller, event.version)
    elif event.version > controller.version:
        controller.update_made(event.version)  # it was under way when the run ended
    elif controller.stopped:
        controller.out.put(cmd.StopRun, controller.version)
    elif controller.step.phase is StepPhase.PUBLISHING:
        controller.out.put(cmd.PublishWeights, controller.version)
    if not controller.stopped:
        controller.members.resume()
        controller.restart_step()


def _refuse_version(controller: Controller, version: int) -> None:
    if not controller.fleet.cells:
        raise InputError("the journal holds no RunStarted: there is nothing to go on with; start a new run")
    newest = controller.version + (controller.step.phase is StepPhase.UPDATING)
    if version > newest:
        raise InputError(
            f"the trainer has version {version}, the journal knows of none after {newest}: it belongs to another run "
            "or lost its end; give the trainer a checkpoint of this run that is not newer"
        )
    oldest = controller.kept.durable if controller.settings.keeps_until_checkpoint else controller.version
    if version < oldest:
        raise InputError(
            f"the trainer has version {version}, but what was trained up to version {oldest} is not kept any more; "
            f"give the trainer a checkpoint of version {oldest} to {newest}"
        )


def _roll_back(controller: Controller, version: int) -> None:
    """Go back to the weights of `version`, at a boundary: what later updates and the open step used is ready again."""
    pool = controller.pool
    pool.groups |= {group.group: group for group in controller.kept.lost_after(version)}
    controller.step.give_up()
    controller.stopped = False
    controller.version = version
    controller.published_version = min(controller.published_version, version)
    controller.step.move(StepPhase.PUBLISHING)
    controller.out.put(cmd.PublishWeights, version)
    waiting = [group for group in pool.groups.values() if group.state in _READY_AGAIN]
    before, pool.buffer = pool.buffer, controller.new_buffer()
    pool.buffer.lengths = before.lengths
    removals: list[Removal] = []
    for group in sorted(waiting, key=lambda group: (group.ready_s, group.group)):
        _take_back(controller, group)
        removals += pool.buffer.add(entry_of(group), version)
    controller.remove([*removals, *pool.buffer.consumed(version)])


def _take_back(controller: Controller, group: Group) -> None:
    """Forget the updates that are lost: the group waits as it did before them, and is counted so."""
    uses = len(group.trained)
    group.trained = [made for made in group.trained if made <= controller.version]
    counts = controller.pool.buffer.lengths.of(entry_of(group).longest_tokens)
    if group.trained:
        counts.reused -= uses - len(group.trained)
    else:
        counts.offered -= 1  # the buffer is offered it again
        counts.trained -= uses > 0
        counts.reused -= max(0, uses - 1)
        controller.pool.outstanding_groups += uses > 0
    if group.state is not GroupState.READY:
        group.move(GroupState.READY)
