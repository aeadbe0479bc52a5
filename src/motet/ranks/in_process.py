"""A transport between threads of one process, for tests, and for devices that one process drives as several ranks."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

from motet.errors import DeviceError, RankFailure
from motet.ranks.transport import Array, MessageRequest


class InProcessWorld:
    """`size` ranks of this process; each thread uses the `transport` of its rank."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.messages: dict[tuple[int, int, int], _Mailbox] = defaultdict(_Mailbox)  # by source, target and tag
        self.gathered: dict[int, dict[int, bytes]] = defaultdict(dict)  # items by round and rank
        self.failed: RankFailure | None = None

    def transport(self, rank: int) -> InProcessTransport:
        """The transport of one rank."""
        return InProcessTransport(self, rank)


@dataclass
class _Letter:
    """A message that was sent or awaited; `moved` are its bytes once both sides exist."""

    data: Array | None
    moved: int | None = None
    error: str = ""


@dataclass
class _Mailbox:
    """Messages sent without a receiver yet, and receivers without a message; one of them is empty."""

    sent: deque[_Letter] = field(default_factory=deque[_Letter])
    awaited: deque[_Letter] = field(default_factory=deque[_Letter])


class InProcessTransport:
    """See `motet.ranks.transport.RankTransport`."""

    def __init__(self, world: InProcessWorld, rank: int) -> None:
        self._world = world
        self.rank = rank
        self.size = world.size
        self._rounds = 0

    def start_send(self, peer: int, tag: int, data: Array) -> MessageRequest:
        message = _Letter(data)
        with self._world.changed:
            channel = self._world.messages[self.rank, peer, tag]
            if channel.awaited:
                _move(message, channel.awaited.popleft())
            else:
                channel.sent.append(message)
        return _InProcessRequest(self._world, message)

    def start_receive(self, peer: int, tag: int, data: Array | None) -> MessageRequest:
        message = _Letter(data)
        with self._world.changed:
            channel = self._world.messages[peer, self.rank, tag]
            if channel.sent:
                _move(channel.sent.popleft(), message)
            else:
                channel.awaited.append(message)
        return _InProcessRequest(self._world, message)

    def gather(self, item: bytes, timeout: float) -> list[bytes]:
        world, end = self._world, time.monotonic() + timeout
        with world.changed:
            number, self._rounds = self._rounds, self._rounds + 1
            items = world.gathered[number]
            items[self.rank] = item
            world.changed.notify_all()
            world.changed.wait_for(lambda: len(items) == world.size or world.failed is not None, end - time.monotonic())
            if len(items) < world.size:
                raise world.failed or missing(sorted(set(range(world.size)) - set(items)), timeout)
            world.gathered.pop(number - 1, None)  # all ranks have left the round before
            return [items[rank] for rank in range(world.size)]

    def broadcast(self, content: bytes | None, root: int, timeout: float) -> bytes:
        return self.gather(content or b"" if self.rank == root else b"", timeout)[root]

    def abort(self, reason: str) -> None:
        with self._world.changed:
            self._world.failed = RankFailure(self.rank, reason)
            self._world.changed.notify_all()

    def close(self) -> None:
        return None


class _InProcessRequest:
    """See `motet.ranks.transport.MessageRequest`."""

    def __init__(self, world: InProcessWorld, message: _Letter) -> None:
        self._world = world
        self._message = message

    def test(self) -> int | None:
        message = self._message
        if message.error:
            raise DeviceError(message.error)
        if message.moved is None and self._world.failed is not None:
            raise RankFailure(self._world.failed.rank, self._world.failed.reason)
        return message.moved


def missing(ranks: list[int], timeout: float) -> RankFailure:
    """The error for ranks that do not take part."""
    names = ", ".join(map(str, ranks))
    reason = f"no answer after {timeout:g} s (of rank{'s' if len(ranks) > 1 else ''} {names})"
    return RankFailure(ranks[0], reason, RankFailure.MISSING)


def _move(sent: _Letter, awaited: _Letter) -> None:
    assert sent.data is not None
    if awaited.data is not None:
        if sent.data.nbytes > awaited.data.nbytes:
            sent.error = awaited.error = (
                f"a message of {sent.data.nbytes} bytes was sent; {awaited.data.nbytes} are expected"
            )
            return
        np.copyto(awaited.data[: sent.data.nbytes], sent.data)
    sent.moved = awaited.moved = sent.data.nbytes
