"""Counts the instructions of machine code for an Intel GPU, by the decoder of Intel's assembler (libiga64), which
Debian's package of Intel's graphics compiler has, and so has Intel's compute runtime.

How often a loop runs is not known: the instructions between the target of a jump backwards and the jump count
`_ITERATIONS` times. Reference: `kv.h` of Intel's graphics compiler, the interface "KernelView".
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Sequence
from ctypes import c_char_p, c_int, c_int32, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass
from typing import Any

_LIBRARY = "libiga64.so.1"
_ITERATIONS = 16
_NO_MESSAGE = 20  # the status KV_NON_SEND_INSTRUCTION
_TARGETS = 3  # of a jump, at most
_MOST_RECEIVED = 31  # registers that a message writes
_LANE = 4  # bytes
_PRODUCTS = ("mad", "mul", "mac", "dp4a", "dpas", "dpasw")


@dataclass(frozen=True)
class ThreadWork:
    """What a sub-group executes: cycles in which its instructions are issued, messages to memory, how often an
    instruction waits for messages, for all that are under way together, and multiplications of a lane."""

    cycles: int
    messages: int
    waits: int
    products: int


@dataclass(frozen=True)
class _Instruction:
    place: int  # bytes
    lanes: int
    multiplies: bool
    read: frozenset[int]  # registers
    received: frozenset[int] | None  # those that a message writes; None for what is no message
    back_to: int | None  # the first target of a jump backwards


def read_work(code: bytes, isa: int, register_bytes: int) -> ThreadWork | None:
    """The work of a kernel's `code`, for the instruction set that IGA numbers `isa`; a cycle issues a register of
    `register_bytes` bytes. None if the decoder is not installed or does not know the code."""
    library = _library()
    if library is None:
        return None
    status = c_int()
    view = library.kv_create(isa, code, len(code), ctypes.byref(status), None, 0, 0)
    try:
        found = list(_instructions(library, view, isa)) if view and not status.value else []
    finally:
        library.kv_delete(view)
    return _count(found, register_bytes) if found else None


def _count(instructions: Sequence[_Instruction], register_bytes: int) -> ThreadWork:
    loops = [(each.back_to, each.place) for each in instructions if each.back_to is not None]
    cycles = messages = waits = products = 0
    pending: set[int] = set()  # registers that messages under way will write
    for each in instructions:
        times = _ITERATIONS ** sum(begin <= each.place <= end for begin, end in loops)
        cycles += times * max(1, each.lanes * _LANE // register_bytes)
        products += times * each.lanes * each.multiplies
        if not pending.isdisjoint(each.read):
            waits += times
            pending.clear()
        if each.received is not None:
            messages += times
            pending |= each.received
    return ThreadWork(cycles, messages, waits, products)


def _instructions(library: Any, view: int, isa: int) -> Iterator[_Instruction]:
    place, targets = 0, (c_int32 * _TARGETS)()
    while (size := library.kv_get_inst_size(view, place)) > 0:
        count = library.kv_get_inst_targets(view, place, targets)
        back = min((target for target in targets[:count] if target <= place), default=None)
        sources = range(library.kv_get_number_sources(view, place))
        read = frozenset(library.kv_get_source_register(view, place, source) for source in sources)
        received = _received(library, view, place)
        multiplies = _mnemonic(isa, library.kv_get_opcode(view, place)) in _PRODUCTS
        yield _Instruction(place, library.kv_get_execution_size(view, place), multiplies, read, received, back)
        place += size


@functools.cache
def _mnemonic(isa: int, operation: int) -> str:
    library, found, text = _library(), c_void_p(), ctypes.create_string_buffer(32)
    library.iga_opspec_from_op(isa, operation, ctypes.byref(found))
    library.iga_opspec_mnemonic(found, text, ctypes.byref(c_size_t(len(text))))
    return text.value.decode()


def _received(library: Any, view: int, place: int) -> frozenset[int] | None:
    kind, sent, more, received = c_int32(), c_uint32(), c_uint32(), c_uint32()
    if library.kv_get_message_sfid(view, place, ctypes.byref(kind)) == _NO_MESSAGE:
        return None
    library.kv_get_message_len(view, place, *map(ctypes.byref, (sent, more, received)))
    first = library.kv_get_destination_register(view, place)
    count = received.value if received.value <= _MOST_RECEIVED else 0  # which is not known of indirect ones
    return frozenset(range(first, first + count))


@functools.cache
def _library() -> Any:
    """The decoder; None if it is not installed."""
    try:
        found = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    found.kv_create.restype = c_void_p
    found.kv_create.argtypes = [c_int, c_char_p, c_size_t, c_void_p, c_char_p, c_size_t, c_int]
    found.kv_delete.argtypes = [c_void_p]
    arguments = {
        "kv_get_opcode": [], "kv_get_inst_size": [], "kv_get_execution_size": [], "kv_get_number_sources": [],
        "kv_get_destination_register": [], "kv_get_source_register": [c_uint32], "kv_get_inst_targets": [c_void_p],
        "kv_get_message_sfid": [c_void_p], "kv_get_message_len": [c_void_p] * 3,
    }
    for name, others in arguments.items():
        getattr(found, name).argtypes = [c_void_p, c_int32, *others]
    return found
