"""Which thread starts next: threads that are ready, in lanes, under the limits on agents.

A lane is a ring with one set of settings; its threads wait in the order in which they got ready.
Lanes take turns. A lane at a limit is not looked at again until an agent that counts for this limit
has ended, so a step costs the same with any number of threads.
"""

from __future__ import annotations

from collections import Counter, deque

from engine.formats.zmailer.scheduling.jobs import (
    FROZEN,
    ClauseSettings,
    Lane,
    Limit,
    RingKey,
    Thread,
)


class AgentSlots:
    """The numbers of running agents: in all, of each channel, of each ring."""

    def __init__(self, most: int) -> None:
        """`most`: as many agents as the limit on open files allows."""
        self.most = most
        self.counts: Counter[str | RingKey] = Counter()

    def take(self, ring: RingKey) -> None:
        """Count an agent of a ring."""
        self.counts.update(("", f"/{ring.channel}", ring))

    def free(self, ring: RingKey) -> None:
        """Count one agent less."""
        for scope in ("", f"/{ring.channel}", ring):
            self.counts[scope] -= 1
            if not self.counts[scope]:
                del self.counts[scope]

    def reached(self, settings: ClauseSettings, ring: RingKey) -> Limit | None:
        """The first limit that another agent would exceed; None if there is none."""
        limits = (
            Limit(">MaxTA", "", min(settings.maxta or self.most, self.most)),
            Limit(">MaxChannel", f"/{ring.channel}", settings.maxchannel),
            Limit(">MaxRing", ring, settings.maxring),
        )
        counts = self.counts
        return next((one for one in limits if one.most and counts[one.scope] >= one.most), None)


class ReadyThreads:
    """All lanes."""

    def __init__(self, slots: AgentSlots) -> None:
        self.slots = slots
        self.is_frozen = False
        self._lanes: dict[RingKey, list[Lane]] = {}
        self._turns: deque[Lane] = deque()
        """Lanes that may start a thread."""
        self._held_up: dict[str | RingKey, dict[int, deque[Lane]]] = {}
        """Lanes at a limit: by its scope, and its number."""
        self._freed: set[str | RingKey] = set()
        """Scopes in which an agent has ended, or more may run."""

    def push(self, thread: Thread) -> None:
        """Let a thread start as soon as the limits allow it, behind the others of its lane."""
        if thread.lane is not None:
            return
        lanes = self._lanes.setdefault(thread.ring, [])
        lane = next((one for one in lanes if one.settings == thread.settings), None)
        if lane is None:
            lane = Lane(thread.ring, thread.settings)
            lanes.append(lane)
        thread.lane, thread.pending = lane, ""
        lane.threads.append(thread)
        if lane.place is None:
            self._turn(lane)

    def reason(self, thread: Thread) -> str:
        """Why a thread does not start now; "" if it does, or is not ready."""
        if thread.lane is None:
            return thread.pending
        if self.is_frozen:
            return FROZEN
        return thread.lane.limit.reason if thread.lane.limit else thread.pending

    def free(self, ring: RingKey) -> None:
        """An agent of a ring has ended."""
        self.slots.free(ring)
        self._freed.update(("", f"/{ring.channel}", ring))

    def next_thread(self) -> Thread | None:
        """The next thread for which another agent may be started; it is ready no longer."""
        while not self.is_frozen and (lane := self._next_lane()):
            if not self._head(lane):
                self._remove(lane)
                continue
            lane.limit = self.slots.reached(lane.settings, lane.ring)
            if lane.limit:
                by_number = self._held_up.setdefault(lane.limit.scope, {})
                lane.place = lanes = by_number.setdefault(lane.limit.most, deque())
                lanes.append(lane)
                continue
            thread = lane.threads.popleft()
            thread.lane = None
            self._turn(lane)
            return thread
        return None

    def next_of_ring(self, ring: RingKey) -> Thread | None:
        """The next ready thread of a ring, for an agent that is there already."""
        for lane in self._lanes.get(ring, ()):
            if not self.is_frozen and self._head(lane):
                thread = lane.threads.popleft()
                thread.lane = None
                return thread
        return None

    def held_up(self) -> list[str]:
        """The scopes whose limit stops ready threads: "" for all agents, /CHANNEL for a channel."""
        return [
            scope
            for scope, by_number in self._held_up.items()
            if isinstance(scope, str) and any(self._has_thread(one) for one in by_number.values())
        ]

    def _has_thread(self, lanes: deque[Lane]) -> bool:
        return any(lane.place is lanes and self._head(lane) for lane in lanes)

    def _head(self, lane: Lane) -> bool:
        """True if a lane has a ready thread; entries of threads that left it are removed first."""
        while lane.threads and lane.threads[0].lane is not lane:
            lane.threads.popleft()
        return bool(lane.threads)

    def _remove(self, lane: Lane) -> None:
        lane.place = None
        self._lanes[lane.ring].remove(lane)
        if not self._lanes[lane.ring]:
            del self._lanes[lane.ring]

    def _turn(self, lane: Lane) -> None:
        lane.place = self._turns
        self._turns.append(lane)

    def _next_lane(self) -> Lane | None:
        while True:
            while self._turns:
                lane = self._turns.popleft()
                if lane.place is self._turns:
                    return lane
            if not self._freed:
                return None
            self._release_lane()

    def _release_lane(self) -> None:
        """Give a turn to one lane whose limit is no longer reached."""
        scope = next(iter(self._freed))
        by_number = self._held_up.get(scope, {})
        for most, lanes in list(by_number.items()):
            while lanes and self.slots.counts[scope] < most:
                lane = lanes.popleft()
                if lane.place is lanes:
                    self._turn(lane)
                    return
            if not lanes:
                del by_number[most]
        self._freed.discard(scope)
        if not by_number:
            self._held_up.pop(scope, None)
