"""Structs of functions that onnxruntime calls, made of functions of Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import c_void_p
from typing import Any

from motet.onnxruntime.provider.interface import VERSION

_ENTRIES = 32  # more than any of onnxruntime's structs of this version has


class EntryTable:
    """A struct of onnxruntime: the version of the interface, then functions.

    Functions get addresses and integers, 0 for none, and return a status, an address or a number. They must not raise.
    """

    def __init__(self, functions: Mapping[int, tuple[int, Callable[..., int]]]) -> None:
        """`functions` gives each place its number of parameters, the struct's own address included, and a function."""
        self._memory = (c_void_p * _ENTRIES)(VERSION)
        self._callbacks: list[Any] = []
        self._places = tuple(functions)
        for place, (count, function) in functions.items():
            kept = ctypes.CFUNCTYPE(c_void_p, *[c_void_p] * count)(_with_integers(function))
            self._callbacks.append(kept)
            self._memory[place] = ctypes.cast(kept, c_void_p).value

    @property
    def address(self) -> int:
        return ctypes.addressof(self._memory)

    def retire(self, nothing: int) -> None:
        """Replace the functions by one of native code that returns 0, for calls after the end of Python."""
        for place in self._places:
            self._memory[place] = nothing


def _with_integers(function: Callable[..., int]) -> Callable[..., int]:
    return lambda *arguments: function(*(argument or 0 for argument in arguments))


def store(address: int, value: int, index: int = 0) -> None:
    """Store an address in the array or variable at `address`."""
    c_void_p.from_address(address + 8 * index).value = value


def addresses(array: int, count: int) -> list[int]:
    """The addresses in an array."""
    return [value or 0 for value in (c_void_p * count).from_address(array)] if count else []
