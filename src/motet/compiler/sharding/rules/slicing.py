"""slicing: dimensions that a slice, padding or concatenation takes as they are, are factors.

    tensor.extract_slice %x[0, 4] [8, 8] : 8x16 to 8x8   →   %x: (a, ·), result: (a, ·)

    tensor.extract_slice, tensor.insert_slice, tensor.pad, tensor.concat
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.ir._mlir import ir
from motet.compiler.sharding.rules.rule import Factors, ShardingRule, all_static, shape_of


def read_slicing(operation: ir.Operation) -> ShardingRule | None:
    reader = _READERS.get(operation.name)
    return None if reader is None or not all_static(operation) else reader(operation)


def _extract(operation: ir.Operation) -> ShardingRule | None:
    source, target = shape_of(operation.operands[0]) or [], shape_of(operation.results[0]) or []
    sizes = _numbers(operation, "static_sizes")
    kept = _kept(sizes, target)
    if kept is None:
        return None
    given: list[int | None] = [None] * len(source)
    taken: list[int | None] = [None] * len(target)
    for number, place in enumerate(kept):
        if _is_whole(operation, place, source[place]):
            given[place] = taken[number] = place
    return ShardingRule(
        (tuple(given), *_nothing(operation, 1)), (tuple(taken),), tuple(source), resize=_resize_sizes
    )


def _insert(operation: ir.Operation) -> ShardingRule | None:
    part, whole = shape_of(operation.operands[0]) or [], shape_of(operation.operands[1]) or []
    kept = _kept(_numbers(operation, "static_sizes"), part)
    if kept is None:
        return None
    given: list[int | None] = [None] * len(part)
    into: list[int | None] = [None] * len(whole)
    for number, place in enumerate(kept):
        if _is_whole(operation, place, whole[place]):
            given[number] = into[place] = place
    operands = (tuple(given), tuple(into), *_nothing(operation, 2))
    return ShardingRule(operands, (tuple(into),), tuple(whole), resize=_resize_inserted)


def _pad(operation: ir.Operation) -> ShardingRule | None:
    shape = shape_of(operation.operands[0]) or []
    low, high = _numbers(operation, "static_low"), _numbers(operation, "static_high")
    factors: Factors = tuple(
        place if low[place] == 0 and high[place] == 0 else None for place in range(len(shape))
    )
    return ShardingRule((factors, *_nothing(operation, 1)), (factors,), tuple(shape))


def _concat(operation: ir.Operation) -> ShardingRule | None:
    shape = shape_of(operation.results[0]) or []
    along = ir.IntegerAttr(operation.attributes["dim"]).value
    factors: Factors = tuple(None if place == along else place for place in range(len(shape)))
    return ShardingRule(tuple(factors for _ in operation.operands), (factors,), tuple(shape))


_READERS = {
    "tensor.extract_slice": _extract, "tensor.insert_slice": _insert, "tensor.pad": _pad, "tensor.concat": _concat,
}


def _numbers(operation: ir.Operation, name: str) -> list[int]:
    return list(ir.DenseI64ArrayAttr(operation.attributes[name]))


def _nothing(operation: ir.Operation, after: int) -> list[Factors]:
    return [() for _ in list(operation.operands)[after:]]


def _is_whole(operation: ir.Operation, place: int, extent: int) -> bool:
    offsets, sizes, strides = (_numbers(operation, f"static_{name}") for name in ("offsets", "sizes", "strides"))
    return offsets[place] == 0 and sizes[place] == extent and strides[place] == 1


def _kept(sizes: Sequence[int], shape: Sequence[int]) -> list[int] | None:
    """The dimensions of a slice of `sizes` that its tensor of `shape` has; others, of one element, are dropped."""
    found: list[int] = []
    for place, size in enumerate(sizes):
        left = len(shape) - len(found)
        if left and size == shape[len(found)] and (size != 1 or left == len(sizes) - place or len(sizes) == len(shape)):
            found.append(place)
        elif size != 1:
            return None
    return found if len(found) == len(shape) else None


def _resize_sizes(operation: ir.Operation, shape: Sequence[int]) -> None:
    _set_sizes(operation, shape)


def _resize_inserted(operation: ir.Operation, shape: Sequence[int]) -> None:
    _set_sizes(operation, shape_of(operation.operands[0]) or [])


def _set_sizes(operation: ir.Operation, shape: Sequence[int]) -> None:
    sizes = _numbers(operation, "static_sizes")
    if len(sizes) == len(shape):
        operation.attributes["static_sizes"] = ir.DenseI64ArrayAttr.get(list(shape))
        return
    own = iter(shape)
    kept = set(_kept_places(sizes, shape))
    operation.attributes["static_sizes"] = ir.DenseI64ArrayAttr.get(
        [next(own) if place in kept else size for place, size in enumerate(sizes)]
    )


def _kept_places(sizes: Sequence[int], shape: Sequence[int]) -> list[int]:
    """The dimensions that a slice keeps, if those of one element are dropped first."""
    large = [place for place, size in enumerate(sizes) if size != 1]
    small = [place for place, size in enumerate(sizes) if size == 1]
    return sorted([*large, *small[len(small) - (len(shape) - len(large)) :]] if len(shape) > len(large) else large)
