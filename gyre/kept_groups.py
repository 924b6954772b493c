"""Trained groups that are kept until the updates that used them are durable."""

from __future__ import annotations

from dataclasses import dataclass, field

from .groups import Group


@dataclass(slots=True)
class KeptGroups:
    """Groups that updates after version `durable` used: a restart from a checkpoint trains them again."""

    durable: int = 0  # version of the last checkpoint
    _groups: dict[int, Group] = field(default_factory=dict)

    def keep(self, group: Group) -> None:
        """Keep a group that an update used and that no later one will."""
        self._groups[group.group] = group

    def saved(self, version: int) -> list[Group]:
        """Record that `version` is durable; return the groups that are not needed any more."""
        self.durable = max(self.durable, version)
        done = [group for group in self._groups.values() if group.trained[-1] <= self.durable]
        for group in done:
            del self._groups[group.group]
        return done

    def lost_after(self, version: int) -> list[Group]:
        """Return, and keep no longer, the groups that updates after `version` used."""
        lost = [group for group in self._groups.values() if group.trained[-1] > version]
        for group in lost:
            del self._groups[group.group]
        return lost
