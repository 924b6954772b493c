"""The parts of a run put together."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from gyre.buffer.storage import GroupStorage
from gyre.cluster import CellKind, CellSpec
from gyre.controller import Controller
from gyre.report import ResultsFolder
from gyre.scoring.evaluation_log import EvaluationLog
from gyre.scoring.making import make_scorer

from ..cells.cell import Cell
from ..cells.engine_side import EngineSide
from ..cells.local_cells import LocalCells
from ..cells.sides import TrainingSide
from ..cells.trained_weights import KEPT, TrainedWeights
from ..cells.training_sides import CoreSide, SatelliteSide
from ..engines.pool import EnginePool
from ..proxy.limits import Limits
from ..proxy.proxy import Proxy
from ..publishing.publisher import Publisher
from ..publishing.weights import on_disk
from ..run.attempts import Attempts
from ..run.command_rollouts import CommandRollouts
from ..run.driver import RealCluster
from ..run.evaluations import ScoredEvaluations
from ..run.ports import Ports
from ..run.proxy_gateway import ProxyGateway
from ..run.run_journal import RunJournal
from ..run.samples import StoredSamples
from ..run.tasks import TaskList
from ..run.worker import to_its_end
from ..training.cell import TrainingCell
from ..training.checkpoint import Checkpoints
from ..training.elastic_training import ElasticTraining
from ..training.snapshot import SharedSnapshots
from .follower import FollowedBook, RunFollower
from .gauges import RunGauges
from .launcher import Launcher
from .places import Places
from .prepared import Prepared

Said = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Deployment:
    """A run whose parts are put together; `cluster.run` brings cells up and drives it."""

    cluster: RealCluster
    controller: Controller
    proxy: Proxy
    cells: tuple[Cell, ...]
    run: OpenedRun
    core: TrainingCell

    @property
    def output_tokens(self) -> float:
        """Tokens sampled since the proxy is up."""
        return self.proxy.metrics.value("gyre_proxy_output_tokens_total")

    def requests(self) -> dict[int, int]:
        """Return how many requests the engine of each cell runs, by cell; those that are not in the pool left out."""
        pool, members = self.proxy.pool, self.proxy.pool.members()
        names = {cell.spec.cell: cell.serving.name for cell in self.cells}
        return {cell: pool.load(name)[0] for cell, name in names.items() if name in members}

    async def write_model(self) -> None:
        """Write the model of a run that is complete, from its last checkpoint; nothing may use the core any more.

        Raises:
            InputError: the checkpoint is damaged, or the system refuses.
        """
        places, source = self.run.places, self.run.prepared.settings.model.folder
        await to_its_end(asyncio.to_thread(Checkpoints(places.checkpoints).restore, self.core))
        await to_its_end(asyncio.to_thread(self.core.export, places.model, source))


class OpenedRun:
    """A run's folder with its journal read: what there is of it on this disk."""

    def __init__(self, prepared: Prepared, results: ResultsFolder, follower: RunFollower) -> None:
        """Begin a journal, or read the one that is there.

        Raises:
            InputError: it is damaged, or the system refuses.
        """
        self.prepared = prepared
        self.places = Places(results.path.absolute())
        self.follower = follower
        self.controller = prepared.controller()
        book = FollowedBook(TaskList(prepared.tasks), follower)
        self.journal = RunJournal.open(results, self.controller, book)
        follower.live = True

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do."""
        return self.journal.complete and self.places.model.exists()


@asynccontextmanager
async def deployed(run: OpenedRun, launcher: Launcher, said: Said = lambda what: None) -> AsyncIterator[Deployment]:
    """Put a run together for as long as the context lasts. Whatever of it starts is ended with it.

    `said` is told what is being waited for.

    Raises:
        InputError: the folder holds something else, an address cannot be had, or the core's trainer cannot be built.
    """
    settings, places = run.prepared.settings, run.places
    async with AsyncExitStack() as stack:
        places.make()
        launcher.end_leftovers()
        storage = stack.enter_context(GroupStorage(places.samples))
        log = stack.enter_context(EvaluationLog(places.evaluations))
        pool = await stack.enter_async_context(EnginePool(checks=settings.engine.checks))
        said("the proxy is started")
        proxy = Proxy(run.prepared.renderer, pool, places.calls, settings.proxy_settings)
        proxy.metrics.collect_from(RunGauges(run.controller, run.follower))
        await stack.enter_async_context(proxy)
        said("the core's trainer is built")
        core = await stack.enter_async_context(launcher.core())
        gateway = ProxyGateway(proxy, Limits(settings.limits.steps, settings.limits.tokens))
        stack.callback(gateway.close)
        samples = StoredSamples(storage, gateway, settings.path_selection, harness=settings.harness.name)
        stack.callback(samples.close)
        shared = places.shared(4 * core.size)
        stack.callback(shutil.rmtree, shared, ignore_errors=True)
        key = secrets.token_urlsafe()
        training = _training(run, core, samples, key, shared, launcher.host)
        rollouts = CommandRollouts(
            settings.harness_command, gateway, Attempts(places.executions), keep_folders=settings.keep_folders
        )
        scorer = make_scorer(settings.evaluator_settings(), jobs=settings.evaluator_jobs, log=log)
        publisher = Publisher(pool, on_disk(0, settings.model.folder), settings.engine.publishing)
        cells = _cells(run, launcher, publisher, training, key, shared)
        weights = TrainedWeights(
            training, places.weights, settings.model.folder, kept=None if settings.keep_weights else KEPT
        )
        on_cells = LocalCells(cells, publisher, weights, rehearse=settings.cells.rehearse)
        ports = Ports(rollouts, ScoredEvaluations(scorer), samples, on_cells, training)
        said("engines and trainers come up")
        yield Deployment(RealCluster(run.journal, ports), run.controller, proxy, tuple(cells), run, core)


def _training(
    run: OpenedRun, core: TrainingCell, samples: StoredSamples, key: str, shared: Path, host: str
) -> ElasticTraining:
    settings, table = run.prepared.settings, run.prepared.settings.trainer
    return ElasticTraining(
        core,
        run.places.root,
        samples.group,
        key=key,
        selection=settings.path_selection,
        baseline=table.baseline,
        packing=table.packing,
        elastic=table.elastic,
        checkpoints=table.checkpoints,
        shared=SharedSnapshots(shared),
        cursor=lambda: asdict(run.controller.cursor),
        host=host,
    )


def _cells(
    run: OpenedRun, launcher: Launcher, publisher: Publisher, training: ElasticTraining, key: str, shared: Path
) -> list[Cell]:
    settings = run.prepared.settings

    def training_side(spec: CellSpec) -> TrainingSide | None:
        match spec.kind:
            case CellKind.CORE:
                return CoreSide(training)
            case CellKind.SATELLITE:
                return SatelliteSide(launcher.satellite(spec.cell, key, shared), training, spec.cell)
            case CellKind.STANDALONE:
                return None

    return [
        Cell(
            spec,
            EngineSide(launcher.engine(spec.cell), publisher, settings.engine),
            training_side(spec),
            step_s=settings.cells.step_s,
        )
        for spec in settings.specs
    ]
