"""HTML pages of descriptions and fits."""

from __future__ import annotations

from ...arrays import FloatArray
from ..description import Description
from ..fitting import Goodness
from .figures import Rows, histogram_page, overlay_page
from .labels import short_number, titled


def description_page(description: Description, arrays: dict[str, FloatArray]) -> str:
    """Histograms and quantiles; `arrays` as from `distributions_of`."""
    groups = description.groups
    notes = [
        f"{description.executions:,} executions in {groups.count:,} groups, {description.calls:,} calls; "
        f"{description.compactions:,} compactions, {description.sub_agents:,} sub-agents.",
    ]
    if description.synthetic_executions:
        notes.append(f"Synthetic: {description.synthetic_scale}")
    rows: Rows = [("quantity", "n", "mean", "p50", "p90", "p99", "max")]
    rows += [
        (
            titled(name),
            f"{law.n:,}",
            *(short_number(figure) for figure in (law.mean, law.p50, law.p90, law.p99, law.max)),
        )
        for name, law in description.distributions.items()
    ]
    return histogram_page(
        description.source, notes, {name: value for name, value in arrays.items() if len(value)}, rows
    )


def fit_page(name: str, goodness: Goodness) -> str:
    """Recorded against regenerated distributions."""
    recorded, regenerated = goodness.recorded, goodness.regenerated
    rows: Rows = [("quantity: recorded / regenerated", "KS", "mean", "p50", "p90", "p99")]
    for row in goodness.comparisons:
        left, right = row.recorded, row.regenerated
        pairs = ((left.mean, right.mean), (left.p50, right.p50), (left.p90, right.p90), (left.p99, right.p99))
        rows.append(
            (
                titled(row.quantity),
                f"{row.ks:.2f}",
                *(f"{short_number(one)} / {short_number(two)}" for one, two in pairs),
            )
        )
    notes = [
        f"Recorded: {recorded.source}, {recorded.executions:,} executions. "
        f"Regenerated: {regenerated.executions:,} executions.",
        "KS is the Kolmogorov-Smirnov distance. Durations are compared up to the time-outs only.",
    ]
    return overlay_page(f"Fit of profile {name}", notes, goodness.samples, rows)
