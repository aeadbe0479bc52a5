"""Byte offsets of the structures that Python fills and the executor reads.

The executor (`executor/source.py`) is generated from this module, so that the two always agree.
"""

from __future__ import annotations

from enum import IntEnum

SUBMITTERS = 64  # threads that run programs with scratch at the same time; others wait
ARENAS = 64  # arenas of a fast call


class PoolLayout(IntEnum):
    """The thread pool; fields written by different threads are in separate cache lines."""

    TICKET = 0  # i64: generation of the job << 32
    DONE = 64  # i32: finished tasks; a futex
    WAITING = 68  # i32: the submitter sleeps on DONE
    FAILED = 72  # i32: a thread could not allocate its scratch
    FUNCTION = 128  # the job: the function to call …
    BUFFERS = 136
    SIZES = 144
    END = 152  # i64: one after the last task
    TARGET = 160  # i64: the number of tasks
    SCRATCH = 168  # i64: scratch bytes per thread
    BASE = 176  # i64: tasks of one share …
    EXTRA = 184  # i64: … and the number of shares, the first ones, with one more
    SLEEPERS = 192  # i32: workers that sleep on the upper half of TICKET
    LOCK = 256  # i32: a submitter uses the pool
    LANES_BUSY = 320  # i64: one bit per submitter's lane
    STOP = 384  # i32
    STARTED = 388  # i32: the workers have started
    SPIN = 392  # i64: pauses before sleep
    SHIFT = 400  # i64: a submitter without the pool runs remaining >> SHIFT tasks, at least one, before it tries again
    WORKERS = 408  # i64: threads besides the submitter
    LANES = 448  # Lane for each submitter, then for each worker


class LaneLayout(IntEnum):
    """Scratch memory of one thread. `SHARE` belongs to a worker; the last submitter's lane holds that of all
    submitters, one of which uses the pool at a time."""

    ADDRESS = 0
    SIZE = 8
    SHARE = 16  # i64: generation of the job << 32 | unclaimed tasks of the thread's share
    STRIDE = 64


# The submitter's share, then the workers'.
SHARES = PoolLayout.LANES + (SUBMITTERS - 1) * LaneLayout.STRIDE + LaneLayout.SHARE


class ProgramLayout(IntEnum):
    POOL = 0
    COMMANDS = 8
    COUNT = 16
    SCRATCH = 24
    MOST_BUFFERS = 32  # of any command
    PARALLEL = 40  # whether any command has more than one task
    STRIDE = 64


class CommandLayout(IntEnum):
    FUNCTION = 0
    TASKS = 8
    REFERENCES = 16  # pairs (external index or -1, byte offset)
    COUNT = 24
    SIZES = 32
    STRIDE = 64


class CallLayout(IntEnum):
    """The data of a fast call."""

    PROGRAM = 0
    INPUTS = 8
    RESULTS = 16
    EXTERNALS = 24
    FALLBACK = 40  # object
    FAILURE = 48  # object; raises when called
    ARRAY_TYPE = 56
    PYARRAY_EMPTY = 64
    RELEASE = 72  # whether the interpreter's lock is released
    DESTINATIONS = 80  # whether destinations may be passed after the inputs
    ARENA_EXTERNAL = 88  # i64: index, or -1
    ARENAS_FREE = 96  # i64: one bit per arena
    ARENAS = 104  # addresses
    SPECS = 112  # Spec for each input, then for each result
    NONE = 120
    STATUSES = 128  # i64: their number
    STATUS_OFFSET = 136  # i64: bytes from the arena's start to the first
    FAILED = 144  # object; raises when called with the address of the first
    STRIDE = 192


class SpecLayout(IntEnum):
    """The required properties of an array."""

    DESCRIPTOR = 0
    RANK = 8  # i32
    FLAGS = 12  # i32
    SHAPE = 16
    EXTERNAL = 24
    BYTES = 32
    INPUT = 40  # of a result: the input it is written to, or -1
    FACTORY = 48  # of a result: object that makes the array, or null
    STRIDE = 64


class ArrayLayout(IntEnum):
    """Fields of numpy's PyArrayObject and of PyObject on 64-bit builds with the interpreter lock."""

    TYPE = 8
    DATA = 16
    RANK = 24  # i32
    SHAPE = 32
    DESCRIPTOR = 56
    FLAGS = 64  # i32
