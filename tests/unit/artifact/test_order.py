"""The check of a schedule's order against its definition: of two commands that touch a byte, one of them writing, the
second waits for the first, directly or through others; what is read was written before, as the same buffer."""

from __future__ import annotations

import random

import pytest

from motet.artifact.order import BufferRange, OrderedMemory, check_order
from motet.artifact.schema import Command
from motet.errors import ArtifactError

_SIZE = 12  # bytes of the memory
_RANGES = [BufferRange(0, begin, end, number) for number, (begin, end) in enumerate(
    [(0, 4), (4, 8), (8, 12), (2, 6), (0, 12), (7, 7)]
)]  # fmt: skip


def drawn(rng: random.Random) -> tuple[list[Command], list[list[BufferRange]]]:
    commands, places = list[Command](), list[list[BufferRange]]()
    streams = rng.random() < 0.3
    for number in range(rng.randrange(1, 7)):
        ranges = rng.sample(_RANGES, rng.randrange(1, 4))
        after = [earlier for earlier in range(number) if rng.random() < 0.7]
        waits = [earlier for earlier in range(number) if streams and rng.random() < 0.6]
        commands.append(Command(
            op="dispatch", buffers=[place.buffer for place in ranges], kernel="k", after=after, waits=waits,
            reads=rng.randrange(len(ranges)), stream=rng.randrange(2) if streams else 0,
        ))  # fmt: skip
        places.append(ranges)
    return commands, places


def waited_for(commands: list[Command]) -> list[set[int]]:
    """The commands that have ended when each begins."""
    by_after, by_streams = list[set[int]](), list[set[int]]()
    for number, command in enumerate(commands):
        by_after.append(set(command.after).union(*(by_after[wait] for wait in command.after)))
        same = [earlier for earlier in range(number) if commands[earlier].stream == command.stream]
        direct = {*command.waits, *same[-1:]}
        by_streams.append(direct.union(*(by_streams[wait] for wait in direct)))
    if not any(command.stream or command.waits for command in commands):
        return by_after
    return [one & other for one, other in zip(by_after, by_streams, strict=True)]


def is_right(commands: list[Command], places: list[list[BufferRange]], given: bool) -> bool:
    ended = waited_for(commands)
    touched = [
        [(byte, position >= command.reads, place.buffer) for position, place in enumerate(ranges)
         for byte in range(place.begin, place.end)]
        for command, ranges in zip(commands, places, strict=True)
    ]  # fmt: skip
    for number, touches in enumerate(touched):
        for byte, writes, buffer in touches:
            before = [(n, w, b) for n in range(number) for at, w, b in touched[n] if at == byte]
            if any((writes or w) and n not in ended[number] for n, w, _ in before):
                return False
            written = [b for _, w, b in before if w]
            if not writes and (written[-1] != buffer if written else not given):
                return False
    return all(any(byte == at and w for touches in touched for at, w, _ in touches) for byte in range(_SIZE))


@pytest.mark.parametrize("given", [False, True])
def test_random_orders_are_accepted_where_they_are_right(given: bool) -> None:
    rng, counts = random.Random(5), {True: 0, False: 0}
    memory = OrderedMemory([_SIZE], frozenset({0} if given else ()), [(0, "y")])
    for _ in range(4000):
        commands, places = drawn(rng)
        right = is_right(commands, places, given)
        counts[right] += 1
        try:
            check_order(commands, places, memory, "here")
            accepted = True
        except ArtifactError:
            accepted = False
        assert accepted == right, (commands, places)
    assert min(counts.values()) > 60
