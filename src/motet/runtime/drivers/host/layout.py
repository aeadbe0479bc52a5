"""The structures that Python fills and the executor reads: byte offsets and types of their fields.

`python -m motet.runtime.drivers.host.layout` prints them as a C header, from which the executor is built
(`executor/Makefile`), so that the two always agree.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

from motet.artifact.schema import STATUS_BYTES

SUBMITTERS = 64  # threads that run programs with scratch at the same time; others wait
ARENAS = 64  # arenas of a fast call


class StructureLayout(IntEnum):
    """Offsets in a structure; `kind` is the field's type in C. `STRIDE` is the structure's size."""

    kind: str

    def __new__(cls, offset: int, kind: str = "uint64_t") -> Self:
        member = int.__new__(cls, offset)
        member._value_ = offset
        member.kind = kind
        return member


class LaneLayout(StructureLayout):
    """Scratch memory of one thread. `SHARE` belongs to a worker; the last submitter's lane holds that of all
    submitters, one of which uses the pool at a time."""

    ADDRESS = 0, "void *"
    SIZE = 8
    SHARE = 16  # generation of the job << 32 | unclaimed tasks of the thread's share
    STRIDE = 64


class PoolLayout(StructureLayout):
    """The thread pool; fields written by different threads are in separate cache lines."""

    TICKET = 0  # generation of the job << 32
    DONE = 64, "uint32_t"  # finished tasks; a futex
    WAITING = 68, "uint32_t"  # the submitter sleeps on DONE
    FAILED = 72, "uint32_t"  # a thread could not allocate its scratch
    FUNCTION = 128, "kernel *"  # the job: the function to call …
    BUFFERS = 136, "void **"
    SIZES = 144, "const uint64_t *"
    END = 152  # one after the last task
    TARGET = 160  # the number of tasks
    SCRATCH = 168  # scratch bytes per thread
    BASE = 176  # tasks of one share …
    EXTRA = 184  # … and the number of shares, the first ones, with one more
    SLEEPERS = 192, "uint32_t"  # workers that sleep on the upper half of TICKET
    LOCK = 256, "uint32_t"  # a submitter uses the pool
    LANES_BUSY = 320  # one bit per submitter's lane
    STOP = 384, "uint32_t"
    STARTED = 388, "uint32_t"  # the workers have started
    SPIN = 392  # pauses before sleep
    SHIFT = 400  # a submitter without the pool runs remaining >> SHIFT tasks, at least one, before it tries again
    WORKERS = 408  # threads besides the submitter
    LANES = 448, "struct lane []"  # for each submitter, then for each worker


class ProgramLayout(StructureLayout):
    POOL = 0, "struct pool *"
    COMMANDS = 8, "const struct command *"
    COUNT = 16
    SCRATCH = 24
    MOST_BUFFERS = 32  # of any command
    PARALLEL = 40  # whether any command has more than one task
    STRIDE = 64


class CommandLayout(StructureLayout):
    FUNCTION = 0, "kernel *"
    TASKS = 8
    REFERENCES = 16, "const struct reference *"  # pairs (external index or -1, byte offset)
    COUNT = 24
    SIZES = 32, "const uint64_t *"
    STRIDE = 64


class CallLayout(StructureLayout):
    """The data of a fast call."""

    PROGRAM = 0, "const struct program *"
    INPUTS = 8
    RESULTS = 16
    EXTERNALS = 24
    FALLBACK = 40, "PyObject *"
    FAILURE = 48, "PyObject *"  # raises when called
    ARRAY_TYPE = 56, "void *"
    PYARRAY_EMPTY = 64, "array_maker *"
    RELEASE = 72  # whether the interpreter's lock is released
    DESTINATIONS = 80  # whether destinations may be passed after the inputs
    ARENA_EXTERNAL = 88, "int64_t"  # index, or -1
    ARENAS_FREE = 96  # one bit per arena
    ARENAS = 104, "const uint64_t *"  # addresses
    SPECS = 112, "const struct spec *"  # for each input, then for each result
    NONE = 120, "PyObject *"
    STATUSES = 128  # their number
    STATUS_OFFSET = 136  # bytes from the arena's start to the first
    FAILED = 144, "PyObject *"  # raises when called with the address of the first
    STRIDE = 192


class SpecLayout(StructureLayout):
    """The required properties of an array."""

    DESCRIPTOR = 0, "PyObject *"
    RANK = 8, "int32_t"
    FLAGS = 12, "int32_t"
    SHAPE = 16, "const int64_t *"
    EXTERNAL = 24
    BYTES = 32
    INPUT = 40, "int64_t"  # of a result: the input it is written to, or -1
    FACTORY = 48, "PyObject *"  # of a result: makes the array; or null
    STRIDE = 64


class ArrayLayout(StructureLayout):
    """Fields of numpy's PyArrayObject and of PyObject on 64-bit builds with the interpreter lock."""

    TYPE = 8, "void *"
    DATA = 16, "void *"
    RANK = 24, "int32_t"
    SHAPE = 32, "const int64_t *"
    DESCRIPTOR = 56, "PyObject *"
    FLAGS = 64, "int32_t"


# Each after those that it contains.
_STRUCTURES: tuple[type[StructureLayout], ...] = (
    LaneLayout, PoolLayout, ProgramLayout, CommandLayout, CallLayout, SpecLayout, ArrayLayout
)


def header() -> str:
    """The C header that the executor includes."""
    lines = ["/* Made by motet.runtime.drivers.host.layout; change that. */",
             f"enum {{ SUBMITTERS = {SUBMITTERS}, STATUS_BYTES = {STATUS_BYTES} }};"]
    for table in _STRUCTURES:
        name = table.__name__.removesuffix("Layout").lower()
        lines.append(f"struct {name} {{")
        end = 0
        for field in table:
            if field > end:
                lines.append(f"    char unused{end}[{field - end}];")
            if field.name != "STRIDE":
                kind, array, _ = field.kind.partition("[]")
                lines.append(f"    {kind} {field.name.lower()}{array};")
            end = field + (4 if "32" in field.kind else 8)
        lines.append("};")
        lines += [f'_Static_assert(offsetof(struct {name}, {field.name.lower()}) == {field}, "{field.name}");'
                  for field in table if field.name != "STRIDE"]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    print(header(), end="")
