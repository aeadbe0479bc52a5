"""The other processes of a call that several ranks execute together, as the executor of one rank's part sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from motet.runtime.plans.values import Array
from motet.runtime.timeline import Point


class Peers(Protocol):
    """Messages of one call at a time. Each has a tag, and is sent once and received once."""

    def send(self, peer: int, tag: int, data: Array, waits: Sequence[Point]) -> Point:
        """Send the bytes `data` to rank `peer` once `waits` are reached. `data` must not change until the point is
        reached. If one of `waits` is poisoned, so is the receiver's point."""
        ...

    def receive(self, peer: int, tag: int, data: Array) -> Point:
        """Receive bytes from rank `peer` into `data`."""
        ...

    def fail(self) -> None:
        """End the rest of the call: what was not sent is poisoned at its receivers, and what was not received is
        received and discarded."""
        ...
