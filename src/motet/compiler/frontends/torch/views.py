"""settle-views: in the `torch` dialect, rewrites views of several dynamic extents as merges and splits of dimensions.

    %1 = torch.aten.view %0, [-1, 16]   // of [?,?,2,8]   →   %a = torch.aten.flatten.using_ints %0, 2, 3
                                                              %1 = torch.aten.flatten.using_ints %a, 0, 1

torch-mlir's lowering of views guesses which dynamic extents correspond, and computes wrong results if it guesses wrong:
it would take the second extent above for 1. Here the correspondence follows from the sizes that the view names. If they
are not sufficient, all dimensions are merged and then split, which `resolve_reshapes` refines if it knows more. Views
with one dynamic extent are unambiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

from motet.compiler.frontends.onnx.tensors import TorchKind, as_torch, builtin, kind_of, know_operations
from motet.compiler.frontends.torch.operands import known_integer, new_extent, new_integer, new_list
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.find import find_operations
from motet.compiler.passes.normalise.reassociation import Monomial, match_groups

_VIEWS = ("torch.aten.view", "torch.aten.reshape")


def settle_views(module: ir.Module) -> None:
    """Rewrites the module in place."""
    with module.context:
        for operation in find_operations(module, *_VIEWS):
            extents = _extents(operation.operands[0])
            if extents is not None and extents.count(None) > 1:
                _settle(operation, extents)
        splits = [each for each in find_operations(module, "torch.aten.unflatten.int") if _known_split(each)]
        if splits:
            know_operations(module)
        for split in splits:
            with split.location, ir.InsertionPoint(split):
                split.operands[0] = _declared(split)


def _known_split(split: ir.Operation) -> list[int] | None:
    """The source extents of a split of a dynamic extent into static ones; None for other splits."""
    source, result, axis = _extents(split.operands[0]), _extents(split.results[0]), known_integer(split.operands[1])
    if source is None or result is None or axis is None or source[axis] is not None:
        return None
    axis %= len(source)
    known = [extent for extent in result[axis : axis + 1 + len(result) - len(source)] if extent is not None]
    if len(known) != 1 + len(result) - len(source):
        return None
    return [DYNAMIC if extent is None else extent for extent in [*source[:axis], prod(known), *source[axis + 1 :]]]


def _declared(split: ir.Operation) -> ir.Value:
    """The source cast to the extent that the split needs, which is checked against calls. torch-mlir needs the static
    extent, and folds away casts of its own dialect."""
    value = split.operands[0]
    kind, sizes = kind_of(value), _known_split(split)
    if kind is None or sizes is None:
        return value
    cast = create("tensor.cast", ir.RankedTensorType.get(sizes, kind.scalar), [builtin(value)])
    return as_torch(cast, kind.element)


def _extents(value: ir.Value) -> list[int | None] | None:
    """The extents in the type of a tensor; None if its rank is unknown."""
    kind = kind_of(value)
    return None if kind is None else [None if extent == DYNAMIC else extent for extent in kind.extents]


def _settle(view: ir.Operation, extents: Sequence[int | None]) -> None:
    source, listed = view.operands[0], view.operands[1].owner
    if isinstance(listed, ir.Block) or listed.operation.name != "torch.prim.ListConstruct":
        return  # not even the rank of the result is known
    sizes = list(listed.operation.operands)
    before = [_atom(axis) if extent is None else Monomial(extent) for axis, extent in enumerate(extents)]
    after, result = _named(sizes, source, before), view.results[0]
    with view.location, ir.InsertionPoint(view):
        if after is None:
            value = _through_one(source, sizes, _extents(result) or [None] * len(sizes))
        else:
            value = _grouped(source, sizes, before, after)
        if value.type != result.type:
            value = create("torch.tensor_static_info_cast", result.type, [value])
    result.replace_all_uses_with(value)
    view.erase()


def _merged(before: Sequence[Monomial], groups: Sequence[tuple[list[int], list[int]]], rest: int) -> list[int | None]:
    """The extents after merging the first groups; those of later groups are unchanged."""
    shape: list[int | None] = []
    for axes, _ in groups:
        product = Monomial(1)
        for axis in axes:
            product = product.times(before[axis])
        shape.append(_number(product))
    return [*shape, *(_number(extent) for extent in before[rest:])]


def _number(extent: Monomial) -> int | None:
    return None if extent.factors else extent.number


def _atom(axis: int) -> Monomial:
    return Monomial(1, ((str(axis), 1),))


def _named(sizes: Sequence[ir.Value], source: ir.Value, before: Sequence[Monomial]) -> list[Monomial] | None:
    """The sizes in terms of the source's extents; -1 is the quotient that the others leave."""
    named: list[Monomial | None] = []
    for size in sizes:
        number = known_integer(size)
        if number == -1:
            named.append(None)
        elif number is not None:
            named.append(Monomial(number))
        elif (axis := _axis_of(size, source)) is not None:
            named.append(before[axis])
        else:
            return None
    total, known = Monomial(1), Monomial(1)
    for extent in before:
        total = total.times(extent)
    for extent in named:
        known = known if extent is None else known.times(extent)
    rest = total.over(known)
    settled = [rest if extent is None else extent for extent in named]
    complete = [extent for extent in settled if extent is not None]
    return complete if len(complete) == len(settled) else None


def _axis_of(size: ir.Value, source: ir.Value) -> int | None:
    """The axis of the source whose extent `size` is; None if there is none."""
    owner = size.owner
    if isinstance(owner, ir.Block) or owner.name != "torch.aten.size.int" or owner.operands[0] != source:
        return None
    return known_integer(owner.operands[1])


def _grouped(
    source: ir.Value, sizes: Sequence[ir.Value], before: Sequence[Monomial], after: Sequence[Monomial]
) -> ir.Value:
    """Merges and splits dimensions where products of extents are equal."""
    groups = match_groups(before, after)
    value = source
    for axis, (axes, _) in enumerate(groups):
        if len(axes) > 1:
            shape = _merged(before, groups[: axis + 1], axes[-1] + 1)
            value = _flatten(value, axis, axis + len(axes) - 1, shape)
    for axis, (_, targets) in reversed(list(enumerate(groups))):
        if len(targets) > 1:
            given = [_size(source, after[target], sizes[target]) for target in targets]
            value = _unflatten(value, axis, given, [_number(after[target]) for target in targets])
    return value


def _through_one(source: ir.Value, sizes: Sequence[ir.Value], result: Sequence[int | None]) -> ir.Value:
    """Merges all dimensions into one, and splits that one."""
    extents = _extents(source) or []
    value = _flatten(source, 0, len(extents) - 1, [None])
    known = [size for size in sizes if known_integer(size) != -1]
    rest = _product([new_extent(source, axis) for axis in range(len(extents))])
    if known and len(known) < len(sizes):
        rest = create("torch.aten.floordiv.int", rest.type, [rest, _product(known)])
    given = [rest if known_integer(size) == -1 else size for size in sizes]
    return _unflatten(value, 0, given, result)


def _flatten(value: ir.Value, first: int, last: int, shape: Sequence[int | None]) -> ir.Value:
    return create("torch.aten.flatten.using_ints", _type(value, shape), [value, new_integer(first), new_integer(last)])


def _unflatten(value: ir.Value, axis: int, sizes: Sequence[ir.Value], extents: Sequence[int | None]) -> ir.Value:
    shape = _extents(value) or []
    shape[axis : axis + 1] = extents
    return create("torch.aten.unflatten.int", _type(value, shape), [value, new_integer(axis), new_list(sizes)])


def _size(source: ir.Value, extent: Monomial, given: ir.Value) -> ir.Value:
    """An extent as an integer value of the program."""
    if known_integer(given) != -1:
        return given
    parts = [new_integer(extent.number)] if extent.number != 1 or not extent.factors else []
    for name, power in extent.factors:
        parts += [new_extent(source, int(name)) for _ in range(power)]
    return _product(parts)


def _product(factors: Sequence[ir.Value]) -> ir.Value:
    return reduce(lambda a, b: create("torch.aten.mul.int", a.type, [a, b]), factors)


def _type(like: ir.Value, shape: Sequence[int | None]) -> ir.Type:
    kind = kind_of(like)
    assert kind is not None
    return TorchKind(tuple(DYNAMIC if extent is None else extent for extent in shape), kind.element).torch
