"""Transports and the courier on them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pytest

from motet.errors import DeviceError, RankFailure
from motet.ranks import InProcessWorld, RankTransport
from motet.ranks.conformance import CHECKS, run_checks
from motet.ranks.courier import Courier
from motet.runtime.timeline import HostTimeline

T = TypeVar("T")


def on_ranks(size: int, work: Callable[[RankTransport], T]) -> list[T]:
    """The results of `work` on each rank of this process."""
    world = InProcessWorld(size)
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: work(world.transport(rank)), range(size)))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_transport_within_a_process_conforms(size: int) -> None:
    assert on_ranks(size, run_checks) == [[]] * size


def test_the_suite_finds_a_transport_that_reorders() -> None:
    class Reordering:
        """Swaps every two messages of a channel."""

        def __init__(self, inner: RankTransport) -> None:
            self.inner, self.rank, self.size = inner, inner.rank, inner.size
            self.kept: list[tuple[int, int, np.ndarray]] = []

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

        def start_send(self, peer: int, tag: int, data: np.ndarray) -> object:
            if tag != 5:
                return self.inner.start_send(peer, tag, data)
            self.kept.append((peer, tag, data))
            if len(self.kept) % 2 == 0:
                self.inner.start_send(*self.kept[-1])
                self.inner.start_send(*self.kept[-2])

            class Done:
                def test(self) -> int:
                    return data.nbytes

            return Done()

    found = on_ranks(2, lambda transport: run_checks(Reordering(transport)))  # type: ignore[arg-type]
    assert all("equal_tags_arrive_in_order" in faults[0] for faults in found)
    assert len(CHECKS) == 10


def test_a_rank_that_does_not_come_is_an_error_of_the_others() -> None:
    world = InProcessWorld(3)

    def gather(rank: int) -> str:
        with pytest.raises(RankFailure) as raised:
            world.transport(rank).gather(b"", 0.05)
        return str(raised.value)

    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(gather, (0, 2))) == {"rank 1: no answer after 0.05 s (of rank 1)"}


def test_a_message_is_sent_when_its_waits_are_reached() -> None:
    def work(transport: RankTransport) -> list[int]:
        courier, timeline = Courier(transport, 10), HostTimeline()
        data = np.zeros(3, np.uint8)
        if transport.rank == 1:
            courier.receive(0, 1, data).wait()
            return data.tolist()
        gate = timeline.next()
        point = courier.send(1, 1, data, [gate])
        assert not point.wait(0.05)
        data[:] = 7
        timeline.signal(gate.value)
        point.wait()
        return data.tolist()

    assert on_ranks(2, work) == [[7, 7, 7], [7, 7, 7]]


def test_poison_reaches_the_receiver_and_later_messages_arrive() -> None:
    def work(transport: RankTransport) -> str:
        courier, timeline = Courier(transport, 10), HostTimeline()
        data = np.ones(3, np.uint8)
        if transport.rank == 1:
            with pytest.raises(RankFailure) as raised:
                courier.receive(0, 1, data).wait()
            courier.receive(0, 1, data).wait()
            return str(raised.value)
        gate = timeline.next()
        point = courier.send(1, 1, data, [gate])
        timeline.fail(gate.value, DeviceError("it broke"))
        with pytest.raises(DeviceError, match="it broke"):
            point.wait()
        courier.send(1, 1, data, []).wait()
        return ""

    assert on_ranks(2, work)[1] == "rank 0: it could not compute a value"


def test_a_message_that_does_not_come_is_lost_after_the_time_limit() -> None:
    courier = Courier(InProcessWorld(2).transport(0), 0.05)
    with pytest.raises(RankFailure, match=r"rank 1: message 3 has not come after 0\.05 s"):
        courier.receive(1, 3, np.zeros(1, np.uint8)).wait()


def test_many_threads_wait_for_their_own_messages() -> None:
    def work(transport: RankTransport) -> bool:
        courier, peer = Courier(transport, 20), 1 - transport.rank
        found = [np.zeros(1000, np.uint8) for _ in range(40)]
        sent = [np.full(1000, number, np.uint8) for number in range(40)]

        def one(number: int) -> None:
            receiving = courier.receive(peer, number, found[number])
            courier.send(peer, number, sent[number], []).wait()
            receiving.wait()

        threads = [threading.Thread(target=one, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        courier.close()
        return all((a == b).all() for a, b in zip(found, sent, strict=True))

    assert on_ranks(2, work) == [True, True]
