"""A microkernel as schedules contain it: its meaning, its code and how it is called."""

from __future__ import annotations

from typing import Literal

import msgspec


class Microkernel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A user's code for the innermost loops of a nest. `meaning` is its loop nest (`microkernel.py`), `dtypes` has the
    type of each operand, and `sizes` the dimensions of fixed extents.

    `code` is LLVM IR, or assembly for the CPU level `target`, which defines `symbol`. With the interface `strided`, the
    function takes a pointer for each operand, the result last, then as i64 the strides of the axes of each operand
    without the last axis, in elements, then the extents that are not fixed. With `tasks`, it is a kernel of an
    artifact: it takes arrays of pointers and extents, runs `tasks` tasks, and needs `scratch` bytes; its operands are
    dense, and it reads the result at one address and writes it at another. `checked` names the devices on which its
    results were compared with those of its meaning.
    """

    name: str
    meaning: str
    dtypes: dict[str, str]
    sizes: dict[str, int]
    language: Literal["llvm", "assembly"]
    code: str
    symbol: str
    target: str = ""
    interface: Literal["strided", "tasks"] = "strided"
    tasks: int = 1
    scratch: int = 0
    buffers: list[str] = []
    checked: str = ""
