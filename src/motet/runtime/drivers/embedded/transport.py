"""What a way to reach an embedded device must offer. The device's memory holds the mailbox (`protocol.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Transport(Protocol):
    """A device that has been started. Methods raise LinkLost; one thread uses it at a time."""

    def read(self, address: int, size: int) -> bytes: ...

    def write(self, address: int, data: bytes) -> None: ...

    def run(self, limit: float, aborted: Callable[[], bool]) -> bool:
        """Run the batch in the mailbox, and wait for its end; False if it has not ended after `limit` seconds, or when
        `aborted` returned true. Call `finish` then."""
        ...

    def finish(self, limit: float) -> bool:
        """End the running batch, and wait for its end for `limit` seconds; False if it has not ended."""
        ...

    def close(self) -> None: ...
