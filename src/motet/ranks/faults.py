"""Injects faults into a transport, for tests: late messages, messages of several peers in another order, lost ones."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from motet.ranks.transport import Array, MessageRequest, RankTransport


class FaultyTransport:
    """See `motet.ranks.transport.RankTransport`. Each message is late by up to `late` seconds, of which `seed` decides;
    so messages to several peers, and those of several tags, overtake one another. Of the messages that are sent, those
    with a number in `dropped` are lost."""

    def __init__(
        self, inner: RankTransport, seed: int, *, late: float = 0.0, dropped: frozenset[int] = frozenset()
    ) -> None:
        self._inner = inner
        self.rank = inner.rank
        self.size = inner.size
        self._random = random.Random(seed * 1000 + inner.rank)
        self._late = late
        self._dropped = dropped
        self._sent = 0
        self._last: dict[tuple[int, int], float] = {}  # by peer and tag: their messages keep their order

    def start_send(self, peer: int, tag: int, data: Array) -> MessageRequest:
        number, self._sent = self._sent, self._sent + 1
        if number in self._dropped:
            return _Dropped(data.nbytes)
        moment = max(time.monotonic() + self._random.uniform(0, self._late), self._last.get((peer, tag), 0.0))
        self._last[peer, tag] = moment
        return _Late(moment, lambda: self._inner.start_send(peer, tag, data))

    def start_receive(self, peer: int, tag: int, data: Array | None) -> MessageRequest:
        return self._inner.start_receive(peer, tag, data)

    def gather(self, item: bytes, timeout: float) -> list[bytes]:
        time.sleep(self._random.uniform(0, self._late))
        return self._inner.gather(item, timeout)

    def broadcast(self, content: bytes | None, root: int, timeout: float) -> bytes:
        return self._inner.broadcast(content, root, timeout)

    def abort(self, reason: str) -> None:
        self._inner.abort(reason)

    def close(self) -> None:
        self._inner.close()


class _Late:
    """A message that is sent at a later moment."""

    def __init__(self, moment: float, start: Callable[[], MessageRequest]) -> None:
        self._moment = moment
        self._start = start
        self._request: MessageRequest | None = None

    def test(self) -> int | None:
        if self._request is None:
            if time.monotonic() < self._moment:
                return None
            self._request = self._start()
        return self._request.test()


class _Dropped:
    """A message that its sender believes sent."""

    def __init__(self, size: int) -> None:
        self._size = size

    def test(self) -> int:
        return self._size
