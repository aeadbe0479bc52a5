"""settle-views: in the `torch` dialect, rewrites views of several dynamic extents as merges and splits of dimensions.

    %1 = torch.aten.view %0, [-1, 16]   // of [?,?,2,8]   →   %a = torch.aten.flatten.using_ints %0, 2, 3
                                                              %1 = torch.aten.flatten.using_ints %a, 0, 1

torch-mlir's lowering of views guesses which dynamic extents correspond, and computes wrong results if it guesses wrong:
it would take the second extent above for 1. Here the correspondence follows from the sizes that the view names. If they
are not sufficient, all dimensions are merged and then split, which `resolve_reshapes` refines if it knows more. Views
with one dynamic extent are unambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from motet.compiler.frontends.onnx.tensors import kind_of, know_operations
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.find import find_operations
from motet.compiler.passes.normalise.reassociation import Monomial, match_groups

_TYPE = re.compile(r"!torch\.vtensor<\[(.*)\],(\w+)>")
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
    source, result, axis = _extents(split.operands[0]), _extents(split.results[0]), _constant(split.operands[1])
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
    plain = create("torch_c.to_builtin_tensor", kind.builtin, [value])
    cast = create("tensor.cast", ir.RankedTensorType.get(sizes, kind.scalar), [plain])
    shape = ",".join("?" if size == DYNAMIC else str(size) for size in sizes)
    return create("torch_c.from_builtin_tensor", ir.Type.parse(f"!torch.vtensor<[{shape}],{kind.element}>"), [cast])


def _extents(value: ir.Value) -> list[int | None] | None:
    """The extents in the type of a tensor; None if its rank is unknown."""
    match = _TYPE.fullmatch(str(value.type))
    if match is None:
        return None
    return [None if size == "?" else int(size) for size in match[1].split(",") if size]


def _settle(view: ir.Operation, extents: Sequence[int | None]) -> None:
    source, sizes = view.operands[0], _listed(view.operands[1])
    if sizes is None:
        return  # not even the rank of the result is known
    build = _TorchBuilder(view)
    before = [_atom(axis) if extent is None else Monomial(extent) for axis, extent in enumerate(extents)]
    after = _named(sizes, source, before)
    value = build.through_one(source, sizes) if after is None else build.grouped(source, sizes, before, after)
    view.results[0].replace_all_uses_with(build.cast(value, view.results[0].type))
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


def _listed(value: ir.Value) -> list[ir.Value] | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "torch.prim.ListConstruct":
        return None
    return list(owner.operands)


def _named(sizes: Sequence[ir.Value], source: ir.Value, before: Sequence[Monomial]) -> list[Monomial] | None:
    """The sizes in terms of the source's extents; -1 is the quotient that the others leave."""
    named: list[Monomial | None] = []
    for size in sizes:
        number = _constant(size)
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


def _constant(value: ir.Value) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "torch.constant.int":
        return None
    return ir.IntegerAttr(owner.attributes["value"]).value


def _axis_of(size: ir.Value, source: ir.Value) -> int | None:
    """The axis of the source whose extent `size` is; None if there is none."""
    owner = size.owner
    if isinstance(owner, ir.Block) or owner.name != "torch.aten.size.int" or owner.operands[0] != source:
        return None
    return _constant(owner.operands[1])


class _TorchBuilder:
    """Creates operations of the torch dialect before a view."""

    def __init__(self, at: ir.Operation) -> None:
        self._at = at
        match = _TYPE.fullmatch(str(at.operands[0].type))
        self._element = match[2] if match is not None else ""

    def grouped(
        self, source: ir.Value, sizes: Sequence[ir.Value], before: Sequence[Monomial], after: Sequence[Monomial]
    ) -> ir.Value:
        """Merges and splits dimensions where products of extents are equal."""
        groups = match_groups(before, after)
        value = source
        for axis, (axes, _) in enumerate(groups):
            if len(axes) > 1:
                shape = _merged(before, groups[: axis + 1], axes[-1] + 1)
                value = self._flatten(value, axis, axis + len(axes) - 1, shape)
        for axis, (_, targets) in reversed(list(enumerate(groups))):
            if len(targets) > 1:
                given = [self._size(source, after[target], sizes[target]) for target in targets]
                value = self._unflatten(value, axis, given, [_number(after[target]) for target in targets])
        return value

    def through_one(self, source: ir.Value, sizes: Sequence[ir.Value]) -> ir.Value:
        """Merges all dimensions into one, and splits that one."""
        extents = _extents(source) or []
        value = self._flatten(source, 0, len(extents) - 1, [None])
        known = [size for size in sizes if _constant(size) != -1]
        rest = self._product([self._extent(source, axis) for axis in range(len(extents))])
        if known and len(known) < len(sizes):
            rest = self._number("torch.aten.floordiv.int", [rest, self._product(known)])
        given = [rest if _constant(size) == -1 else size for size in sizes]
        return self._unflatten(value, 0, given, _extents(self._at.results[0]) or [None] * len(sizes))

    def _flatten(self, value: ir.Value, first: int, last: int, shape: Sequence[int | None]) -> ir.Value:
        ends = [self._int(first), self._int(last)]
        return self._create("torch.aten.flatten.using_ints", self._type(shape), [value, *ends])

    def _unflatten(
        self, value: ir.Value, axis: int, sizes: Sequence[ir.Value], extents: Sequence[int | None]
    ) -> ir.Value:
        shape = _extents(value) or []
        shape[axis : axis + 1] = extents
        listed = self._create("torch.prim.ListConstruct", ir.Type.parse("!torch.list<int>"), sizes)
        return self._create("torch.aten.unflatten.int", self._type(shape), [value, self._int(axis), listed])

    def _size(self, source: ir.Value, extent: Monomial, given: ir.Value) -> ir.Value:
        """An extent as an integer value of the program."""
        if _constant(given) != -1:
            return given
        parts = [self._int(extent.number)] if extent.number != 1 or not extent.factors else []
        for name, power in extent.factors:
            parts += [self._extent(source, int(name)) for _ in range(power)]
        return self._product(parts)

    def _extent(self, source: ir.Value, axis: int) -> ir.Value:
        return self._number("torch.aten.size.int", [source, self._int(axis)])

    def _product(self, factors: Sequence[ir.Value]) -> ir.Value:
        product = factors[0]
        for factor in factors[1:]:
            product = self._number("torch.aten.mul.int", [product, factor])
        return product

    def _number(self, name: str, operands: Sequence[ir.Value]) -> ir.Value:
        return self._create(name, ir.Type.parse("!torch.int"), operands)

    def _int(self, number: int) -> ir.Value:
        attributes = {"value": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)}
        return self._create("torch.constant.int", ir.Type.parse("!torch.int"), [], attributes)

    def cast(self, value: ir.Value, kind: ir.Type) -> ir.Value:
        return value if value.type == kind else self._create("torch.tensor_static_info_cast", kind, [value])

    def _type(self, shape: Sequence[int | None]) -> ir.Type:
        sizes = ",".join("?" if extent is None else str(extent) for extent in shape)
        return ir.Type.parse(f"!torch.vtensor<[{sizes}],{self._element}>")

    def _create(
        self, name: str, kind: ir.Type, operands: Sequence[ir.Value], attributes: dict[str, ir.Attribute] | None = None
    ) -> ir.Value:
        return ir.Operation.create(
            name, results=[kind], operands=list(operands), attributes=attributes or {}, loc=self._at.location,
            ip=ir.InsertionPoint(self._at),
        ).result
