"""The cost of an operation: its class, its arithmetic, the bytes of its tensors.

Dynamic extents are assumed to be `DYNAMIC_EXTENT`, unknown trip counts `TRIPS`; both branches of an `if` are counted.
An elementary function counts as the operations of its polynomial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from motet.artifact.dtypes import DTYPES
from motet.compiler.ir._mlir import indexing_maps, ir
from motet.compiler.ir.attributes import constant_number
from motet.compiler.ir.devices import TRANSFER_OP
from motet.compiler.kernels.roles import ALIASES, Role
from motet.compiler.passes.fuse.rules import WRITTEN, Space

DYNAMIC_EXTENT = 128
TRIPS = 16

Kind = Literal[
    "contraction", "convolution", "elementwise", "reduction", "generic",
    "view", "slice", "alias", "transfer",  # without arithmetic
]
WORKING = ("contraction", "convolution", "elementwise", "reduction", "generic")

_MULTIPLY_ADDS = (["arith.mulf", "arith.addf"], ["arith.muli", "arith.addi"])
_ELEMENTARY = 12
_DIVISION = 4
_CHEAP = ("math.absf", "math.absi", "math.copysign", "math.fma", "math.floor", "math.ceil", "math.roundeven")


@dataclass(frozen=True)
class Cost:
    """`operations` are arithmetic operations on 32-bit floats; `role` and `space` are those of grouping."""

    kind: Kind
    operations: float = 0.0
    role: Role = Role.OPAQUE
    space: Space = field(default_factory=Space)


def cost_of(operation: ir.Operation) -> Cost:
    """The cost of an operation that is not inside the body of another one."""
    name = operation.name
    if name == TRANSFER_OP:
        return Cost("transfer")
    if name in ALIASES:
        return Cost("alias")
    if name == "tensor.extract_slice":
        return Cost("slice")
    if name.startswith("linalg.") and len(operation.regions) and len(operation.results):
        return _linalg_cost(operation)
    if name.startswith(("arith.", "math.")) and name != "arith.constant":
        return _element_by_element(operation)
    if name == "tensor.pad" and _is_read_by_windows(operation):
        return Cost("view")
    if name in ("tensor.pad", "tensor.insert_slice", "tensor.concat"):
        return Cost("elementwise", 0.0, Role.ELEMENTWISE, Space(_written(operation)))
    return Cost("generic", _nested(operation))


def _is_read_by_windows(pad: ir.Operation) -> bool:
    """Whether all readers are convolutions and pools, which pad while they read."""
    users = [use.owner.operation for use in pad.results[0].uses]
    return bool(users) and all(
        user.name.startswith("linalg.") and len(user.regions)
        and _linalg_cost(user).kind in ("convolution", "reduction")
        for user in users
    )


def bytes_of(kind: ir.Type) -> int:
    """The bytes of a value of type `kind`; 0 for scalars."""
    if not isinstance(kind, ir.ShapedType):
        return 0
    spelling = str(kind.element_type)
    width = DTYPES[spelling].itemsize if spelling in DTYPES else 8
    return prod(extents_of(kind)) * width


def extents_of(kind: ir.Type) -> tuple[int, ...]:
    """The extents of a tensor, with `DYNAMIC_EXTENT` for dynamic ones."""
    if not isinstance(kind, ir.RankedTensorType):
        return ()
    return tuple(
        DYNAMIC_EXTENT if kind.is_dynamic_dim(axis) else kind.shape[axis] for axis in range(kind.rank)
    )


def is_dynamic(kind: ir.Type) -> bool:
    return isinstance(kind, ir.RankedTensorType) and not kind.has_static_shape


# -- linalg --------------------------------------------------------------------------------------


def _linalg_cost(operation: ir.Operation) -> Cost:
    maps = indexing_maps(operation)
    body = [entry.operation for entry in operation.regions[0].blocks[0].operations]
    if maps is None or any(len(inner.regions) or inner.name == "tensor.extract" for inner in body):
        return Cost("generic", _nested(operation))
    singles = [[_dimension(e) for e in ir.AffineMapAttr(each).value.results] for each in maps]
    extents = _loops(operation, singles)
    written = [dim for dim in singles[-1] if dim is not None]
    reduced = [dim for dim in extents if dim not in written]
    kept = [dim for dim in sorted(extents) if extents[dim] != 1]
    points = prod(extents.values())
    kind = _kind(operation, body, singles, bool(reduced))
    if kind == "view":
        return Cost(kind)
    role = Role.WINDOW if kind == "reduction" and any(None in map_ for map_ in singles) else Role(kind)
    if role in WRITTEN:  # in the order of the tensor's dimensions
        space = Space(tuple(extents[dim] for dim in written if extents[dim] != 1))
    else:
        positions = frozenset(position for position, dim in enumerate(kept) if dim in reduced)
        space = Space(tuple(extents[dim] for dim in kept), positions)
    arithmetic = 2.0 if kind in ("contraction", "convolution") else max(1.0, _arithmetic(body))
    return Cost(kind, points * arithmetic * _width(operation), role, space)


def _element_by_element(operation: ir.Operation) -> Cost:
    """The cost of element-wise arithmetic on tensors."""
    written = _written(operation)
    points = prod(written) * max(1.0, _arithmetic([operation])) * _width(operation)
    return Cost("elementwise", points, Role.ELEMENTWISE, Space(written))


def _kind(
    operation: ir.Operation, body: Sequence[ir.Operation], singles: Sequence[Sequence[int | None]], reduces: bool
) -> Kind:
    inputs = [operand for operand in operation.operands if isinstance(operand.type, ir.ShapedType)]
    if not reduces:
        copies = len(body) == 1 and len(inputs) == 2 and None not in singles[0]
        arguments = operation.regions[0].blocks[0].arguments
        return "view" if copies and body[0].operands[0] == arguments[0] else "elementwise"
    names = [inner.name for inner in body if not inner.name.startswith(("arith.ext", "linalg.yield"))]
    if len(singles) == 3 and names in _MULTIPLY_ADDS:
        return "convolution" if any(None in map_ for map_ in singles) else "contraction"
    return "reduction"


def _dimension(expression: ir.AffineExpr) -> int | None:
    return expression.position if isinstance(expression, ir.AffineDimExpr) else None


def _loops(operation: ir.Operation, singles: Sequence[Sequence[int | None]]) -> dict[int, int]:
    """The extent of every loop, from the tensors that it indexes."""
    found: dict[int, int] = {}
    for operand, dims in zip(operation.operands, singles, strict=True):
        for extent, dim in zip(extents_of(operand.type), dims, strict=False):
            if dim is not None:
                found.setdefault(dim, extent)
    return found


def _width(operation: ir.Operation) -> float:
    """The cost of an operation on this type relative to 32-bit floats."""
    spelling = str(getattr(operation.results[0].type, "element_type", ""))
    return 2.0 if spelling in ("f64", "i64") else 1.0


# -- bodies --------------------------------------------------------------------------------------


def _arithmetic(body: Sequence[ir.Operation]) -> float:
    total = 0.0
    for inner in body:
        name = inner.name
        if name.startswith("math.") and name not in _CHEAP:
            total += _ELEMENTARY
        elif name in ("arith.divf", "arith.divsi", "arith.divui", "arith.remf", "arith.remsi", "arith.remui"):
            total += _DIVISION
        elif name.startswith(("arith.", "math.")) and name != "arith.constant":
            total += 1
    return total


def _nested(operation: ir.Operation) -> float:
    """The arithmetic inside an operation that is not a linalg nest, times the number of iterations."""
    trips = 1.0
    if operation.name == "scf.for":
        trips = _trips(operation)
    elif operation.name == "scf.while":
        trips = TRIPS
    elif not operation.name.startswith("scf."):
        trips = max(1.0, float(prod(_written(operation))))
    inside = [e.operation for region in operation.regions for block in region.blocks for e in block.operations]
    total = _arithmetic([inner for inner in inside if not len(inner.regions)])
    total += sum(_inner(inner) for inner in inside if len(inner.regions))
    return trips * max(1.0, total)


def _inner(operation: ir.Operation) -> float:
    cost = cost_of(operation)
    return max(cost.operations, float(prod(_written(operation))))


def _trips(loop: ir.Operation) -> float:
    bounds: list[float] = []
    for operand in list(loop.operands)[:3]:
        owner = operand.owner
        if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
            return TRIPS
        number = constant_number(owner.operation)
        if number is None:
            return TRIPS
        bounds.append(float(number))
    low, high, step = bounds
    return max(0.0, -(-(high - low) // step)) if step > 0 else TRIPS


def _written(operation: ir.Operation) -> tuple[int, ...]:
    """The extents of an operation's result without unit ones."""
    sizes = [tuple(e for e in extents_of(result.type) if e != 1) for result in operation.results]
    return max(sizes, key=prod, default=())
