"""Prepared calls as native Python builtins: well under a microsecond from arguments to kernel.

The builtin is a METH_FASTCALL function of the support code. It compares each argument's fields, in place, with the
program's expectations, and runs the program. A call that differs (in class, dtype, shape or layout; with overlapping
destinations or keywords; without a free arena) goes to a Python function with the same arguments.

Reading numpy's structures in place depends on their layout. Fast calls therefore exist only for known layouts: CPython
with the interpreter lock, 64 bits, numpy 2, and a successful self-test of the fields.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
import sys
import sysconfig
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.errors import OutOfMemoryError
from motet.runtime.checks import Statuses
from motet.runtime.drivers.host import layout
from motet.runtime.drivers.host.native import NativeProgram
from motet.runtime.drivers.host.threads import support_code

_METH_FASTCALL_KEYWORDS = 0x80 | 0x02
_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_PYARRAY_EMPTY = 184  # index in numpy's table of C functions, stable since numpy 1.0
_PYTHON_FUNCTIONS = (
    "PyTuple_GetItem", "PyLong_AsVoidPtr", "PyEval_SaveThread", "PyEval_RestoreThread", "PyObject_Vectorcall",
    "PyObject_CallNoArgs", "Py_IncRef", "Py_DecRef", "PyTuple_New", "PyTuple_SetItem", "PyLong_FromVoidPtr",
)


@dataclass(frozen=True)
class FastInput:
    """An argument: a C-contiguous, aligned array whose address becomes external `external` of the program."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    external: int


@dataclass(frozen=True)
class FastResult:
    """A result: a destination that the caller passes; or the array passed as input `input`, written in place; or an
    array from `factory`; or a new numpy array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    external: int
    input: int | None = None
    factory: Callable[[], np.ndarray] | None = None


class MoreArenas:
    """Arenas added to a fast call after its creation, for concurrent calls; at most `MOST`.

    Native code takes and returns bits of one word by atomic instructions. Python has none, but stores single bytes
    atomically: each added arena is the lowest bit of a separate byte, whose other bits never change.
    """

    MOST = 7

    def __init__(self) -> None:
        self._table = (ctypes.c_int64 * layout.ARENAS)()
        self._free = 0  # address of the word
        self._lock = threading.Lock()
        self.count = 0

    def attach(self, call: int, arena: int) -> None:
        """Takes over the arena of a Call."""
        self._table[0] = arena
        self._free = call + layout.CallLayout.ARENAS_FREE
        _store(call + layout.CallLayout.ARENAS, ctypes.addressof(self._table))

    @property
    def all_taken(self) -> bool:
        """Whether a call would find no free arena now."""
        return _word(self._free) == 0

    def add(self, address: int) -> bool:
        """Add an arena, which must live as long as the fast call; False if there are enough."""
        with self._lock:
            if self.count == self.MOST:
                return False
            self.count += 1
            self._table[8 * self.count] = address
            ctypes.c_uint8.from_address(self._free + self.count).value = 1
            return True


@dataclass(frozen=True)
class FastArena:
    """Memory for what lives during a call: external `external` gets `address` or one that was added to `more`, each for
    one call at a time. After a run, a status of `statuses`, which are in the arena, that is not zero becomes an
    error."""

    external: int
    address: int
    more: MoreArenas
    statuses: Statuses | None


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )


def make_fast_call(
    program: NativeProgram,
    inputs: Sequence[FastInput],
    results: Sequence[FastResult],
    fallback: Callable[..., Any],
    *,
    arena: FastArena | None,
    release_lock: bool,
    keep: object,
) -> Callable[..., Any] | None:
    """A builtin `f(*inputs)` or `f(*inputs, *destinations)` that runs `program`; None if it is not available.

    It returns None, the result, or a tuple of results. Destinations may be passed where no result is written in
    place. `release_lock` lets other Python threads run meanwhile, at a cost of about 20 ns. `keep` is held as long as
    the builtin. Safe to call from several threads.
    """
    if not fast_calls_work() or program.externals > 512 or len(results) > 64:
        return None
    held: list[object] = [program, fallback, keep]
    spec_table = _spec_table(inputs, results, held)
    failure = functools.partial(_raise_out_of_memory, program.scratch)
    held.append(failure)
    statuses = None if arena is None else arena.statuses
    failed = None if statuses is None else statuses.raise_at
    held.append(failed)
    arenas = [] if arena is None else [arena.address]
    call = _words([0] * (layout.CallLayout.STRIDE // 8), held)
    for field, value in (
        (layout.CallLayout.PROGRAM, program.address),
        (layout.CallLayout.INPUTS, len(inputs)),
        (layout.CallLayout.RESULTS, len(results)),
        (layout.CallLayout.EXTERNALS, program.externals),
        (layout.CallLayout.FALLBACK, id(fallback)),
        (layout.CallLayout.FAILURE, id(failure)),
        (layout.CallLayout.ARRAY_TYPE, id(np.ndarray)),
        (layout.CallLayout.PYARRAY_EMPTY, _numpy_function(_PYARRAY_EMPTY)),
        (layout.CallLayout.RELEASE, int(release_lock)),
        (layout.CallLayout.DESTINATIONS, int(bool(results) and not _written_in_place(results))),
        (layout.CallLayout.ARENA_EXTERNAL, -1 if arena is None else arena.external),
        (layout.CallLayout.ARENAS_FREE, (1 << len(arenas)) - 1),
        (layout.CallLayout.ARENAS, _words(arenas, held)),
        (layout.CallLayout.SPECS, spec_table),
        (layout.CallLayout.NONE, id(None)),
        (layout.CallLayout.STATUSES, 0 if statuses is None else len(statuses.checks)),
        (layout.CallLayout.STATUS_OFFSET, 0 if statuses is None else statuses.offset),
        (layout.CallLayout.FAILED, id(failed)),
    ):
        _store(call + field, value)
    if arena is not None:
        arena.more.attach(call, arena.address)
        held.append(arena.more)
    return _builtin(call, held)


def _written_in_place(results: Sequence[FastResult]) -> set[int]:
    """The inputs that results are written to."""
    return {result.input for result in results if result.input is not None}


def _spec_table(inputs: Sequence[FastInput], results: Sequence[FastResult], held: list[object]) -> int:
    """The address of what native code compares arguments with: inputs, then results."""
    in_place = _written_in_place(results)
    specs: list[tuple[int, ...]] = []
    for number, item in enumerate(inputs):
        flags = _C_CONTIGUOUS | _ALIGNED | (_WRITEABLE if number in in_place else 0)
        specs.append(_spec(item.dtype, item.shape, item.external, flags, -1, None, held))
    for result in results:
        flags = _C_CONTIGUOUS | _ALIGNED | _WRITEABLE
        place = -1 if result.input is None else result.input
        specs.append(_spec(result.dtype, result.shape, result.external, flags, place, result.factory, held))
    return _words([word for spec in specs for word in spec], held)


@functools.cache
def fast_calls_work() -> bool:
    """Whether this interpreter and numpy have the layout that the native code reads."""
    known = (
        sys.implementation.name == "cpython"
        and not sysconfig.get_config_var("Py_GIL_DISABLED")
        and not hasattr(sys, "getobjects")
        and struct.calcsize("P") == 8
        and np.lib.NumpyVersion(np.__version__) >= "2.0.0"
        and np.__version__.split(".")[0] == "2"
    )
    if not known or not all(hasattr(ctypes.pythonapi, name) for name in _PYTHON_FUNCTIONS):
        return False
    return _fields_agree() and "motet_call" in support_code()


def _fields_agree() -> bool:
    """Compare the fields of arrays of several kinds, read in place, with numpy's attributes."""
    whole = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    locked = np.zeros(5, np.int64)
    locked.flags.writeable = False
    for array in (whole, whole[:, ::2], whole.T, locked, np.zeros((), np.bool_), np.zeros((3, 0), np.int8)):
        at = id(array)
        shape = _word(at + layout.ArrayLayout.SHAPE)
        flags = ctypes.c_int32.from_address(at + layout.ArrayLayout.FLAGS).value
        if not (
            _word(at + layout.ArrayLayout.TYPE) == id(np.ndarray)
            and _word(at + layout.ArrayLayout.DATA) == array.ctypes.data
            and ctypes.c_int32.from_address(at + layout.ArrayLayout.RANK).value == array.ndim
            and tuple(_word(shape + 8 * axis) for axis in range(array.ndim)) == array.shape
            and _word(at + layout.ArrayLayout.DESCRIPTOR) == id(array.dtype)
            and bool(flags & _C_CONTIGUOUS) == array.flags.c_contiguous
            and bool(flags & _ALIGNED) == array.flags.aligned
            and bool(flags & _WRITEABLE) == array.flags.writeable
        ):
            return False
    return True


def _spec(
    dtype: np.dtype[Any], shape: tuple[int, ...], external: int, flags: int, place: int,
    factory: Callable[[], np.ndarray] | None, held: list[object],
) -> tuple[int, ...]:
    """A Spec of layout.py."""
    # Except in rare cases, which take the slow path, an array's dtype object is numpy's own singleton.
    descriptor = np.empty(0, dtype).dtype
    held.extend((descriptor, factory))
    size = math.prod(shape) * dtype.itemsize
    rank_and_flags = len(shape) | flags << 32
    extents = _words(shape, held)
    return (id(descriptor), rank_and_flags, extents, external, size, place, id(factory) if factory else 0, 0)


def _builtin(call: int, held: list[object]) -> Callable[..., Any]:
    address = support_code().address("motet_call")
    definition = _MethodDef(b"run", address, _METH_FASTCALL_KEYWORDS, b"Run a prepared program.")
    held.append(definition)
    new = ctypes.pythonapi["PyCFunction_NewEx"]
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return new(ctypes.addressof(definition), (call, support_code(), *held), None)


def _words(values: Sequence[int], held: list[object]) -> int:
    """The address of an array of 64-bit integers that `held` keeps alive."""
    array = (ctypes.c_int64 * max(1, len(values)))(*values)
    held.append(array)
    return ctypes.addressof(array)


@functools.cache
def _numpy_function(index: int) -> int:
    """The address of a function of numpy's C API."""
    pointer = ctypes.pythonapi["PyCapsule_GetPointer"]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = ctypes.pythonapi["PyCapsule_GetName"]
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    capsule = np._core.multiarray._ARRAY_API  # pyright: ignore
    return _word(pointer(capsule, name(capsule)) + 8 * index)


def _raise_out_of_memory(size: int) -> None:
    raise OutOfMemoryError(size, "host")


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _store(address: int, value: int) -> None:
    ctypes.c_int64.from_address(address).value = value
