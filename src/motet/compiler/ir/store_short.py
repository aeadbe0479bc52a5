"""Stores short elements as bytes: converts tensors of i4, f8E4M3FNUZ and similar types to tensors of i8.

    %1 = arith.extf %0 : f8E5M2 to f32            →   %1 = bits of %0 : i8, shifted and rebiased, as an f32
    %2 = arith.addi %a, %b : i4                   →   %2 = (%a + %b) & 15 : i8
    %3 = tensor.extract_slice %t : tensor<8xi4>   →   %3 = tensor.extract_slice %t : tensor<8xi8>

Operations that move elements move bytes. Arithmetic on floats is done in float32 and rounded to the type; on integers
in 8 bits. Public functions record the type of their bytes for callers (`motet.element`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.find import all_operations
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import show_elements
from motet.compiler.ir.short_conversions import Conversions
from motet.compiler.ir.short_types import SHORT_TYPES, ShortInteger, ShortType, stored
from motet.compiler.ir.translate import source_location
from motet.errors import CompileError

NATIVE = frozenset({"f8E4M3FN", "f8E5M2"})  # types that some back ends compute with
_UNSIGNED = frozenset(f"arith.{name}" for name in (
    "divui", "remui", "ceildivui", "maxui", "minui", "shrui", "extui", "uitofp", "index_castui"
))  # fmt: skip
_FIRST_UNSIGNED = 6  # among the predicates of arith.cmpi


def store_short_elements(
    module: ir.Module, kept: AbstractSet[str] = frozenset(), resources: Mapping[str, bytes] | None = None
) -> None:
    """Rewrites the module in place, for all short types except `kept`; element-wise operations must already be linalg.
    `resources` has the data of `dense_resource<key>`. Raises CompileError for unsupported operations on such
    elements."""
    names = SHORT_TYPES.keys() - kept
    if not any(_short(value.type, names) for op in all_operations(module) for value in _values(op)):
        return
    run_pipeline(module, "func.func(linalg-generalize-named-ops)")
    for function in public_functions(module):
        kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        show_elements(function, *([_name(one, names) for one in types] for types in (kind.inputs, kind.results)))
    work = [found for op in all_operations(module) if (found := _arithmetic(op, names)) is not None]
    for op in all_operations(module):
        _store(op, names)
    for found in work:
        with found.op.location:
            _rewrite(found, resources or {})


def _store(op: ir.Operation, names: AbstractSet[str]) -> None:
    """Changes the types of an operation's results and block arguments to bytes."""
    for value in _values(op):
        if _name(value.type, names):
            value.set_type(_byte_type(value.type))
    if op.name == "func.func":
        kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
        inputs, results = (
            [_byte_type(one) if _name(one, names) else one for one in types] for types in (kind.inputs, kind.results)
        )
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))


def _values(op: ir.Operation) -> list[ir.Value]:
    """The values that an operation defines: its results and the arguments of its blocks."""
    found: list[ir.Value] = list(op.results)
    for region in op.regions:
        for block in region.blocks:
            found += block.arguments
    return found


def _name(kind: ir.Type, names: AbstractSet[str]) -> str:
    element = str(kind.element_type if isinstance(kind, ir.ShapedType) else kind)
    return element if element in names else ""


def _short(kind: ir.Type, names: AbstractSet[str]) -> ShortType | None:
    name = _name(kind, names)
    return SHORT_TYPES[name] if name else None


def _byte_type(kind: ir.Type) -> ir.Type:
    byte = ir.IntegerType.get_signless(8)
    if not isinstance(kind, ir.ShapedType):
        return byte
    return ir.Type.parse(re.sub(r"\w+(?=[,>])", _to_byte, str(kind), count=1) if kind.has_rank else str(kind))


def _to_byte(match: re.Match[str]) -> str:
    """The byte type for the extents and element of a tensor type, such as `4x?xi4`."""
    extents, _, _ = match[0].rpartition("x")
    return f"{extents}xi8" if extents else "i8"


# -- arithmetic


@dataclass(frozen=True)
class _Arithmetic:
    """A scalar operation or constant, with the short types of its operands and result in the source."""

    op: ir.Operation
    operands: list[ShortType | None]
    result: ShortType | None


def _arithmetic(op: ir.Operation, names: AbstractSet[str]) -> _Arithmetic | None:
    """The description of `op` if it is arithmetic on short elements; None otherwise."""
    if not op.name.startswith(("arith.", "math.")) or op.name in ("arith.select", "arith.bitcast"):
        if op.name == "arith.bitcast" and (_name(op.operands[0].type, names) or _name(op.results[0].type, names)):
            return _Arithmetic(op, [None], None)
        return None
    operands = [_short(value.type, names) for value in op.operands]
    result = _short(op.results[0].type, names)
    if result is None and not any(operands):
        return None
    if op.operands and isinstance(op.operands[0].type, ir.ShapedType):
        raise CompileError(
            f"{op.name} on {op.operands[0].type} is not supported; expected elements that are moved, converted or "
            "calculated with one by one", source_location(op)
        )
    return _Arithmetic(op, operands, result)


def _rewrite(found: _Arithmetic, resources: Mapping[str, bytes]) -> None:
    """Rewrites it on bytes; its operands have already been converted."""
    op, target = found.op, found.result
    at = Conversions(ir.InsertionPoint(op))
    if op.name == "arith.constant":
        if target is not None:
            _constant(op, target, resources)
        return
    if op.name == "arith.bitcast":  # the bits are unchanged
        _replace(op, op.operands[0])
        return
    operands = [
        _opened(at, value, kind, _is_unsigned(op)) for value, kind in zip(op.operands, found.operands, strict=True)
    ]
    if target is None:
        _replace(op, _converted(at, op, operands, op.results[0].type))
        return
    made = operands[0]
    if op.name not in ("arith.truncf", "arith.extf", "arith.trunci", "arith.extsi", "arith.extui"):
        wide = ir.IntegerType.get_signless(8) if isinstance(target, ShortInteger) else ir.F32Type.get()
        made = _converted(at, op, operands, wide)
    if isinstance(target, ShortInteger):
        _replace(op, at.encode_integer(made, target))
    else:
        _replace(op, at.encode(made, target, saturate=False, mode="nearest"))


def _is_unsigned(op: ir.Operation) -> bool:
    return op.name in _UNSIGNED or (
        op.name == "arith.cmpi" and ir.IntegerAttr(op.attributes["predicate"]).value >= _FIRST_UNSIGNED
    )


def _opened(at: Conversions, value: ir.Value, kind: ShortType | None, unsigned: bool) -> ir.Value:
    """An operand converted from a byte to a type that processors compute with: i8 or f32."""
    if kind is None:
        return value
    if isinstance(kind, ShortInteger):
        kind = ShortInteger(kind.name, kind.bits, signed=not unsigned)
    return at.decode(value, kind)


def _converted(at: Conversions, op: ir.Operation, operands: Sequence[ir.Value], kind: ir.Type) -> ir.Value:
    """The operation on types that processors compute with; its result is of `kind`."""
    first = operands[0]
    if op.name == "arith.extf":
        return first if first.type == kind else at.make(
            "arith.extf" if str(kind) == "f64" else "arith.truncf", [first], kind
        )
    if op.name in ("arith.extsi", "arith.extui") and first.type == kind:
        return first
    if op.name == "arith.trunci" and ir.IntegerType(first.type).width <= ir.IntegerType(kind).width:
        return first
    given = {name: op.attributes[name] for name in op.attributes}
    made = ir.Operation.create(op.name, results=[kind], operands=operands, attributes=given, ip=at.at)
    return made.results[0]


def _replace(op: ir.Operation, value: ir.Value) -> None:
    op.results[0].replace_all_uses_with(value)
    op.erase()


# -- constants


def _constant(op: ir.Operation, short: ShortType, resources: Mapping[str, bytes]) -> None:
    kind, byte = op.results[0].type, ir.IntegerType.get_signless(8)
    text = str(op.attributes["value"])
    if not isinstance(kind, ir.ShapedType):
        code = int(stored(_numbers([text.split(" : ")[0]], short, ())).item())
        op.attributes["value"] = ir.IntegerAttr.get(byte, code - 256 if code > 127 else code)
        return
    data = stored(_elements(op, text, short, tuple(kind.shape), resources))
    op.attributes["value"] = ir.DenseElementsAttr.get(np.ascontiguousarray(data), type=byte, shape=list(kind.shape))


def _elements(
    op: ir.Operation, text: str, kind: ShortType, shape: tuple[int, ...], resources: Mapping[str, bytes]
) -> np.ndarray:
    """The elements of `dense<…>` or `dense_resource<…>`."""
    if text.startswith("dense_resource<"):
        key = text.removeprefix("dense_resource<").split("> :")[0].strip('"')
        data = resources.get(key, b"")
        if len(data) != math.prod(shape):
            raise CompileError(
                f"resource {key}: {op.results[0].type} of elements of {kind.name} needs {math.prod(shape)} bytes, one "
                f"for each element, there are {len(data)}", source_location(op)
            )
        return np.frombuffer(data, np.uint8).reshape(shape).view(DTYPES[kind.name])
    body = text.removeprefix("dense<").rpartition("> :")[0]
    if body.startswith('"0x'):
        data = np.frombuffer(bytes.fromhex(body[3:-1]), np.uint8)
        return (np.full(shape, data[0]) if data.size == 1 else data.reshape(shape)).view(DTYPES[kind.name])
    words = re.findall(r"[^\[\], ]+", body)
    return _numbers(words, kind, shape)


def _numbers(words: Sequence[str], kind: ShortType, shape: tuple[int, ...]) -> np.ndarray:
    """Parses elements in MLIR's syntax: decimal, or the bits of a float in hexadecimal."""
    found = [_number(word, kind) for word in words]
    dtype = DTYPES[kind.name]
    return np.full(shape, found[0], dtype) if len(found) == 1 else np.array(found, dtype).reshape(shape)


def _number(word: str, kind: ShortType) -> np.ndarray:
    dtype = DTYPES[kind.name]
    if word.startswith("0x"):
        return np.array(int(word, 16), np.uint8).view(dtype)
    return np.array(int(word) if isinstance(kind, ShortInteger) else float(word)).astype(dtype)


__all__ = ["NATIVE", "store_short_elements"]
