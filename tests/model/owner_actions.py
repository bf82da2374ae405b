"""The owner of a message decides what happens to it."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from celery_sqs_heartbeat.leases.lease import Action, LeaseStatus
from tests.model.receiving import Receiving, picks
from tests.model.truth import Held

DELAYS = (0, 0.5, 60, 50_000, -1)

many_picks = st.lists(picks, min_size=1, max_size=12, unique=True)


class OwnerActions(Receiving):
    """Deletes, releases and lets expire, by known and unknown handles."""

    @precondition(lambda self: self.handles)
    @rule(chosen=many_picks)
    def done(self, chosen: list[int]) -> None:
        for pick in chosen:
            self._done(self._handle(pick))

    def _done(self, handle: str) -> None:
        held = self.world.owner(handle)
        assert self.book.done(handle, self.now) is (held is not None)
        if held is None:
            return
        self.world.finished.add(held.key)
        releasing = self.world.is_under_way(held, Action.RELEASE)
        if held.wanted == "hold" or (held.wanted == "release" and not releasing):
            held.want_deleted(self.now)

    @precondition(lambda self: self.handles)
    @rule(chosen=many_picks, delay=st.sampled_from(DELAYS))
    def release(self, chosen: list[int], delay: float) -> None:
        for pick in chosen:
            self._release(self._handle(pick), delay)

    def _release(self, handle: str, delay: float) -> None:
        held = self.world.owner(handle)
        late = held is not None and not self._is_worth_a_release(held)
        assert self.book.release(handle, delay, self.now) is (held is not None)
        if held is not None and held.wanted == "hold":
            held.want_released(delay, self.now)
            if late:
                self.world.forget(held.key)

    @precondition(lambda self: self.handles)
    @rule(pick=picks)
    def drop(self, pick: int) -> None:
        held = self.world.owner(self._handle(pick))
        self.reported.take(self.book.take_events())
        assert self.book.let_expire(self._handle(pick), self.now) is (held is not None)
        if held is not None:
            self.world.forget(held.key)
            self.reported.drop(held.key)

    @rule()
    def name_a_handle_that_nobody_has(self) -> None:
        assert not self.book.done("unknown", self.now)
        assert not self.book.release("unknown", 0, self.now)
        assert not self.book.let_expire("unknown", self.now)

    def _handle(self, pick: int) -> str:
        """Return one of all handles that ever existed, the newest first."""
        return self.handles[-1 - pick % len(self.handles)]

    def _is_worth_a_release(self, held: Held) -> bool:
        lease = self.book.get(held.handle)
        assert lease is not None
        return (
            self.now < held.expires_at
            and held.is_exclusive
            and not held.lost
            and lease.status not in (LeaseStatus.LOST, LeaseStatus.REFUSED)
        )
