"""Writes StableHLO's sorts as stable sorts by one tensor each, least significant comparison first.

    stablehlo.sort %x, %y { %a < %b                    %1:2 = tm_tensor.sort outs(%y, %x) { %a <= %b }
                            or %a = %b and %c < %d } → %2:2 = tm_tensor.sort outs(%1#1, %1#0) { %a <= %b }

Motet's `tm_tensor.sort` is stable, treats -0 and 0 as equal, and orders NaN after all numbers. JAX normalises the
operands of its comparisons to this order; that is removed. Other functions of the operands become tensors to sort by.
Floats in total order are sorted as integers.

JAX's custom call `stablehlo.dynamic_top_k` becomes a descending sort and a slice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.compiler.frontends.locations import locate
from motet.compiler.frontends.stablehlo.writing import StablehloText, V, tensor_type
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.errors import CompileError

_FORM = (
    "expected one comparison of a function of each operand, or several with `or` and `and` as in "
    "%a < %b or (%a = %b and …)"
)


@dataclass(frozen=True)
class _Comparison:
    """Orders by `left`, a value of the region: ascending, or `descending`."""

    left: ir.Value
    right: ir.Value
    descending: bool
    total: bool


def order_sorts(module: ir.Module) -> None:
    """Rewrites each `stablehlo.sort` in place. Raises CompileError for an order that is not a list of comparisons."""
    for op in find_operations(module, "stablehlo.custom_call"):
        if ir.StringAttr(op.attributes["call_target_name"]).value == "stablehlo.dynamic_top_k":
            _sort_for_top(op)
    for op in find_operations(module, "stablehlo.sort"):
        _SortRewriter(op).write()


def _sort_for_top(op: ir.Operation) -> None:
    """Rewrites the first `%k` elements of a descending order, along the last dimension, and their indices."""
    w = StablehloText(op)
    x, k = w.operands
    last = len(x.shape) - 1
    shape = w.line(f"shape.shape_of {x.name} : {x.kind} -> tensor<{last + 1}xindex>", (last + 1,), "index")
    places = replace(x, element="i32")
    text = f"stablehlo.dynamic_iota {shape.name}, dim = {last} : ({shape.kind}) -> {places.kind}"
    iota = w.line(text, x.shape, "i32")
    one, total = tensor_type((), x.element), "" if "i" in x.element else ", TOTALORDER"
    ordered = w.lines(
        f'"stablehlo.sort"({x.name}, {iota.name}) <{{dimension = {last} : i64, is_stable = true}}> ({{\n'
        f"^bb0(%a: {one}, %b: {one}, %c: tensor<i32>, %d: tensor<i32>):\n"
        f"  %greater = stablehlo.compare GT, %a, %b{total} : ({one}, {one}) -> tensor<i1>\n"
        f"  stablehlo.return %greater : tensor<i1>\n}}) : ({x.kind}, {iota.kind}) -> ({x.kind}, {iota.kind})",
        [x, places],
    )
    kept = [
        w.line(f"stablehlo.get_dimension_size {x.name}, dim = {axis} : ({x.kind}) -> tensor<i32>", (), "i32")
        for axis in range(last)
    ]
    limits = w.concatenate([w.reshape(one, (1,)) for one in (*kept, w.convert(k, "i32"))], 0)
    starts, steps = (w.constant(number, limits.shape, "i32") for number in (0, 1))
    results: list[V] = []
    for value, result in zip(ordered, op.results, strict=True):
        made = replace(value, shape=tuple(ir.RankedTensorType(result.type).shape))
        operands = [value, starts, limits, steps]
        names, kinds = ", ".join(v.name for v in operands), ", ".join(v.kind for v in operands)
        text = f"stablehlo.real_dynamic_slice {names} : ({kinds}) -> {made.kind}"
        results.append(w.line(text, made.shape, made.element))
    w.replace(results)


class _SortRewriter:
    def __init__(self, op: ir.Operation) -> None:
        self.op, self.w = op, StablehloText(op)
        self.block = op.regions[0].blocks[0]
        dimension = ir.IntegerAttr(op.attributes["dimension"]).value
        self.dimension = dimension % max(1, len(self.w.operands[0].shape))

    def write(self) -> None:
        w = self.w
        comparisons = self._comparisons(self._returned())
        if not w.operands[0].shape or 0 in w.operands[0].shape:
            w.replace(w.operands)
            return
        kinds = list(w.operands)
        carried = [w.convert(value, "i8") if value.element == "i1" else w.signless(value) for value in w.operands]
        keys = [self._key(comparison) for comparison in comparisons]
        whole = [(key, self._operand_of(key)) for key, _ in keys]
        own = [number for number, (_, operand) in enumerate(whole) if operand < 0]
        # The sorted tensors: the operands, then sort keys that are not operands.
        tensors = [*carried, *(w.signless(keys[number][0]) for number in own)]
        for number in reversed(range(len(keys))):
            place = whole[number][1] if number not in own else len(carried) + own.index(number)
            tensors = self._sort(tensors, place, keys[number][0].element, keys[number][1])
        w.replace([
            w.convert(value, "i1") if kind.element == "i1" else w.like(value, kind.element)
            for value, kind in zip(tensors, kinds, strict=False)
        ])

    def _operand_of(self, key: V) -> int:
        return self.w.operands.index(key) if key in self.w.operands else -1

    def _sort(self, tensors: list[V], place: int, element: str, descending: bool) -> list[V]:
        """`tensors` sorted by the one at `place`."""
        ordered = [tensors[place], *tensors[:place], *tensors[place + 1 :]]
        kinds = ", ".join(value.kind for value in ordered)
        arguments = ", ".join(f"%{side}{n}: {value.element}" for n, value in enumerate(ordered) for side in "ab")
        scalar = ordered[0].element
        if scalar.startswith("i"):
            unsigned = element.startswith("ui")
            compare = f"arith.cmpi {'u' if unsigned else 's'}{'ge' if descending else 'le'}"
        else:
            compare = f"arith.cmpf {'oge' if descending else 'ole'}"
        text = (
            f'"tm_tensor.sort"({", ".join(value.name for value in ordered)}) <{{dimension = {self.dimension} : i64, '
            f"operandSegmentSizes = array<i32: 0, {len(ordered)}>}}> ({{\n^bb0({arguments}):\n"
            f'  %first = {compare}, %a0, %b0 : {scalar}\n  "tm_tensor.yield"(%first) : (i1) -> ()\n}}) : '
            f"({kinds}) -> ({kinds})"
        )
        if len(ordered) == 1:
            return [self.w.line(text, ordered[0].shape, scalar)]
        made = self.w.lines(text, ordered)
        return [*made[1 : place + 1], made[0], *made[place + 1 :]]

    # -- the order ---------------------------------------------------------------------------------

    def _returned(self) -> ir.Value:
        return self.block.operations[len(self.block.operations) - 1].operation.operands[0]

    def _refuse(self, what: str) -> CompileError:
        return CompileError(f"stablehlo.sort: {what}; {_FORM}", locate(self.op.location))

    def _comparisons(self, value: ir.Value) -> list[_Comparison]:
        """The comparisons of `value`, the most significant one first."""
        op = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if op is not None and op.name == "stablehlo.compare":
            return [self._comparison(op)]
        if op is not None and op.name == "stablehlo.or":
            for first, rest in (list(op.operands), list(reversed(list(op.operands)))):
                if not self._is(first, "stablehlo.compare") or not self._is(rest, "stablehlo.and"):
                    continue
                decided = self._comparison(first.owner.operation)
                pair = list(rest.owner.operation.operands)
                for equal, further in (pair, pair[::-1]):
                    if self._is_equality(equal, decided):
                        return [decided, *self._comparisons(further)]
        raise self._refuse(f"the order is {op.name if op else 'an element itself'}")

    def _is(self, value: ir.Value, name: str) -> bool:
        return not isinstance(value.owner, ir.Block) and value.owner.operation.name == name

    def _comparison(self, op: ir.Operation) -> _Comparison:
        direction = _word(op, "comparison_direction")
        if direction not in ("LT", "LE", "GT", "GE"):
            raise self._refuse(f"it compares by {direction}")
        left, right = op.operands
        total = "compare_type" in op.attributes and _word(op, "compare_type") == "TOTALORDER"
        descending = direction in ("GT", "GE")
        if self._alike(left, right, 0):
            return _Comparison(left, right, descending, total)
        if self._alike(left, right, 1):  # the second element comes first
            return _Comparison(right, left, not descending, total)
        raise self._refuse("the two sides of a comparison are not the same function of two elements")

    def _is_equality(self, value: ir.Value, comparison: _Comparison) -> bool:
        if not self._is(value, "stablehlo.compare") or _word(value.owner.operation, "comparison_direction") != "EQ":
            return False
        a, b = value.owner.operation.operands
        pairs = [(comparison.left, comparison.right), (comparison.right, comparison.left)]
        return any(_same(a, x) and _same(b, y) for x, y in pairs)

    def _alike(self, left: ir.Value, right: ir.Value, side: int) -> bool:
        """Whether `left` depends on the elements of `side`, and `right` is the same function of the other side's."""
        if isinstance(left.owner, ir.Block) or isinstance(right.owner, ir.Block):
            if left.owner != self.block or right.owner != self.block:
                return left == right
            a, b = ir.BlockArgument(left).arg_number, ir.BlockArgument(right).arg_number
            return a % 2 == side and b == a + 1 - 2 * side
        one, other = left.owner.operation, right.owner.operation
        return _alike_apart_from_operands(one, other) and all(
            self._alike(a, b, side) for a, b in zip(one.operands, other.operands, strict=True)
        )

    # -- sort keys ---------------------------------------------------------------------------------

    def _key(self, comparison: _Comparison) -> tuple[V, bool]:
        """A tensor with the order of the comparison's operands, and whether it descends."""
        element = str(ir.RankedTensorType(comparison.left.type).element_type)
        if comparison.total and (plain := _without_oddities(comparison.left)) is not None:
            return self._tensor(plain), comparison.descending
        key = self._tensor(comparison.left)
        if comparison.total and element.startswith(("f", "bf")):
            key = self._as_integers(key)
        return key, comparison.descending

    def _tensor(self, value: ir.Value) -> V:
        """The tensor of the values of `value` for all elements."""
        if isinstance(value.owner, ir.Block):
            if value.owner != self.block:
                raise self._refuse("it compares with a value from outside of its body")
            return self.w.operands[ir.BlockArgument(value).arg_number // 2]
        op = value.owner.operation
        shape = self.w.operands[0].shape
        kind = ir.RankedTensorType(value.type)
        if op.name == "stablehlo.constant":
            number = op.attributes["value"].get_splat_value()
            return self.w.like_shape(self.w.operands[0], number, str(kind.element_type))
        operands = [self._tensor(operand) for operand in op.operands]
        names, kinds = ", ".join(v.name for v in operands), ", ".join(v.kind for v in operands)
        said = ", ".join(f"{name} = {op.attributes[name]}" for name in op.attributes)
        result = replace(self.w.operands[0], element=str(kind.element_type))
        return self.w.line(f'"{op.name}"({names}) {{{said}}} : ({kinds}) -> {result.kind}', shape, result.element)

    def _as_integers(self, key: V) -> V:
        """The bits of floats as signed integers in total order: all bits of negative ones except the sign are
        inverted."""
        width = int(key.element.removeprefix("b")[1:])
        bits = self.w.unary("bitcast_convert", key, f"i{width}")
        last, one = (self.w.like_shape(bits, f"{number} : i{width}", bits.element) for number in (width - 1, 1))
        other = self.w.binary("shift_right_logical", self.w.binary("shift_right_arithmetic", bits, last), one)
        return self.w.binary("xor", bits, other)


def _word(op: ir.Operation, name: str) -> str:
    """The enum value in an attribute such as `#stablehlo<comparison_direction LT>`."""
    return str(op.attributes[name]).rstrip(">").split()[-1]


def _text_of(op: ir.Operation) -> str:
    return op.get_asm(enable_debug_info=False).partition(" = ")[2].strip()


def _alike_apart_from_operands(one: ir.Operation, other: ir.Operation) -> bool:
    if one.name != other.name or [r.type for r in one.results] != [r.type for r in other.results]:
        return False
    if one.name == "stablehlo.constant":
        return _text_of(one) == _text_of(other)
    return len(one.operands) == len(other.operands) and {n: one.attributes[n] for n in one.attributes} == {
        n: other.attributes[n] for n in other.attributes
    }


def _same(one: ir.Value, other: ir.Value) -> bool:
    """Whether two values are identical, or computed by identical operations."""
    if one == other:
        return True
    if isinstance(one.owner, ir.Block) or isinstance(other.owner, ir.Block):
        return False
    a, b = one.owner.operation, other.owner.operation
    return _alike_apart_from_operands(a, b) and all(_same(x, y) for x, y in zip(a.operands, b.operands, strict=True))


def _without_oddities(value: ir.Value) -> ir.Value | None:
    """`%x` if `value` is select(%x ≠ %x, NaN, select(%x = 0, 0, %x)), JAX's normalisation of floats; None otherwise."""
    outer = _parts(value, "stablehlo.select")
    inner = _parts(outer[2], "stablehlo.select") if outer else None
    if outer is None or inner is None:
        return None
    x = inner[2]
    is_odd, is_zero = _parts(outer[0], "stablehlo.compare"), _parts(inner[0], "stablehlo.compare")
    if is_odd is None or is_zero is None or list(is_odd) != [x, x] or is_zero[0] != x:
        return None
    directions = [_word(v.owner.operation, "comparison_direction") for v in (outer[0], inner[0])]
    constants = [_constant(v) for v in (outer[1], inner[1], is_zero[1])]
    known = all(number is not None for number in constants)
    if directions != ["NE", "EQ"] or not known or constants[0] == constants[0] or any(constants[1:]):
        return None
    return x


def _parts(value: ir.Value, name: str) -> list[ir.Value] | None:
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != name:
        return None
    return list(value.owner.operation.operands)


def _constant(value: ir.Value) -> float | None:
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "stablehlo.constant":
        return None
    attribute = value.owner.operation.attributes["value"]
    return ir.FloatAttr(attribute.get_splat_value()).value if isinstance(attribute, ir.DenseFPElementsAttr) else None
