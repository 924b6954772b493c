"""How a run goes on after a restart: what is open is commanded again, what the trainer lost is trained again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import commands as cmd
from .errors import InputError
from .events import RunResumed
from .step import StepPhase

if TYPE_CHECKING:
    from .controller import Controller


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
    controller.step.give_up()
    controller.stopped = False
    controller.version = version
    controller.published_version = min(controller.published_version, version)
    controller.step.move(StepPhase.PUBLISHING)
    controller.out.put(cmd.PublishWeights, version)
    controller.pool.roll_back(controller.kept.lost_after(version), version)
