"""How much of a quantity's variance lies between groups, between members of a group, and within a member."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...arrays import FloatArray, Int64Array

FEW: Final = 5


def between_group_share(value: FloatArray, group: Int64Array) -> float | None:
    """Share of the variance of `value` that lies between groups, from a one-way analysis of variance.

    Groups of one member are left out. None if no group has two members or nothing varies.
    """
    components = variance_components(value, group)
    if components is None or sum(components) <= 0.0:
        return None
    return components[0] / sum(components)


def variance_components(value: FloatArray, group: Int64Array) -> tuple[float, float] | None:
    """Variance between and within groups: method of moments for unequal groups (Searle, Casella & McCulloch 1992, 3.6).

    Only groups of two or more members count; None if there are fewer than two of those. The between part is at least 0.
    """
    _, code = np.unique(group, return_inverse=True)
    size = np.bincount(code)
    keep = size[code] >= 2
    _, code = np.unique(code[keep], return_inverse=True)
    value = value[keep]
    size = np.bincount(code).astype(np.float64)
    groups, count = len(size), len(value)
    if groups < 2:
        return None
    mean = np.bincount(code, value) / size
    within = float(np.sum((value - mean[code]) ** 2) / (count - groups))
    between_square = float(np.sum(size * (mean - value.mean()) ** 2) / (groups - 1))
    typical = (count - np.sum(size**2) / count) / (groups - 1)
    return max(0.0, float((between_square - within) / typical)), within


def nested_components(value: FloatArray, member: Int64Array, group_of_member: Int64Array) -> tuple[float, float, float]:
    """Variance between groups, between members of a group, and within members.

    Args:
        value: one a call.
        member: the member (0, 1, ...) of each value.
        group_of_member: the group of each member.

    Members with fewer than `FEW` values say too little of their own mean and are left out of the first two. Where no
    group has two members, the whole variance between members is counted as theirs.
    """
    size = np.bincount(member, minlength=len(group_of_member)).astype(np.float64)
    mean = np.bincount(member, value, minlength=len(size)) / np.maximum(size, 1.0)
    spread = float(np.sum((value - mean[member]) ** 2))
    within = spread / max(1, len(value) - int(np.count_nonzero(size)))
    known = size >= FEW
    if np.count_nonzero(known) < 2:
        return 0.0, 0.0, within
    noise = within * float(np.mean(1.0 / size[known]))  # what the spread of calls adds to the variance of means
    components = variance_components(mean[known], group_of_member[known])
    if components is None:
        return 0.0, max(0.0, float(np.var(mean[known], ddof=1)) - noise), within
    return components[0], max(0.0, components[1] - noise), within
