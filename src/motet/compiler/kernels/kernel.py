"""The representation of kernels: one fused unit of work on one device, without MLIR, as code generators see it.

A kernel is a list of *stages* over *values*. A stage is a perfectly nested loop (one `linalg.generic`): an iteration
domain, reads and writes through affine maps, and a scalar body. Values are the kernel's arguments, results and
temporaries. Stages run in order; a stage reads values that earlier stages wrote.

    softmax over 512x1024:
        value 0 argument  512x1024 f32
        value 1 temporary 512                value 2 temporary 512x1024 …
        stage 0: [512 parallel, 1024 reduction]  v1[i]   max= v0[i, j]
        stage 1: [512 parallel, 1024 parallel]   v2[i,j]   = exp(v0[i, j] - v1[i])
        …

A dynamic extent is a symbol (a string); its value reaches the compiled kernel at run time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from motet.compiler.ir.affine import Affine

Size = int | str

EXTENT = "tensor.dim"  # a scalar: the dynamic extent named by its `predicate`

ITEM_BITS = {
    "i1": 8, "i8": 8, "ui8": 8, "i16": 16, "ui16": 16, "i32": 32, "ui32": 32, "i64": 64, "ui64": 64, "index": 64,
    "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "f8E4M3FN": 8, "f8E5M2": 8,
    "complex<f32>": 64, "complex<f64>": 128,
}

FLOATS = ("f16", "bf16", "f8E4M3FN", "f8E5M2", "f32", "f64")


def item_bytes(dtype: str) -> int:
    """The bytes of one element of `dtype` in memory (i1 takes one)."""
    return ITEM_BITS[dtype] // 8


@dataclass(frozen=True)
class Value:
    """A tensor of the kernel. `order` is the physical order of its dimensions, outermost first:
    `(0, 2, 3, 1)` stores an NCHW tensor as NHWC. Memory is dense in that order.

    `role`: `argument` and `result` are external, in the order in which they appear; a `constant` is an argument whose
    data is known when compiling (it may be packed, see `Packing`); a `temporary` is internal to the kernel.
    """

    shape: tuple[Size, ...]
    dtype: str
    role: Literal["argument", "constant", "result", "temporary"]
    order: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class Access:
    """Element `map(d0, d1, …)` of value `value`. Reads out of bounds, possible only with `padding`, yield that number
    (a fused `tensor.pad`)."""

    value: int
    map: tuple[Affine, ...]
    padding: float | int | None = None

    @property
    def dims(self) -> frozenset[int]:
        """The dimensions of the stage that the element depends on."""
        return frozenset(d for entry in self.map for d in entry.dims)


@dataclass(frozen=True)
class Scalar:
    """One operation of a body, in MLIR's name (`arith.addf`, `math.exp`).

    `operands` index the body's values: first the stage's inputs, then its outputs' accumulators (reductions), then the
    results of earlier operations. `arith.constant` has `value`; `linalg.index` has the dimension in `value`;
    `arith.cmpf` and `arith.cmpi` have the predicate's name in `predicate`. `tensor.extract`, in kernels that were read
    with gathers, has as its first operand an input that reads element 0 and stands for the whole tensor, then the
    indices; `tensor.dim`, also in these kernels, is the extent named by `predicate`. `check` is the number, from 1, of
    the kernel's `checks` text for an index out of bounds; 0: the index is not checked.
    """

    op: str
    operands: tuple[int, ...]
    dtype: str
    value: float | int | None = None
    predicate: str = ""
    check: int = 0


@dataclass(frozen=True)
class Stage:
    """One loop nest. `yields[k]` is the body value written to `outputs[k]`.

    `inits[k]` is the content of an output before the nest: a number (a `linalg.fill`), an access to a value of the same
    shape as the output (an accumulator initialised by another tensor, e.g. a broadcast bias; over the stage's
    dimensions), or None if the body does not read it.
    """

    sizes: tuple[Size, ...]
    iterators: tuple[Literal["parallel", "reduction"], ...]
    inputs: tuple[Access, ...]
    outputs: tuple[Access, ...]
    inits: tuple[Access | float | int | None, ...]
    body: tuple[Scalar, ...]
    yields: tuple[int, ...]
    source: str = ""  # the operation's name and location, for inspect and errors
    written: str = ""  # the schedule that the program gives the operation, see `reader/written_schedules.py`

    @property
    def reductions(self) -> tuple[int, ...]:
        return tuple(i for i, kind in enumerate(self.iterators) if kind == "reduction")

    def along(self, entry: Affine) -> int | None:
        """The one dimension that `entry` walks along by ones, from any beginning on; those of extent 1 are left out."""
        found = [d for d in entry.dims if self.sizes[d] != 1]
        return found[0] if len(found) == 1 and entry.coefficient(found[0]) == 1 else None


@dataclass(frozen=True)
class Kernel:
    """`values` lists arguments and constants, then results, then temporaries. The compiled function receives the
    buffers of the arguments, constants and results in that order, then the workspaces. `symbols` are the dynamic
    extents, in the order in which the compiled function receives them. `arguments` maps each argument and constant to
    an argument of the kernel's MLIR function; arguments that no stage reads are omitted."""

    name: str
    values: tuple[Value, ...]
    stages: tuple[Stage, ...]
    symbols: tuple[str, ...] = ()
    arguments: tuple[int, ...] = ()
    checks: tuple[str, ...] = ()

    @cached_property
    def externals(self) -> tuple[int, ...]:
        """The external values, in the order of the function's buffers."""
        return tuple(i for i, value in enumerate(self.values) if value.role != "temporary")


@dataclass(frozen=True)
class Packing:
    """A layout for a constant, applied once when compiling.

    The array is brought to `shape` in four steps: transposition by `permutation`; padding of each axis with zeros to a
    multiple of `blocks[axis]` (1: no padding), or of `multiples[axis]`, itself a multiple of the block, if given; split
    of each such axis into (outer, block); and transposition of the split axes (numbered outer0, block0, outer1, block1,
    …, where an axis with block 1 has block extent 1) by `split_permutation`. Other layouts are packed by the kernel in
    a separate phase.
    """

    permutation: tuple[int, ...]
    blocks: tuple[int, ...]
    split_permutation: tuple[int, ...]
    multiples: tuple[int, ...] = ()
    merged: int = 1


def with_extents(kernel: Kernel, extents: Mapping[str, int]) -> Kernel:
    """`kernel` with numbers for its dynamic extents; those in bodies remain."""

    def known(sizes: tuple[Size, ...]) -> tuple[Size, ...]:
        return tuple(extents[size] if isinstance(size, str) else size for size in sizes)

    stages = tuple(replace(stage, sizes=known(stage.sizes)) for stage in kernel.stages)
    values = tuple(replace(value, shape=known(value.shape)) for value in kernel.values)
    return replace(kernel, values=values, stages=stages)


def known_product(sizes: Iterable[Size | None]) -> int | None:
    """The product of `sizes`; None if one of them is not known."""
    count = 1
    for size in sizes:
        if not isinstance(size, int):
            return None
        count *= size
    return count


def row_major(rank: int) -> tuple[int, ...]:
    return tuple(range(rank))


def dependencies(body: Sequence[Scalar], inputs: int, wanted: Collection[int]) -> set[int]:
    """`wanted` and every body value, inputs included, that they are computed from."""
    needed = set(wanted)
    for position in range(inputs + len(body) - 1, inputs - 1, -1):
        if position in needed:
            needed.update(body[position - inputs].operands)
    return needed


_STEPS = frozenset({
    "arith.cmpf", "arith.fptosi", "arith.fptoui", "math.ceil", "math.floor", "math.round", "math.roundeven",
    "math.trunc",
})  # fmt: skip


def decisive(body: Sequence[Scalar], inputs: int) -> set[int]:
    """The body values whose last bit may decide: integers or truth values are computed from them."""
    wanted = {operand for scalar in body if scalar.op in _STEPS for operand in scalar.operands}
    return dependencies(body, inputs, wanted)


def structure(kernel: Kernel) -> Kernel:
    """The kernel without properties that do not affect its code: kernels of equal structure share code."""
    stages = tuple(replace(stage, source="") for stage in kernel.stages)
    return replace(kernel, name="", stages=stages, arguments=(), checks=())


def key_of(kernel: Kernel, *context: object) -> str:
    """A name for the kernel's computation with its extents and layouts, equal in all programs that contain it.
    `context` is what its code depends on besides."""
    stages = tuple(replace(stage, written="") for stage in kernel.stages)
    return hashlib.sha256(repr((structure(replace(kernel, stages=stages)), *context)).encode()).hexdigest()[:32]
