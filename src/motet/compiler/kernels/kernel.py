"""What a kernel is: one fused unit of work on one device, free of MLIR, as the code generators see it.

A kernel is a list of *stages* over *values*. A stage is a perfectly nested loop (one `linalg.generic`):
an iteration domain, reads and writes through affine maps, a scalar body. Values are the kernel's
arguments, results and temporaries. Stages run in order; what a later stage reads an earlier one wrote.

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
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from motet.artifact.schema import Expr
from motet.compiler.kernels.schedule import KernelSchedule

Size = int | str

EXTENT = "tensor.dim"  # a scalar: the dynamic extent that its `predicate` names

ITEM_BITS = {
    "i1": 8, "i8": 8, "ui8": 8, "i16": 16, "ui16": 16, "i32": 32, "ui32": 32, "i64": 64, "ui64": 64, "index": 64,
    "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "f8E4M3FN": 8, "f8E5M2": 8,
    "complex<f32>": 64, "complex<f64>": 128,
}

FLOATS = ("f16", "bf16", "f8E4M3FN", "f8E5M2", "f32", "f64")


def item_bytes(dtype: str) -> int:
    """Bytes that one element of `dtype` takes in memory (i1 takes one)."""
    return ITEM_BITS[dtype] // 8


@dataclass(frozen=True)
class Value:
    """A tensor of the kernel. `order` is the physical order of its dimensions, outermost first:
    `(0, 2, 3, 1)` stores an NCHW tensor as NHWC. Memory is dense in that order.

    `role`: `argument` and `result` come from outside in the order they stand; a `constant` is an argument
    whose data is known when compiling (it may be packed, see `Packing`); a `temporary` lives in the kernel.
    """

    shape: tuple[Size, ...]
    dtype: str
    role: Literal["argument", "constant", "result", "temporary"]
    order: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class Affine:
    """`constant + sum(coefficients[i] * d_i)` over the dimensions of a stage."""

    coefficients: tuple[int, ...]
    constant: int = 0

    @property
    def is_constant(self) -> bool:
        return not any(self.coefficients)

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions that it depends on."""
        return tuple(d for d, coefficient in enumerate(self.coefficients) if coefficient)

    @property
    def single(self) -> int | None:
        """The dimension, if this is exactly one dimension with factor 1 and no constant."""
        if self.constant == 0 and sum(map(abs, self.coefficients)) == 1 and 1 in self.coefficients:
            return self.coefficients.index(1)
        return None

    def __add__(self, other: Affine) -> Affine:
        return Affine(
            tuple(a + b for a, b in zip(self.coefficients, other.coefficients, strict=True)),
            self.constant + other.constant,
        )

    def scaled(self, factor: int) -> Affine:
        return Affine(tuple(factor * a for a in self.coefficients), factor * self.constant)


@dataclass(frozen=True)
class Access:
    """Element `map(d0, d1, …)` of value `value`. Reads outside the value's extent, possible only where
    `padding` is given, yield that number (a fused `tensor.pad`)."""

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

    `operands` index the body's values: first the stage's inputs, then its outputs' running values
    (reductions), then the results of earlier operations. `arith.constant` carries `value`;
    `linalg.index` carries the dimension in `value`; `arith.cmpf/cmpi` carry the predicate's name in `predicate`.
    `tensor.extract`, in kernels that were read with gathers, has an input first, which reads element 0 of the
    tensor and stands for all of it, then the indices; `tensor.dim`, in these too, is the extent named by `predicate`.
    `check` is the number, from 1, of what the kernel's `checks` say of an index that is outside; 0: none is looked at.
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

    `inits[k]` says what an output holds before the nest: a number (a `linalg.fill`), an access to a value
    of the same shape as the output's (an accumulator initialised by another tensor, e.g. a broadcast bias; over
    the stage's dimensions), or None where the body does not read it.
    """

    sizes: tuple[Size, ...]
    iterators: tuple[Literal["parallel", "reduction"], ...]
    inputs: tuple[Access, ...]
    outputs: tuple[Access, ...]
    inits: tuple[Access | float | int | None, ...]
    body: tuple[Scalar, ...]
    yields: tuple[int, ...]
    source: str = ""  # the operation's name and location, for inspect and for errors

    @property
    def reductions(self) -> tuple[int, ...]:
        return tuple(i for i, kind in enumerate(self.iterators) if kind == "reduction")

    def along(self, entry: Affine) -> int | None:
        """The one dimension that `entry` walks along by ones, from any beginning on; those of extent 1 are left out."""
        found = [d for d in entry.dims if self.sizes[d] != 1]
        return found[0] if len(found) == 1 and entry.coefficients[found[0]] == 1 else None


@dataclass(frozen=True)
class Kernel:
    """`values` lists arguments and constants, then results, then temporaries: the buffers that the compiled
    function receives are the arguments, constants and results in that order, then the workspaces.
    `symbols` are the dynamic extents, in the order in which the compiled function receives them.
    `arguments` says which argument of the kernel's MLIR function each argument and constant is: those that
    no stage reads are left out."""

    name: str
    values: tuple[Value, ...]
    stages: tuple[Stage, ...]
    symbols: tuple[str, ...] = ()
    arguments: tuple[int, ...] = ()
    checks: tuple[str, ...] = ()

    @property
    def externals(self) -> tuple[int, ...]:
        """The values that live outside, in the order of the function's buffers."""
        return tuple(i for i, value in enumerate(self.values) if value.role != "temporary")


@dataclass(frozen=True)
class Packing:
    """A layout for a constant, applied once when compiling.

    The array is brought to `shape` by: transposing with `permutation`, padding each axis with zeros to a multiple
    of `blocks[axis]` (1 leaves it), or of `multiples[axis]` (itself one of the block) where given, splitting each
    such axis in (outer, block), and transposing the split axes (numbered outer0, block0, outer1, block1, …, axes
    with block 1 counting as outer alone with block extent 1) by `split_permutation`. What cannot be said like this
    is packed by the kernel in a phase of its own.
    """

    permutation: tuple[int, ...]
    blocks: tuple[int, ...]
    split_permutation: tuple[int, ...]
    multiples: tuple[int, ...] = ()


@dataclass(frozen=True)
class Phase:
    """One parallel section: `symbol(buffers, sizes, begin, end, scratch)` over `[0, tasks)`.
    A phase begins when the one before has ended. `buffers` are those that it takes of the kernel's, by their
    numbers; None: all."""

    symbol: str
    tasks: Expr
    buffers: tuple[int, ...] | None = None


@dataclass(frozen=True)
class KernelCode:
    """What a code generator returns for a kernel.

    `llvm` is LLVM IR (llvmlite's version) without triple or data layout, defining each phase's symbol as
    `void symbol(ptr buffers, ptr sizes, i64 begin, i64 end, ptr scratch)`: `buffers` is an array of pointers (the
    kernel's externals, then `workspaces`), `sizes` an array of i64 (the kernel's symbols). `scratch` bytes, 64-byte
    aligned, belong to the calling thread; `workspaces` (bytes each, 64-byte aligned) to the whole invocation.
    `packings` maps a constant's index in `Kernel.values` to the layout in which the code expects it. `updates` are
    pairs of an argument and a result, as positions in `buffers`, that may be the same memory. Where a call may fail in
    the kernel, `checks` are the texts of what may fail, and the last buffer, behind the workspaces, is its status:
    words, zero before the call, that a task whose check fails writes to: the check's number, from 1, the index and the
    extent that it compared (an extent of -1: neither). `schedule` is what was chosen for the kernel with the key `key`
    (`key_of`), if its class has schedules.
    """

    kind: str
    llvm: str
    phases: tuple[Phase, ...]
    scratch: int = 0
    workspaces: tuple[Expr, ...] = ()
    packings: dict[int, Packing] = field(default_factory=dict[int, Packing])
    flops: int = 0
    bytes: int = 0
    updates: tuple[tuple[int, int], ...] = ()
    checks: tuple[str, ...] = ()
    key: str = ""
    schedule: KernelSchedule | None = None


def identity_map(rank: int) -> tuple[Affine, ...]:
    return tuple(Affine(tuple(int(i == j) for j in range(rank))) for i in range(rank))


def substitute(outer: Affine, inner: Sequence[Affine], rank: int) -> Affine:
    """`outer(inner_0(d), inner_1(d), …)` over `rank` dimensions."""
    result = Affine((0,) * rank, outer.constant)
    for coefficient, expression in zip(outer.coefficients, inner, strict=True):
        if coefficient:
            result += expression.scaled(coefficient)
    return result


def row_major(rank: int) -> tuple[int, ...]:
    return tuple(range(rank))


def dependencies(body: Sequence[Scalar], inputs: int, wanted: Collection[int]) -> set[int]:
    """`wanted` and every body value, inputs included, that they are computed from."""
    needed = set(wanted)
    for position in range(inputs + len(body) - 1, inputs - 1, -1):
        if position in needed:
            needed.update(body[position - inputs].operands)
    return needed


def structure(kernel: Kernel) -> Kernel:
    """The kernel without what does not change its code: equal structures share one piece of code."""
    stages = tuple(replace(stage, source="") for stage in kernel.stages)
    return replace(kernel, name="", stages=stages, arguments=(), checks=())


def key_of(kernel: Kernel, *context: object) -> str:
    """What a kernel computes, on which extents and layouts, as a name that is the same in every program that has it.
    `context` is what else its code depends on."""
    return hashlib.sha256(repr((structure(kernel), *context)).encode()).hexdigest()[:32]
