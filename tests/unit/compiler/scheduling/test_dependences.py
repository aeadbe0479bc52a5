"""Dependences by ranges of bytes, against a byte-by-byte account."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from motet.compiler.scheduling.dependences import Access, Range, find_dependences
from motet.graphs.order import bit_set, close_order

ranges = st.builds(Range, st.sampled_from("ab"), st.integers(0, 6), st.integers(0, 6))
accesses = st.lists(st.builds(Access, st.lists(ranges, max_size=3), st.lists(ranges, max_size=2)), max_size=12)


def bytes_of(some: list[Range]) -> set[tuple[str, int]]:
    extents = [(str(r.base), int(str(r.begin)), int(str(r.bytes))) for r in some]
    return {(base, byte) for base, begin, size in extents for byte in range(begin, begin + size)}


@given(accesses)
def test_commands_wait_for_those_that_wrote_what_they_touch_and_those_that_read_what_they_write(
    commands: list[Access],
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
    first, behind = Range("arena", n), Range("arena", 64, n)
    unknown = Range("arena", "m", 128)
    assert not first.meets(behind) and not behind.meets(first)
    assert first.meets(unknown) and behind.meets(unknown)
    assert not first.meets(Range("other", n))
    commands = [
        Access(writes=[first]), Access(writes=[behind]), Access(reads=[first]), Access([behind], [unknown]),
        Access(reads=[unknown]),
    ]
    assert close_order(find_dependences(commands)) == [0, 0, 0b1, 0b111, 0b1111]


def test_known_and_unknown_extents_of_one_base_meet() -> None:
    commands = [
        Access(writes=[Range("a", 8)]), Access(writes=[Range("a", 8, 8)]), Access(reads=[Range("a", "n", 0)]),
        Access(writes=[Range("a", 4, 4)]), Access(writes=[Range("a", "n", 0)]),
    ]
    assert close_order(find_dependences(commands)) == [0, 0, 0b11, 0b111, 0b1111]


def test_five_thousand_commands_take_well_under_a_second() -> None:
    random = np.random.default_rng(1)
    separate = [
        Access([Range(int(b), 64) for b in random.integers(0, v, 3)] if v else [], [Range(v, 64)]) for v in range(5000)
    ]
    shared = [
        Access([Range(0, 64, 64 * int(b)) for b in random.integers(0, 500, 3)], [Range(0, 64, 64 * (v % 500))])
        for v in range(5000)
    ]
    for commands in (separate, shared):
        taken: list[float] = []
        for _ in range(3):
            begin = time.process_time()
            find_dependences(commands)
            taken.append(time.process_time() - begin)
        assert min(taken) < 0.5
