"""The checks that every transport passes: `mpiexec -n 3 python -m motet.ranks.conformance`.

A check is a function of a rank's transport, which all ranks run together; its docstring is the sentence of the contract
(`transport.py`) that it checks. It raises TransportFault if the transport violates it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from motet.errors import DeviceError
from motet.ranks.transport import Array, MessageRequest, RankTransport

_TIMEOUT = 30.0


class TransportFault(Exception):
    """The transport violates the contract; the text tells how."""


Check = Callable[[RankTransport], None]


def messages_arrive(transport: RankTransport) -> None:
    """A message has the bytes that were sent, whatever their number."""
    after, before = _neighbours(transport)
    for tag, size in enumerate((0, 1, 7, 4096, 1 << 20)):
        sent, found = _content(transport.rank, size), np.zeros(size, np.uint8)
        receiving = transport.start_receive(before, tag, found)
        sending = transport.start_send(after, tag, sent)
        _expect(_wait(sending), size, "bytes sent")
        _expect(_wait(receiving), size, "bytes received")
        _expect(found.tobytes(), _content(before, size).tobytes(), "the content")


def equal_tags_arrive_in_order(transport: RankTransport) -> None:
    """Messages with equal tags arrive in the order in which they were sent."""
    after, before = _neighbours(transport)
    kept = [np.full(100, number, np.uint8) for number in range(20)]
    sending = [transport.start_send(after, 5, data) for data in kept]
    for number in range(20):
        found = np.zeros(100, np.uint8)
        _wait(transport.start_receive(before, 5, found))
        _expect(int(found[0]), number, "the number of the message")
    for request in sending:
        _wait(request)


def tags_do_not_wait(transport: RankTransport) -> None:
    """A message does not wait for those of other tags that were sent before it."""
    after, before = _neighbours(transport)
    first, second = _content(1, 1 << 20), _content(2, 1 << 20)
    sending = [transport.start_send(after, 1, first), transport.start_send(after, 2, second)]
    for tag, expected in ((2, second), (1, first)):
        found = np.zeros(1 << 20, np.uint8)
        _wait(transport.start_receive(before, tag, found))
        _expect(found.tobytes(), expected.tobytes(), f"the message of tag {tag}")
    for request in sending:
        _wait(request)


def ranks_do_not_wait(transport: RankTransport) -> None:
    """Each rank receives of every other, in any order."""
    others = [rank for rank in range(transport.size) if rank != transport.rank]
    sending = [transport.start_send(rank, 3, _content(transport.rank, 64)) for rank in others]
    for rank in reversed(others):
        found = np.zeros(64, np.uint8)
        _wait(transport.start_receive(rank, 3, found))
        _expect(found.tobytes(), _content(rank, 64).tobytes(), f"the message of rank {rank}")
    for request in sending:
        _wait(request)


def a_message_may_be_shorter(transport: RankTransport) -> None:
    """A shorter message than expected has its own length, and leaves the other bytes as they were."""
    after, before = _neighbours(transport)
    found = np.full(10, 99, np.uint8)
    receiving = transport.start_receive(before, 4, found)
    sending = transport.start_send(after, 4, np.zeros(4, np.uint8))
    _expect(_wait(receiving), 4, "the length")
    _expect(found.tolist(), [0] * 4 + [99] * 6, "the content")
    _wait(sending)


def a_longer_message_is_an_error(transport: RankTransport) -> None:
    """A longer message than expected raises DeviceError at its receiver."""
    after, before = _neighbours(transport)
    sending = transport.start_send(after, 6, np.zeros(64, np.uint8))
    try:
        found = _wait(transport.start_receive(before, 6, np.zeros(8, np.uint8)))
    except DeviceError:
        found = None
    _expect(found, None, "the length of a message of 64 bytes in 8")
    try:
        _wait(sending)
    except DeviceError:
        return  # a sender may learn of it


def any_message_is_discarded(transport: RankTransport) -> None:
    """Without memory, a message of any length is received and dropped, and the next one of its tag follows."""
    after, before = _neighbours(transport)
    sending = [transport.start_send(after, 7, _content(number, size)) for number, size in ((1, 70_000), (2, 9))]
    _expect(_wait(transport.start_receive(before, 7, None)), 70_000, "the length")
    found = np.zeros(9, np.uint8)
    _wait(transport.start_receive(before, 7, found))
    _expect(found.tobytes(), _content(2, 9).tobytes(), "the next message")
    for request in sending:
        _wait(request)


def tests_do_not_block(transport: RankTransport) -> None:
    """Testing a request whose message was not sent returns None at once."""
    after, before = _neighbours(transport)
    found = np.zeros(3, np.uint8)
    begin = time.perf_counter()
    receiving = transport.start_receive(before, 8, found)
    _expect([receiving.test() for _ in range(10)], [None] * 10, "ten tests")
    if time.perf_counter() - begin > 5:
        raise TransportFault("ten tests of a request took more than 5 s")
    transport.gather(b"", _TIMEOUT)  # nobody has sent before
    sending = transport.start_send(after, 8, np.ones(3, np.uint8))
    _expect(_wait(receiving), 3, "the length")
    _expect(receiving.test(), 3, "a further test")
    _wait(sending)


def gathers_have_every_item(transport: RankTransport) -> None:
    """Items of different lengths are gathered by rank, again and again."""
    for number in range(50):
        items = transport.gather(_item(transport.rank, number), _TIMEOUT)
        _expect(items, [_item(rank, number) for rank in range(transport.size)], f"gather {number}")


def broadcasts_have_the_content(transport: RankTransport) -> None:
    """Every rank gets the content of the root, whichever it is."""
    for root in range(transport.size):
        for size in (0, 5, 3_000_000):
            content = _content(root, size).tobytes()
            given = content if transport.rank == root else None
            _expect(transport.broadcast(given, root, _TIMEOUT) == content, True, f"the content of rank {root}")


CHECKS: Sequence[Check] = (
    messages_arrive, equal_tags_arrive_in_order, tags_do_not_wait, ranks_do_not_wait, a_message_may_be_shorter,
    a_longer_message_is_an_error, any_message_is_discarded, tests_do_not_block, gathers_have_every_item,
    broadcasts_have_the_content,
)


def run_checks(transport: RankTransport) -> list[str]:
    """Run all checks; returns what the transport violates, on any rank."""
    found: list[str] = []
    for check in CHECKS:
        fault = ""
        try:
            check(transport)
        except (TransportFault, DeviceError) as error:
            fault = f"{check.__name__}: {error}"
        faults = transport.gather(fault.encode(), _TIMEOUT)
        found += [f"rank {rank}: {text.decode()}" for rank, text in enumerate(faults) if text]
        if any(faults):  # messages may be left on their way
            break
    return found


def _neighbours(transport: RankTransport) -> tuple[int, int]:
    """The ranks after and before this one, in a circle."""
    return (transport.rank + 1) % transport.size, (transport.rank - 1) % transport.size


def _content(seed: int, size: int) -> Array:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def _item(rank: int, number: int) -> bytes:
    return bytes([rank % 256]) * ((rank * 7 + number) % 23)


def _wait(request: MessageRequest) -> int:
    end = time.monotonic() + _TIMEOUT
    while (moved := request.test()) is None:
        if time.monotonic() > end:
            raise TransportFault(f"a message has not arrived after {_TIMEOUT:g} s")
        time.sleep(0)
    return moved


def _expect(actual: object, expected: object, what: str) -> None:
    if actual != expected:
        raise TransportFault(f"{what}: {str(actual)[:80]}; expected {str(expected)[:80]}")


def main() -> int:
    """Check MPI's transport between the processes of the launcher; rank 0 prints what it violates."""
    from motet.ranks.launcher import transport_of_launcher

    transport = transport_of_launcher()
    faults = run_checks(transport)
    if transport.rank == 0:
        print("\n".join(faults) or f"{len(CHECKS)} checks passed on {transport.size} ranks")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
