"""A small journal written by hand; every figure that the tests expect of it can be checked on paper.

Two cells: 0, the core (2 GPUs, capacity 4), and 1 (3 GPUs, capacity 6). Two steps in one burst, one group of two
executions each; a third group is dropped.
"""

from __future__ import annotations

from gyre import commands as cmd
from gyre import events as ev
from gyre.cluster import CellKind, CellRole, CellSpec, CellState
from gyre.journal import Entry, Header

CELLS = (
    CellSpec(cell=0, kind=CellKind.CORE, capacity=4, gpus=2),
    CellSpec(cell=1, kind=CellKind.SATELLITE, capacity=6, gpus=3),
)
HEADER = Header({"policy": "elastic", "seed": 7})


def load(time_s: float, cell: int, busy_s: float) -> ev.LoadReport:
    """A load report that says only how long the cell was busy."""
    return ev.LoadReport(time_s, cell, 0, 0, 0, busy_s, 0.0, 0, 0, 0)


def hand_journal() -> list[Header | Entry]:
    """Return the journal. Times in the comments are when the cells' uses change."""
    return [
        HEADER,
        ev.RunStarted(0.0, CELLS),
        cmd.DispatchGroup(0.0, 0, 0, (0, 1)),
        cmd.DispatchGroup(0.0, 1, 0, (2, 3)),
        cmd.DispatchGroup(0.0, 2, 0, (4, 5)),
        *(cmd.StartExecution(0.0, execution) for execution in range(6)),
        *(ev.ExecutionStarted(2.0, execution, 0) for execution in range(5)),
        ev.ExecutionFinished(10.0, 0, "completed", ((0, 100),)),
        cmd.ScoreExecution(10.0, 0, 0),
        ev.ExecutionFinished(12.0, 1, "harness_timeout", ((0, 50),)),
        cmd.ScoreExecution(12.0, 1, 0),
        ev.ExecutionScored(13.0, 0, True, 1.0, (60,)),
        ev.ExecutionScored(14.0, 1, False, None, ()),
        cmd.ScoreExecution(14.0, 1, 1),
        ev.ExecutionScored(15.0, 1, True, 0.0, (30, 10)),  # group 0 is ready
        cmd.SwitchRole(15.0, 0, CellRole.TRAINING),
        ev.CellChanged(15.0, 0, CellState.TO_TRAINING),  # 0: switching
        load(20.0, 0, 12.0),
        load(20.0, 1, 16.0),
        ev.CellChanged(20.0, 0, CellState.TRAINING),  # 0: waits for samples, for no time
        cmd.OpenStep(20.0, 0),
        cmd.OfferMicroSteps(20.0, 0, 0, 0, 0, ((35, 25), (40,))),
        ev.MicroStepClaimed(20.0, 0, 0, 0),  # 0: trains
        ev.ExecutionLost(21.0, 4, "container lost"),
        cmd.DropGroup(21.0, 2, "too few members"),
        ev.MicroStepDone(26.0, 0, 0, 0),
        ev.MicroStepClaimed(26.0, 0, 0, 1),
        ev.CellChanged(27.0, 1, CellState.TO_TRAINING),  # 1: switching
        ev.CellChanged(29.0, 1, CellState.TRAINING),  # 1: waits; nothing was offered since 20
        ev.MicroStepDone(30.0, 0, 0, 1),
        cmd.CloseJoinWindow(30.0, 0),
        cmd.ApplyUpdate(30.0, 0),  # 0: updates; 1 waited, and waits, for others
        ev.UpdateApplied(32.0, 1),  # both wait for samples
        ev.ExecutionFinished(33.0, 2, "completed", ((0, 30), (1, 10))),
        cmd.ScoreExecution(33.0, 2, 0),
        ev.ExecutionFinished(34.0, 3, "overall_timeout", ((0, 80),)),
        ev.ExecutionScored(36.0, 2, True, 0.5, (25,)),  # group 1 is ready
        cmd.OpenStep(36.0, 1),
        cmd.OfferMicroSteps(36.0, 1, 1, 0, 0, ((25,),)),
        ev.MicroStepClaimed(36.0, 1, 1, 0),  # 1: trains; 0 waits for others
        ev.MicroStepDone(40.0, 1, 1, 0),
        cmd.CloseJoinWindow(40.0, 1),
        cmd.ApplyUpdate(40.0, 1),
        ev.UpdateApplied(41.0, 2),
        cmd.PublishWeights(41.0, 2),  # both publish
        ev.WeightsPublished(44.0, 2),
        cmd.SwitchRole(44.0, 1, CellRole.SERVING),
        ev.CellChanged(44.0, 1, CellState.TO_SERVING),
        ev.CellChanged(47.0, 1, CellState.SERVING),
        ev.CellFailed(48.0, 1),
        cmd.StopRun(50.0, 2),
        ev.CellJoined(60.0, 1),  # after the end: of no account
    ]
