"""Dependences by ranges of bytes, against a byte-by-byte account."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from motet.compiler.scheduling.dependences import ByteSpan, CommandAccess, find_dependences
from motet.graphs.order import bit_set, close_order

ranges = st.builds(ByteSpan, st.sampled_from("ab"), st.integers(0, 6), st.integers(0, 6))
accesses = st.lists(st.builds(CommandAccess, st.lists(ranges, max_size=3), st.lists(ranges, max_size=2)), max_size=12)


def bytes_of(some: list[ByteSpan]) -> set[tuple[str, int]]:
    extents = [(str(r.base), int(str(r.begin)), int(str(r.bytes))) for r in some]
    return {(base, byte) for base, begin, size in extents for byte in range(begin, begin + size)}


@given(accesses)
def test_commands_wait_for_those_that_wrote_what_they_touch_and_those_that_read_what_they_write(
    commands: list[CommandAccess],
) -> None:
    before = []
    for number, command in enumerate(commands):
        reads, writes = bytes_of(list(command.reads)), bytes_of(list(command.writes))
        earlier = set()
        for other, previous in enumerate(commands[:number]):
            written, read = bytes_of(list(previous.writes)), bytes_of(list(previous.reads))
            if written & (reads | writes) or read & writes:
                earlier.add(other)
        before.append(bit_set(earlier))
    assert close_order(find_dependences(commands)) == close_order(before)


def test_extents_with_symbols_meet_unless_they_are_known_to_lie_apart() -> None:
    n = ["*", "n", 4]
    first, behind = ByteSpan("arena", n), ByteSpan("arena", 64, n)
    unknown = ByteSpan("arena", "m", 128)
    assert not first.meets(behind) and not behind.meets(first)
    assert first.meets(unknown) and behind.meets(unknown)
    assert not first.meets(ByteSpan("other", n))
    commands = [
        CommandAccess(writes=[first]), CommandAccess(writes=[behind]), CommandAccess(reads=[first]), CommandAccess(
            [behind], [unknown]
        ),
        CommandAccess(reads=[unknown]),
    ]
    assert close_order(find_dependences(commands)) == [0, 0, 0b1, 0b111, 0b1111]


def test_known_and_unknown_extents_of_one_base_meet() -> None:
    commands = [
        CommandAccess(writes=[ByteSpan("a", 8)]), CommandAccess(writes=[ByteSpan("a", 8, 8)]), CommandAccess(
            reads=[ByteSpan("a", "n", 0)]
        ),
        CommandAccess(writes=[ByteSpan("a", 4, 4)]), CommandAccess(writes=[ByteSpan("a", "n", 0)]),
    ]
    assert close_order(find_dependences(commands)) == [0, 0, 0b11, 0b111, 0b1111]


def test_five_thousand_commands_take_well_under_a_second() -> None:
    random = np.random.default_rng(1)
    separate = [
        CommandAccess(
            [ByteSpan(int(b), 64) for b in random.integers(0, v, 3)] if v else [], [ByteSpan(v, 64)]
        ) for v in range(5000)
    ]
    shared = [
        CommandAccess(
            [ByteSpan(0, 64, 64 * int(b)) for b in random.integers(0, 500, 3)], [ByteSpan(0, 64, 64 * (v % 500))]
        )
        for v in range(5000)
    ]
    for commands in (separate, shared):
        taken: list[float] = []
        for _ in range(3):
            begin = time.process_time()
            find_dependences(commands)
            taken.append(time.process_time() - begin)
        assert min(taken) < 0.5
