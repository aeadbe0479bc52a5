"""The role of an operation in partitioning: work, a renaming of elements, or bookkeeping."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.affine import Affine
from motet.compiler.ir.attributes import constant_number, maps_of, reassociation
from motet.compiler.kernels.reader.reading import Unreadable, affine_of


class Role(Enum):
    SCALAR = "scalar"  # sizes and scalars: copied into every kernel that needs them
    FREE = "free"  # tensors without data (empty, splat, fill): copied likewise
    ALIAS = "alias"  # the same memory under another shape: remains in the public function
    VIEW = "view"  # renames elements of another tensor: copied into linalg readers, otherwise a kernel
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"  # along whole dimensions
    WINDOW = "window"  # a reduction over sliding windows: pooling
    CONTRACTION = "contraction"
    CONVOLUTION = "convolution"
    MOVEMENT = "movement"  # insert_slice, concat
    GATHER = "gather"  # element-wise, of elements at computed places, where a grouping tells it from other opaque work
    ATTENTION = "attention"  # operations that `fuse_attention` has marked
    OPAQUE = "opaque"  # everything else: a separate kernel, on the generic path


SCALAR_DIALECTS = ("arith.", "complex.", "tensor.", "affine.", "math.", "index.")
ALIASES = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")
DENSE_ROLES = (Role.CONTRACTION, Role.CONVOLUTION)


@dataclass(frozen=True)
class Structure:
    """A `linalg.generic` as a loop nest, with its extents (None for dynamic ones)."""

    sizes: tuple[int | None, ...]
    reduced: frozenset[int]
    maps: tuple[tuple[Affine, ...], ...]
    inputs: int

    @property
    def outer(self) -> tuple[int | None, ...]:
        return tuple(size for i, size in enumerate(self.sizes) if i not in self.reduced)

    @cached_property
    def projected(self) -> bool:
        """Whether each entry of the maps is a loop, or zero."""
        return all(map(_is_projection, self.maps))

    @cached_property
    def shared(self) -> frozenset[int]:
        """The loops that index both of the first two operands."""
        return frozenset(_dims(self.maps[0]) & _dims(self.maps[1]))


def role_of(operation: ir.Operation) -> Role:
    """The role of one top-level operation."""
    name = operation.name
    if name == "linalg.generic":
        return _role_of_generic(operation)
    if name == "arith.constant":
        tensor = isinstance(operation.results[0].type, ir.RankedTensorType)
        if not tensor:
            return Role.SCALAR
        return Role.FREE if constant_number(operation) is not None else Role.OPAQUE
    if name == "tensor.empty":
        return Role.FREE
    if name in ALIASES:
        return Role.ALIAS
    if name in ("tensor.extract_slice", "tensor.pad"):
        return Role.VIEW if _is_static_view(operation) else Role.OPAQUE
    if name in ("tensor.insert_slice", "tensor.concat"):
        return Role.MOVEMENT
    tensors = [r for r in operation.results if isinstance(r.type, ir.ShapedType)]
    if not tensors and not len(operation.regions) and name.startswith(SCALAR_DIALECTS):
        return Role.SCALAR
    return Role.OPAQUE


def unaliased(value: ir.Value) -> ir.Value:
    """The tensor whose elements `value` has under another shape, or `value` itself."""
    while not isinstance(value.owner, ir.Block) and value.owner.name in ALIASES:
        value = value.owner.operands[0]
    return value


def is_convolution(operation: ir.Operation) -> bool:
    """Whether the role is that of a convolution, which an operation without a reduction is not."""
    if operation.name != "linalg.generic" or "reduction" not in str(operation.attributes["iterator_types"]):
        return False
    return role_of(operation) is Role.CONVOLUTION


def is_unit_reshape(operation: ir.Operation) -> bool:
    """Whether a reshape only adds or drops unit dimensions: it is then a view inside a kernel."""
    if operation.name == "tensor.cast":
        return True
    wide = operation.results[0] if operation.name == "tensor.expand_shape" else operation.operands[0]
    kind = ir.RankedTensorType(wide.type)
    return all(
        sum(kind.is_dynamic_dim(axis) or kind.shape[axis] != 1 for axis in group) <= 1
        for group in reassociation(operation)
    )


def _is_static_view(operation: ir.Operation) -> bool:
    unknown = ir.ShapedType.get_dynamic_size()
    slices = operation.name == "tensor.extract_slice"
    names = ("static_offsets", "static_strides") if slices else ("static_low", "static_high")
    return not any(unknown in list(ir.DenseI64ArrayAttr(operation.attributes[name])) for name in names)


@contextlib.contextmanager
def structures_kept() -> Generator[None]:
    """In this context loop nests with equal attributes and operand types are read once: each pass asks for the role of
    every operation. It must end before MLIR's context, which the attributes keep."""
    token = _structures.set({})
    try:
        yield
    finally:
        _structures.reset(token)


_structures: ContextVar[dict[tuple[object, ...], Structure | None] | None] = ContextVar("structures", default=None)


def structure_of(operation: ir.Operation) -> Structure | None:
    """The loop nest of a `linalg.generic`; None if its maps are not linear."""
    kept = _structures.get()
    if kept is None:
        return _read_structure(operation)
    attributes = operation.attributes
    key = (
        attributes["iterator_types"], attributes["indexing_maps"], attributes["operandSegmentSizes"],
        *[operand.type for operand in operation.operands],
    )
    found = kept.get(key)
    if found is None and key not in kept:
        found = kept[key] = _read_structure(operation)
    return found


def _read_structure(operation: ir.Operation) -> Structure | None:
    iterators = [str(a) for a in ir.ArrayAttr(operation.attributes["iterator_types"])]
    rank = len(iterators)
    try:
        maps = tuple(
            tuple(affine_of(e) for e in ir.AffineMapAttr(a).value.results)
            for a in ir.ArrayAttr(operation.attributes["indexing_maps"])
        )
    except Unreadable:
        return None
    sizes: list[int | None] = [None] * rank
    for operand, map_ in zip(operation.operands, maps, strict=True):
        if not isinstance(operand.type, ir.RankedTensorType):
            continue
        for axis, expression in enumerate(map_):
            if expression.single is not None and not operand.type.is_dynamic_dim(axis):
                sizes[expression.single] = operand.type.shape[axis]
    inputs = next(iter(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"])))
    reduced = frozenset(i for i, kind in enumerate(iterators) if "reduction" in kind)
    return Structure(tuple(sizes), reduced, maps, inputs)


def computes_its_points(generic: ir.Operation) -> bool:
    """Whether a linalg.generic with one result computes exactly its points, whatever their indices, from single
    elements of its inputs."""
    maps = maps_of(generic)
    if maps[-1] != ir.AffineMap.get_identity(maps[-1].n_dims, generic.context):
        return False
    if not all(isinstance(entry, (ir.AffineDimExpr, ir.AffineConstantExpr)) for each in maps for entry in each.results):
        return False
    body = generic.regions[0].blocks[0]
    plain = all(entry.operation.name.startswith(("arith.", "math.", "linalg.yield")) for entry in body.operations)
    return plain and not any(True for _ in body.arguments[len(body.arguments) - 1].uses)


def _role_of_generic(operation: ir.Operation) -> Role:
    structure = structure_of(operation)
    if structure is None:
        return Role.OPAQUE
    body = [o.operation for o in operation.regions[0].blocks[0].operations]
    if any(len(o.regions) or o.name == "tensor.extract" for o in body):
        return Role.OPAQUE  # data-dependent addresses, control flow
    if not structure.reduced:
        return _role_of_parallel(operation, structure, body)
    if structure.inputs >= 2 and _is_multiply_add(body, structure.inputs):
        if structure.projected:
            return Role.CONTRACTION if structure.reduced <= structure.shared else Role.REDUCTION
        return Role.CONVOLUTION
    if structure.projected and _is_block_product(body):
        return Role.CONTRACTION
    return Role.REDUCTION if structure.projected else Role.WINDOW


def _is_block_product(body: Sequence[ir.Operation]) -> bool:
    """Whether a body multiplies by a number of a few bits of a word, as keep-block-weights writes it."""
    names = [o.name for o in body]
    return names[:2] == ["linalg.index", "arith.index_cast"] and "arith.shrsi" in names and names[-3:] == [
        "arith.mulf", "arith.addf", "linalg.yield"]


def _role_of_parallel(operation: ir.Operation, structure: Structure, body: Sequence[ir.Operation]) -> Role:
    arguments = operation.regions[0].blocks[0].arguments
    copies = len(body) == 1 and structure.inputs == 1 and list(body[0].operands) == [arguments[0]]
    if not copies:
        return Role.ELEMENTWISE
    source = operation.operands[0]
    if not isinstance(source.type, ir.RankedTensorType):
        return Role.FREE if _is_constant(source) else Role.ELEMENTWISE  # a fill
    return Role.VIEW if _is_projection(structure.maps[1]) and _is_projection(structure.maps[0]) else Role.ELEMENTWISE


def _is_constant(value: ir.Value) -> bool:
    owner = value.owner
    return not isinstance(owner, ir.Block) and owner.operation.name in ("arith.constant", "complex.constant")


def _is_projection(map_: Sequence[Affine]) -> bool:
    return all(e.single is not None or (e.is_constant and e.constant == 0) for e in map_)


def _dims(map_: Sequence[Affine]) -> set[int]:
    return {e.single for e in map_ if e.single is not None}


def _is_multiply_add(body: Sequence[ir.Operation], inputs: int) -> bool:
    """Whether a body adds a product of two operands. Integers may first lose zero points, constants or further
    inputs."""
    names = [o.name for o in body if not o.name.startswith(("arith.ext", "linalg.yield"))]
    if inputs == 2 and names == ["arith.mulf", "arith.addf"]:
        return True
    integers = [name for name in names if name not in ("arith.subi", "arith.constant")]
    return integers == ["arith.muli", "arith.addi"] and inputs - 2 <= names.count("arith.subi") <= 2


def known_number(value: ir.Value) -> float | int | None:
    """The number that a scalar, or every element of a tensor, is known to be."""
    if isinstance(value.owner, ir.Block):
        return None
    owner = value.owner.operation
    if owner.name == "arith.constant":
        return constant_number(owner)
    filled = owner.name == "linalg.fill" or (owner.name == "linalg.generic" and role_of(owner) is Role.FREE)
    return known_number(owner.operands[0]) if filled else None
