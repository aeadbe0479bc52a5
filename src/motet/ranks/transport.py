"""The contract of transports: messages between the ranks of a run.

A transport belongs to one rank. Its methods may be called from several threads. `conformance.py` checks a transport
against every sentence of this file.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
MOST_TAGS = 32767  # tags are smaller; what MPI guarantees


class MessageRequest(Protocol):
    """A message on its way."""

    def test(self) -> int | None:
        """The bytes of the message if it has ended, else None. Does not block; further calls return the same. Raises
        DeviceError if the message is lost."""
        ...


class RankTransport(Protocol):
    """Messages of one pair of ranks with equal tags arrive in the order in which they were sent. Those with different
    tags, or of different pairs, do not wait for one another."""

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""
        ...

    @property
    def size(self) -> int:
        """The number of ranks."""
        ...

    def start_send(self, peer: int, tag: int, data: Array) -> MessageRequest:
        """Begin to send the contiguous bytes `data` to rank `peer`. They must not change until the request has
        ended, and it may end only when the receiver has begun to receive."""
        ...

    def start_receive(self, peer: int, tag: int, data: Array | None) -> MessageRequest:
        """Begin to receive a message of rank `peer` into `data`, contiguous bytes. The message may be shorter. None
        discards a message of any length."""
        ...

    def gather(self, item: bytes, timeout: float) -> list[bytes]:
        """The items of all ranks, by rank; every rank calls this, and each returns when all have. Raises RankFailure if
        some have not after `timeout` seconds."""
        ...

    def broadcast(self, content: bytes | None, root: int, timeout: float) -> bytes:
        """The content that rank `root` gives; every rank calls this. Raises RankFailure like `gather`."""
        ...

    def abort(self, reason: str) -> None:
        """End the run: other ranks that wait for this one get an error, or are ended by their launcher."""
        ...

    def close(self) -> None:
        """Release resources. Every rank calls this, after its requests have ended."""
        ...
