"""Descriptions and fits as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from ..description import Description
from ..fitting import Goodness
from .labels import short_number, titled


def facts_table(description: Description) -> Table:
    """What is not a distribution: counts, groups, waits."""
    table = Table(title=description.source, show_header=False, title_justify="left")
    table.add_column("quantity")
    table.add_column("value")
    for name, value in _facts(description):
        table.add_row(name, value)
    return table


def distribution_table(description: Description) -> Table:
    """Quantiles of every quantity that the trace holds."""
    table = Table(title="Distributions, per execution unless said otherwise", title_justify="left")
    table.add_column("quantity")
    for heading in ("n", "mean", "p50", "p90", "p99", "max"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, law in description.distributions.items():
        figures = (law.mean, law.p50, law.p90, law.p99, law.max)
        table.add_row(titled(name), f"{law.n:,}", *(short_number(figure) for figure in figures))
    return table


def goodness_table(goodness: Goodness) -> Table:
    """Recorded against regenerated, quantity by quantity."""
    table = Table(
        title="Recorded / regenerated from the fit, per execution unless said otherwise", title_justify="left"
    )
    table.add_column("quantity")
    for heading in ("KS", "mean", "p50", "p99"):  # p90 is in the page and the JSON: 80 columns have no room for it
        table.add_column(heading, justify="right", no_wrap=True)
    for row in goodness.comparisons:
        left, right = row.recorded, row.regenerated
        pairs = ((left.mean, right.mean), (left.p50, right.p50), (left.p99, right.p99))
        cells = (f"{short_number(one)} / {short_number(other)}" for one, other in pairs)
        table.add_row(titled(row.quantity), f"{row.ks:.2f}", *cells)
    return table


def _facts(description: Description) -> Iterator[tuple[str, str]]:
    groups = description.groups
    yield "executions", f"{description.executions:,} in {groups.count:,} groups"
    if description.synthetic_executions:
        yield "synthetic", f"{description.synthetic_executions:,} executions; scale: {description.synthetic_scale}"
    yield "calls, tool records", f"{description.calls:,}, {description.tools:,}"
    yield "outcomes", _counts(description.outcomes)
    yield "calls by role", _counts(description.roles)
    yield "calls by relation", _counts(description.relations)
    if description.prefix_reuse is not None:
        yield "prefix reuse, by tokens", f"{description.prefix_reuse:.1%}"
    yield "compactions", f"{description.compactions:,} in {description.compacting_executions:,} executions"
    yield "sub-agents", f"{description.sub_agents:,} in {description.sub_agent_executions:,} executions"
    for kind, waits in description.waits.items():
        if waits.total_s > 0.0:
            yield (
                f"waits: {kind}",
                f"{waits.calls:,} calls, {short_number(waits.total_s)} s, {waits.long_share:.0%} in waits over 60 s",
            )
    if description.mean_reward is not None:
        yield "reward", f"mean {description.mean_reward:.3f}; no spread in {groups.flat} of {groups.rewarded} groups"
    shares = {"duration": groups.between_share_duration, "calls": groups.between_share_calls}
    known = [f"log {name} {share:.0%}" for name, share in shares.items() if share is not None]
    if known:
        yield "variance between groups", ", ".join(known)
    if groups.longest_over_median:
        law = groups.longest_over_median
        yield (
            "longest / median of a group",
            f"p50 {law.p50:.2f}, p90 {law.p90:.2f}, p99 {law.p99:.1f} ({law.n} groups of 4 or more)",
        )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
