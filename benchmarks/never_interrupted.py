"""Is each recorded log-probability that of the weights which the record names, and did any harness see an error?

Reads finished runs of `learning.py`, made with `keep_weights`. For every call of every execution that was trained, the
log-probabilities of its sampled tokens are computed again with transformers, for each version that sampled some of them
with the weights of that version. Prints the largest difference, and ends with exit code 1 where it is above BOUND.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import AutoModelForCausalLM, PreTrainedModel

from gyre.report import RunRecord, read_run
from gyre.trajectory.call import CallRecord
from gyre.trajectory.call_log import CallLog

BOUND: Final = 1e-4
BATCH: Final = 16


class Spoken(NamedTuple):
    """What one version sampled of one call."""

    tokens: npt.NDArray[np.int32]  # (T,) input and output
    places: npt.NDArray[np.int64]  # (S,) of the tokens that the version sampled, within `tokens`
    logprobs: npt.NDArray[np.float32]  # (S,) as recorded


@dataclass(slots=True)
class Compared:
    """How far records and recomputation are apart, over tokens."""

    tokens: int = 0
    calls: int = 0
    mixed: int = 0  # calls that several versions sampled
    largest: float = 0.0
    by_version: dict[int, int] = field(default_factory=dict)


def main() -> int:
    """Compare each run; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    table = Table(
        "run", "trained executions", "calls", "of several versions", "tokens", "versions", "largest difference"
    )
    apart = False
    for folder in parser.parse_args().runs:
        record = read_run(folder).record
        executions = trained(record)
        compared = compare(folder, Path(record.settings["model"]["folder"]), executions)
        apart |= not compared.largest <= BOUND
        table.add_row(
            folder.name,
            f"{len(executions):,}",
            f"{compared.calls:,}",
            f"{compared.mixed:,}",
            f"{compared.tokens:,}",
            str(len(compared.by_version)),
            f"{compared.largest:.1e}",
        )
    Console(width=120).print(table)
    return int(apart)


def trained(record: RunRecord) -> set[int]:
    """Return the executions whose groups were trained."""
    groups = record.groups.filter(pl.col("consumed_s").is_not_null())["group"]
    members = record.executions.filter(pl.col("group").is_in(groups.implode()) & pl.col("lost_reason").is_null())
    return set(members["execution"])


def compare(folder: Path, model: Path, executions: set[int]) -> Compared:
    """Compute all log-probabilities again, version by version."""
    compared = Compared()
    by_version: dict[int, list[Spoken]] = defaultdict(list)
    for call in calls_of(folder, executions):
        found = list(spoken(call))
        compared.calls += 1
        compared.mixed += len(found) > 1
        for version, part in found:
            by_version[version].append(part)
    label = f"{folder.name}, versions"
    for version, parts in track(sorted(by_version.items()), label, console=Console(stderr=True)):
        weights = model if version == 0 else folder / "weights" / f"version-{version}"
        network = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
        parts.sort(key=lambda part: len(part.tokens))
        for begin in range(0, len(parts), BATCH):
            compared.largest = max(compared.largest, largest_difference(network, parts[begin : begin + BATCH]))
        compared.by_version[version] = sum(len(part.places) for part in parts)
    compared.tokens = sum(compared.by_version.values())
    return compared


def calls_of(folder: Path, executions: set[int]) -> Iterator[CallRecord]:
    """Give the recorded calls of some executions.

    Raises:
        ValueError: a call was refused: its record cannot be used.
    """
    for path in sorted((folder / "calls").glob("*.calls")):
        log = CallLog(path)
        log.refresh()
        names = [record.execution for record in log.executions()]  # an attempt that was cut off has no record
        for name in names:
            for call in log.read(name) if int(name.partition("-")[0]) in executions else ():
                if not isinstance(call, CallRecord):
                    raise ValueError(f"{path}: {name}: {call}")
                yield call
        log.close()


def spoken(call: CallRecord) -> Iterator[tuple[int, Spoken]]:
    """Give what each version sampled of a call."""
    assert call.versions is not None, "a call without versions is not trained"
    assert call.logprobs is not None, "nor is one without log-probabilities"
    tokens = np.concatenate((call.input_ids, call.output_ids))
    for version in np.unique(call.versions):
        at = np.flatnonzero(call.versions == version)
        yield int(version), Spoken(tokens, len(call.input_ids) + at, call.logprobs[at])


@torch.no_grad()
def largest_difference(network: PreTrainedModel, parts: Sequence[Spoken]) -> float:
    """Return the largest |recorded - recomputed| over some calls; shorter ones are padded on the right."""
    tokens = torch.zeros((len(parts), max(len(part.tokens) for part in parts)), dtype=torch.long)
    for row, part in enumerate(parts):
        tokens[row, : len(part.tokens)] = torch.from_numpy(part.tokens.astype(np.int64))
    logits = network(tokens).logits
    apart = 0.0
    for row, part in enumerate(parts):
        before = torch.from_numpy(part.places - 1)
        chosen = tokens[row, before + 1]
        again = torch.log_softmax(logits[row, before], dim=-1).gather(1, chosen[:, None])[:, 0].numpy()
        apart = max(apart, float(np.abs(again - part.logprobs).max()))
    return apart


if __name__ == "__main__":
    sys.exit(main())
