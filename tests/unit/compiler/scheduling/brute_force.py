"""What is wrong with a schedule, by definition: commands are run, on symbols in place of numbers, in every order that
the schedule allows, and what each reads is compared with what it reads where no two buffers share memory.

A command's symbols are made of its number and of all that it reads, so that a difference anywhere is seen by all that
follow from it. A buffer that a command may write it reads as well if something wrote it before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from motet.artifact.schema import Schedule, Signature

Symbols = np.ndarray[tuple[int], np.dtype[np.int64]]


class BruteForce:
    """A schedule with sizes that are known, taken to be right, and what changes of it do."""

    def __init__(self, schedule: Schedule, signature: Signature) -> None:
        self.signature = signature
        self.sizes = [int(str(buffer.bytes)) for buffer in schedule.buffers]
        self.read: list[list[int]] = []  # by each command
        self.written: list[list[int]] = []
        before: set[int] = set()
        for command in schedule.commands:
            count = 1 if command.op == "copy" else command.reads
            own = command.buffers[count:]
            self.read.append([*command.buffers[:count], *(buffer for buffer in own if buffer in before)])
            self.written.append(own)
            before.update(own)
        self.seen, self.results = self._alone(schedule)

    def _alone(self, schedule: Schedule) -> tuple[list[bytes], list[bytes]]:
        """What every command reads, and the results, with memory of its own for each buffer."""
        memory = [np.full(size, -1 - number) for number, size in enumerate(self.sizes)]
        given: dict[int, Symbols] = {}
        for number, buffer in enumerate(schedule.buffers):
            if buffer.kind == "input":
                memory[number] = given.setdefault(buffer.index, _given(buffer.index, self.sizes[number]))
        seen: list[bytes] = []
        for number in range(len(schedule.commands)):
            seen.append(b"".join(memory[buffer].tobytes() for buffer in self.read[number]))
            for buffer in self.written[number]:
                memory[buffer] = _made(number, buffer, seen[-1], self.sizes[buffer])
        return seen, [memory[number].tobytes() for number in self._results(schedule)]

    @staticmethod
    def _results(schedule: Schedule) -> list[int]:
        return [number for number, buffer in enumerate(schedule.buffers) if buffer.kind == "result"]

    def is_wrong(self, schedule: Schedule, waits: Sequence[set[int]]) -> bool:
        """Whether a changed schedule does something else in one of the orders that `waits` allow."""
        extents = self._extents(schedule)
        size = max((end for _, end in extents), default=0)
        memory = np.full(size, -1)
        for number, (begin, end) in enumerate(extents):
            if schedule.buffers[number].kind == "input":
                memory[begin:end] = _given(schedule.buffers[number].index, end - begin)
        known: set[tuple[int, bytes]] = set()
        left = [(0, memory)]
        while left:
            done, memory = left.pop()
            key = (done, memory.tobytes())
            if key in known:
                continue
            known.add(key)
            ready = [n for n in range(len(waits)) if not done >> n & 1 and all(done >> w & 1 for w in waits[n])]
            for number in ready:
                seen = b"".join(memory[slice(*extents[buffer])].tobytes() for buffer in self.read[number])
                if seen != self.seen[number]:
                    return True
                after = memory.copy()
                for buffer in self.written[number]:
                    after[slice(*extents[buffer])] = _made(number, buffer, seen, self.sizes[buffer])
                left.append((done | 1 << number, after))
            if not ready and done == (1 << len(waits)) - 1:
                ends = [memory[slice(*extents[number])].tobytes() for number in self._results(schedule)]
                if ends != self.results:
                    return True
        return False

    def _extents(self, schedule: Schedule) -> list[tuple[int, int]]:
        """Where each buffer lies in one memory: the arena, then every input and result."""
        bases: dict[tuple[str, int], int] = {}
        end = 1 + max(
            (int(str(b.offset)) + int(str(b.bytes)) for b in schedule.buffers if b.kind == "arena"), default=0
        )
        found: list[tuple[int, int]] = []
        for number, buffer in enumerate(schedule.buffers):
            base = (buffer.kind, 0 if buffer.kind == "arena" else buffer.index)
            if buffer.kind == "result" and (target := self.signature.results[buffer.index].destination) is not None:
                base = ("input", target)
            if base not in bases:
                bases[base] = 0 if base[0] == "arena" else end
                end += 0 if base[0] == "arena" else self.sizes[number] + 1
            begin = bases[base] + int(str(buffer.offset))
            found.append((begin, begin + self.sizes[number]))
        return found


def allowed(schedule: Schedule, *, by_streams: bool) -> list[set[int]]:
    """What each command waits for: what `after` says, or its streams and waits."""
    last: dict[int, int] = {}
    found: list[set[int]] = []
    for number, command in enumerate(schedule.commands):
        own = {last[command.stream]} if command.stream in last else set[int]()
        found.append({*command.waits, *own} if by_streams else set(command.after))
        last[command.stream] = number
    return found


def _given(index: int, size: int) -> Symbols:
    return np.arange(size) + (index + 1) * 1_000_003


def _made(number: int, buffer: int, seen: bytes, size: int) -> Symbols:
    return np.arange(size) + hash((number, buffer, seen)) // 2
