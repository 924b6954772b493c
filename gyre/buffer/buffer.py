"""The buffer of ready groups: which may wait, which a step takes, which leave."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ..errors import InputError
from .entry import Entry
from .lengths import LengthClasses
from .removal import Reason, Removal
from .settings import BufferSettings
from .waiting import Held, Waiting


class SampleBuffer:
    """Ready groups between their last score and their last update.

    It has no clock, no randomness of its own and does no I/O: the same calls give the same answers. Each call is
    O(log n) in the groups held, `consumed` in each group that it takes or removes. The samples themselves are
    elsewhere (`GroupStorage`); whoever holds them lets go of those of each `Removal`.

    A step at `version` takes up to `groups_per_step` groups: first those drawn among the used ones, then groups that
    no update has used. What a step has taken, or drawn, counts for no capacity.
    """

    def __init__(self, settings: BufferSettings, groups_per_step: int, *, seed: int = 0) -> None:
        """Make an empty buffer; `seed` keys the draws among used groups.

        Raises:
            InputError: the capacity is less than a step.
        """
        if settings.capacity_groups is not None and settings.capacity_groups < groups_per_step:
            raise InputError(f"capacity_groups: {settings.capacity_groups}, less than the {groups_per_step} of a step")
        self.settings = settings
        self.groups_per_step = groups_per_step
        self.lengths = LengthClasses()
        self.size = 0  # bytes of all groups held
        self._arrived = 0
        self._held: dict[int, Held] = {}
        self._waiting = Waiting(settings, seed)
        self._drawn: list[int] = []  # used groups of the open step, in the order in which it takes them
        self._taken: list[int] = []  # the first of them are the first of `_drawn`
        self._drawn_left = 0  # of `_drawn`, those not taken; kept, since it is asked for at every event

    def __len__(self) -> int:
        """Return the groups held: those that wait, and those of the open step."""
        return len(self._held)

    def __contains__(self, group: object) -> bool:
        """Whether a group is held."""
        return group in self._held

    @property
    def ready(self) -> int:
        """Groups that may still be taken, now or later: those never used, and those drawn for the open step."""
        return self._waiting.fresh.waiting + self._drawn_left

    @property
    def places(self) -> int:
        """Groups that the open step has room for."""
        return self.groups_per_step - len(self._taken)

    def add(self, entry: Entry, version: int) -> list[Removal]:
        """Let a group wait that became ready at `version` updates; return what leaves for it, maybe the group itself.

        Raises:
            ValueError: the group is here already.
        """
        if entry.group in self._held:
            raise ValueError(f"group {entry.group} is in the buffer already")
        self._waiting.version = version
        if not entry.uses:
            self.lengths.of(entry.longest_tokens).offered += 1
        held = self._hold(entry)
        if self._waiting.is_stale(entry):
            return [self._removal(entry.group, Reason.STALE)]
        if not self._waiting.eviction.may_fit(entry):
            return [self._removal(entry.group, Reason.TOO_LARGE)]
        self._waiting.add(held)
        return self._evict()

    def available(self, version: int) -> int:
        """Return how many groups the open step, or the next one, may take now at `version` updates.

        Places kept by `waits_for` are not counted off.

        Raises:
            ValueError: `consumed` was not told of `version`.
        """
        if self._held and version > self._waiting.version:
            raise ValueError(f"asked for version {version}, `consumed` was told of {self._waiting.version}")
        return self._drawn_left + min(self.places - self._drawn_left, self._waiting.fresh.takeable)

    def waits_for(self, pending: Mapping[int, int], version: int) -> int:
        """Return how many `places` of the open step are to be kept for groups that are not ready yet.

        With `on_stale = "wait"`, one is kept for each that would be too stale in the next step, whatever is ready: who
        comes last took longest. The step takes min(available, places - kept) groups now. `pending` counts groups in
        flight by the version at their dispatch.
        """
        if not self._waiting.waits_for_due:
            return 0
        due = pending.get(version - int(self._waiting.most_staleness), 0)
        return min(due, self.places - self._drawn_left)

    def take(self, version: int) -> Entry:
        """Return the group that the open step takes next, at `version` updates.

        Raises:
            LookupError: none is available.
            ValueError: `consumed` was not told of `version`.
        """
        if not self.available(version):
            raise LookupError(f"the step at version {version} may take no group; ask `available` first")
        drawn = self._drawn_left > 0
        group = self._drawn[len(self._taken)] if drawn else self._waiting.fresh.first()
        held = self._held[group]
        if not drawn:
            self._waiting.discard(held)
            self._waiting.fresh.occupy(held.entry.task)
        self._drawn_left -= drawn
        self._taken.append(group)
        return held.entry

    def consumed(self, version: int) -> list[Removal]:
        """End the open step, whose update made `version`, and draw used groups for the next; return what leaves.

        Groups that it took are kept for re-use or leave; then those leave that are too stale, and what is over the
        capacity.
        """
        self._waiting.version = version
        taken = self._end_step()
        removals = [removal for group in taken if (removal := self._count_use(group))]
        removals += [self._removal(held.entry.group, Reason.STALE) for held in self._waiting.discard_stale()]
        removals += self._evict()
        self._waiting.mark_due()
        self._draw()
        return removals

    def put_back(self) -> None:
        """Give up the open step: what it took waits again, and the same used groups are its first ones.

        What waits may then be more than the capacity, until the next `add` or `consumed`.
        """
        drawn = self._drawn
        self._wait_again(self._end_step())
        self._reserve(drawn)

    def roll_back(self, lost: Iterable[tuple[Entry, int]], version: int) -> None:
        """Go back to the weights of `version`, as after a restart of the trainer, and give up the open step.

        `lost` are the groups that later updates used, with all their uses, and how many of these are lost: they wait
        again, also those that had left, in the order in which all became ready. What waits may then be more than the
        capacity, until the next `add` or `consumed`. O(n log n) in the groups held.

        Raises:
            ValueError: a group has fewer uses than are lost.
        """
        self._waiting.version = version
        self._wait_again(self._end_step())
        for held in self._held.values():
            self._waiting.discard(held)
        for entry, uses in lost:
            self._lose_uses(entry, uses)
        entries = sorted((held.entry for held in self._held.values()), key=lambda entry: (entry.ready_s, entry.group))
        self._held = {entry.group: Held(entry, place) for place, entry in enumerate(entries)}
        self._arrived = len(entries)
        self._wait_again(self._held)
        self._draw()

    def _hold(self, entry: Entry) -> Held:
        held = self._held[entry.group] = Held(entry, self._arrived)
        self._arrived += 1
        self.size += entry.size
        return held

    def _removal(self, group: int, reason: Reason) -> Removal:
        """Forget a group that does not wait."""
        entry = self._held.pop(group).entry
        self.size -= entry.size
        if not entry.uses:
            self.lengths.of(entry.longest_tokens).dropped[reason] += 1
        return Removal(group, reason, entry.uses > 0)

    def _evict(self) -> list[Removal]:
        removals = []
        while (group := self._waiting.eviction.victim()) is not None:
            self._waiting.discard(self._held[group])
            removals.append(self._removal(group, Reason.EVICTED))
        return removals

    def _count_use(self, group: int) -> Removal | None:
        """Count that an update used a group; let it wait for another, or forget it."""
        held = self._held[group]
        self.lengths.use(held.entry)
        if not self.settings.older_share or held.entry.uses >= self.settings.max_uses:
            return self._removal(group, Reason.USES)
        if self._waiting.is_stale(held.entry):
            return self._removal(group, Reason.STALE)
        self._waiting.add(held)
        return None

    def _lose_uses(self, entry: Entry, uses: int) -> None:
        if not 0 < uses <= entry.uses:
            raise ValueError(f"group {entry.group} was used {entry.uses} times, {uses} cannot be lost")
        held = self._held.get(entry.group) or self._hold(entry)
        self.lengths.lose_uses(held.entry, uses)

    def _end_step(self) -> list[int]:
        """Empty the open step; return what it took. Drawn groups that it did not take wait again."""
        taken, left = self._taken, self._drawn[len(self._taken) :]
        self._taken, self._drawn, self._drawn_left = [], [], 0
        self._waiting.fresh.next_step()
        self._wait_again(left)
        return taken

    def _wait_again(self, groups: Iterable[int]) -> None:
        for group in groups:
            self._waiting.add(self._held[group])

    def _draw(self) -> None:
        """Choose the used groups of the next step: over many steps, `older_share` of all places."""
        version, share = self._waiting.version, self.settings.older_share * self.groups_per_step
        places = math.floor((version + 1) * share) - math.floor(version * share)
        self._reserve(self._waiting.used.draw(places, version))

    def _reserve(self, groups: list[int]) -> None:
        """Let used groups be the first of the open step; none of them is evicted."""
        for group in groups:
            self._waiting.discard(self._held[group])
            self._waiting.fresh.occupy(self._held[group].entry.task)
        self._drawn, self._drawn_left = groups, len(groups)
