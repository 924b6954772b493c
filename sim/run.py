"""Simulate one run: settings in, journal entries out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gyre.config import RunSettings
from gyre.controller import Controller
from gyre.errors import InputError
from gyre.journal import Entry
from gyre.workload.load import load_program
from gyre.workload.program import Program

from .cluster import SimCluster
from .hardware_profile import HardwareProfile, load_hardware
from .sampler import GroupSampler


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is ready to be simulated: settings, and what they name, loaded."""

    settings: RunSettings
    program: Program
    hardware: HardwareProfile

    def simulate(self, record: Callable[[Entry], None]) -> Controller:
        """Simulate the run; `record` gets every event and command. Return the controller as it stands at the end.

        Raises:
            InputError: the settings cannot work (no step can be made, a request fits no engine).
        """
        sampler = self.sampler()
        controller = self.controller(sampler)
        SimCluster(self.settings, self.program, self.hardware, controller, record, sampler).run()
        return controller

    def sampler(self) -> GroupSampler:
        """Return what says which executions of the workload a group replays."""
        settings = self.settings
        return GroupSampler(
            self.program, settings.training.group_size, seed=settings.seed, order=settings.workload.order
        )

    def controller(self, sampler: GroupSampler | None = None) -> Controller:
        """Return a new controller for this run; replay of the run's journal needs one."""
        tasks = (sampler or self.sampler()).tasks
        return Controller(self.settings.controller_settings(), self.settings.make_policy(), tasks)

    def with_policy(self, settings: RunSettings) -> Run:
        """Return the same workload under other settings of policy and cluster."""
        return Run(settings, self.program, load_cell(settings))


def prepare(settings: RunSettings) -> Run:
    """Load what the settings name, and check that they fit each other.

    Raises:
        InputError: a file is missing or malformed, or settings contradict each other.
    """
    check(settings)
    run = Run(settings, load_program(settings.workload, settings.training, settings.seed), load_cell(settings))
    run.controller()  # refuses what cannot work with this many tasks
    return run


def load_cell(settings: RunSettings) -> HardwareProfile:
    """Return the hardware of a run, with the cell size that the settings ask for."""
    hardware = load_hardware(settings.cluster.hardware)
    gpus = settings.cluster.gpus_per_cell
    if gpus is None:
        return hardware
    if gpus % hardware.engine.gpus_per_engine:
        raise InputError(
            f"cluster.gpus_per_cell: {gpus} is no multiple of the {hardware.engine.gpus_per_engine} GPUs of an engine "
            f"of {hardware.name}"
        )
    return hardware.model_copy(update={"cell": hardware.cell.model_copy(update={"gpus": gpus})})


def gpus_of(settings: RunSettings) -> int:
    """Return all GPUs of a run, standalone engines included."""
    hardware = load_cell(settings)
    standalone = settings.cluster.standalone_engines * hardware.engine.gpus_per_engine
    return settings.cluster.cells * hardware.cell.gpus + standalone


def check(settings: RunSettings) -> None:
    """Raise InputError where a policy cannot work on the cluster that the settings describe."""
    policy, cluster = settings.make_policy().settings, settings.cluster
    settings.controller_settings().refuse_impossible(policy)
    policy.refuse_impossible(cluster.cells, cluster.standalone_engines)
