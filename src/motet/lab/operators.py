"""Programs of one operator, by a specification: `matmul:512x512x512xf32`, `conv2d:1x56x56x64,3x3x64x64:stride=2`.

    spec = NAME ":" SHAPE {"," SHAPE} {":" OPTION "=" VALUE}     a shape may end in a dtype, f32 by default

Each operator of `OPERATORS` writes its program as MLIR. Images are NHWC and filters RSCF (rows, columns, channels,
filters). A size of `operator_lists.py` may stand for the shapes: `conv2d:ResNet18_02`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from motet.errors import OptionError
from motet.lab.operator_lists import CONVOLUTIONS, PRODUCTS

DTYPES = ("f16", "bf16", "f32", "f64")
_SHAPE = re.compile(r"(\d{1,9}(?:x\d{1,9})*)(?:x([a-z]+\d+))?")
_INTEGERS = re.compile(r"\d{1,6}(,\d{1,6})*")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class OperatorCall:
    """The parsed specification: the extents of each operand, the dtype of all, and the options' numbers."""

    text: str
    shapes: tuple[Shape, ...]
    dtype: str
    options: Mapping[str, tuple[int, ...]]

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.text.partition(":")[0]

    def kind(self, shape: Sequence[int]) -> str:
        return f"tensor<{''.join(f'{extent}x' for extent in shape)}{self.dtype}>"

    def number(self, name: str, default: int) -> int:
        """An option with one number."""
        values = self.options.get(name, (default,))
        if len(values) != 1:
            raise OptionError(f"{self.text}: option {name}: expected one number")
        return values[0]

    def wrong(self, what: str) -> OptionError:
        return OptionError(f"{self.text}: {what}")


@dataclass(frozen=True)
class Operator:
    """An operator: what its shapes are, for messages; the ranks that its operands may have, with None for any; its
    options; and the function that writes its program."""

    shapes: str
    ranks: tuple[int | None, ...]
    write: Callable[[OperatorCall], str]
    options: tuple[str, ...] = ()


def is_operator(text: str) -> bool:
    """Whether `text` looks like an operator's specification rather than the name of a file."""
    return re.match(r"[a-z]\w*:", text) is not None


def operator_program(text: str) -> str:
    """The program of a specification, as MLIR. Raises OptionError if it has an unknown name or wrong shapes."""
    call = parse_operator(text)
    return OPERATORS[call.name].write(call)


def parse_operator(text: str) -> OperatorCall:
    """The call that a specification describes. Raises OptionError."""
    name, _, rest = text.partition(":")
    operator = OPERATORS.get(name)
    if operator is None:
        raise OptionError(f"{text}: no operator {name}; expected one of {', '.join(OPERATORS)}, or a program file")
    shapes, *options = rest.split(":")
    listed = {"matmul": PRODUCTS, "conv2d": CONVOLUTIONS}.get(name, {})
    if shapes in listed:
        given = listed[shapes].split(":")
        shapes, options = given[0], [*given[1:], *options]
    extents, dtype = _shapes(text, shapes, operator)
    known = {key: _numbers(text, key, value) for key, value in (_option(text, each, operator) for each in options)}
    return OperatorCall(text, extents, dtype, known)


def _shapes(text: str, shapes: str, operator: Operator) -> tuple[tuple[Shape, ...], str]:
    found: list[Shape] = []
    dtypes: set[str] = set()
    for part in shapes.split(","):
        match = _SHAPE.fullmatch(part)
        if match is None:
            raise OptionError(f"{text}: {part!r} is no shape; expected {operator.shapes}, such as 64x128xf32")
        if match[2] and match[2] not in DTYPES:
            raise OptionError(f"{text}: dtype {match[2]}: expected one of {', '.join(DTYPES)}")
        found.append(tuple(int(extent) for extent in match[1].split("x")))
        dtypes |= {match[2]} - {None}
    ranks = tuple(len(shape) for shape in found)
    if len(found) != len(operator.ranks) or any(b not in (None, a) for a, b in zip(ranks, operator.ranks, strict=True)):
        raise OptionError(f"{text}: expected the shapes {operator.shapes}")
    if any(0 in shape for shape in found):
        raise OptionError(f"{text}: an extent is 0; expected positive ones, since there is nothing to measure")
    if len(dtypes) > 1:
        raise OptionError(f"{text}: several dtypes ({', '.join(sorted(dtypes))}); expected one")
    return tuple(found), dtypes.pop() if dtypes else "f32"


def _option(text: str, option: str, operator: Operator) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not equals or name not in operator.options:
        allowed = ", ".join(f"{each}=N" for each in operator.options) or "none"
        raise OptionError(f"{text}: option {option}: unknown; this operator has {allowed}")
    return name, value


def _numbers(text: str, name: str, value: str) -> tuple[int, ...]:
    if not _INTEGERS.fullmatch(value):
        raise OptionError(f"{text}: option {name}={value}: expected numbers, such as {name}=1")
    return tuple(map(int, value.split(",")))


# -- the operators ---------------------------------------------------------------------------------


def _function(call: OperatorCall, operands: Sequence[Shape], result: Shape, body: str) -> str:
    inputs = ", ".join(f"%{name}: {call.kind(shape)}" for name, shape in zip("abcd", operands, strict=False))
    kind = call.kind(result)
    return f"func.func @main({inputs}) -> {kind} {{\n{body}\n  return %result : {kind}\n}}\n"


def _filled(call: OperatorCall, shape: Shape, name: str = "start", value: str = "0.0") -> str:
    kind = call.kind(shape)
    return (f"  %{name}_value = arith.constant {value} : {call.dtype}\n  %{name}_empty = tensor.empty() : {kind}\n"
            f"  %{name} = linalg.fill ins(%{name}_value : {call.dtype}) outs(%{name}_empty : {kind}) -> {kind}\n")


def _product(call: OperatorCall, name: str, a: Shape, b: Shape, c: Shape) -> str:
    left, right, kind = call.kind(a), call.kind(b), call.kind(c)
    return _filled(call, c) + (f"  %{name} = linalg.{'batch_' if len(a) == 3 else ''}matmul ins(%a, %b : {left}, "
                               f"{right}) outs(%start : {kind}) -> {kind}")


def _matmul(call: OperatorCall) -> str:
    *batch, m, n, k = call.shapes[0]
    a, b, c = (*batch, m, k), (*batch, k, n), (*batch, m, n)
    return _function(call, (a, b), c, _product(call, "result", a, b, c))


def _matmul_relu(call: OperatorCall) -> str:
    m, n, k = call.shapes[0]
    a, b, c = (m, k), (k, n), (m, n)
    kind = call.kind(c)
    body = _product(call, "product", a, b, c) + (
        f"\n  %zero = tensor.empty() : {kind}\n"
        f"  %result = linalg.max ins(%product, %start : {kind}, {kind}) outs(%zero : {kind}) -> {kind}")
    return _function(call, (a, b), c, body)


def _conv2d(call: OperatorCall) -> str:
    c = call.shapes[0][3]
    r, s, channels, f = call.shapes[1]
    if channels != c:
        raise call.wrong(f"the image has {c} channels, the filters {channels}; expected {r}x{s}x{c}x{f}")
    return _convolution(call, "conv_2d_nhwc_hwcf", f)


def _depthwise(call: OperatorCall) -> str:
    c = call.shapes[0][3]
    r, s, channels = call.shapes[1]
    if channels != c:
        raise call.wrong(f"the image has {c} channels, the filters {channels}; expected {r}x{s}x{c}")
    return _convolution(call, "depthwise_conv_2d_nhwc_hwc", c)


def _convolution(call: OperatorCall, name: str, channels: int) -> str:
    """Operation `linalg.NAME` on the padded image, with a result of so many channels."""
    (n, h, w, c), filters = call.shapes
    stride, pad = call.number("stride", 1), call.number("pad", 0)
    image = (n, h + 2 * pad, w + 2 * pad, c)
    result = (n, *_windows(call, image[1:3], (filters[0], filters[1]), stride), channels)
    attributes = f"{{dilations = dense<1> : tensor<2xi64>, strides = dense<{stride}> : tensor<2xi64>}}"
    body = (
        _padded(call, (0, pad, pad, 0), (0, pad, pad, 0)) + _filled(call, result)
        + f"  %result = linalg.{name} {attributes} ins(%x, %b : {call.kind(image)}, "
        f"{call.kind(filters)}) outs(%start : {call.kind(result)}) -> {call.kind(result)}")
    return _function(call, call.shapes, result, body)


def _windows(call: OperatorCall, image: Shape, window: Shape, stride: int) -> Shape:
    if stride < 1:
        raise call.wrong(f"option stride={stride}: expected at least 1")
    if any(extent < size for extent, size in zip(image, window, strict=True)):
        raise call.wrong(f"windows of {window[0]}x{window[1]} do not fit an image of {image[0]}x{image[1]}")
    return tuple((extent - size) // stride + 1 for extent, size in zip(image, window, strict=True))


def _padded(call: OperatorCall, low: Sequence[int], high: Sequence[int], name: str = "x") -> str:
    """`%a` padded by zeros."""
    shape = call.shapes[0]
    padded = tuple(a + b + c for a, b, c in zip(low, shape, high, strict=True))
    indices = ", ".join(f"%p{i}: index" for i in range(len(shape)))
    return (f"  %pad = arith.constant 0.0 : {call.dtype}\n  %{name} = tensor.pad %a low[{_list(low)}] "
            f"high[{_list(high)}] {{\n  ^bb0({indices}):\n    tensor.yield %pad : {call.dtype}\n  }} : "
            f"{call.kind(shape)} to {call.kind(padded)}\n")


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def _pad(call: OperatorCall) -> str:
    shape = call.shapes[0]
    low = call.options.get("low", (1,) * len(shape))
    high = call.options.get("high", low)
    for name, values in (("low", low), ("high", high)):
        if len(values) != len(shape):
            raise call.wrong(f"option {name}: {len(values)} numbers; expected {len(shape)}, one for each axis")
    result = tuple(a + b + c for a, b, c in zip(low, shape, high, strict=True))
    return _function(call, call.shapes, result, _padded(call, low, high, "result"))


def _transpose(call: OperatorCall) -> str:
    shape = call.shapes[0]
    order = call.options.get("perm", tuple(reversed(range(len(shape)))))
    if sorted(order) != list(range(len(shape))):
        raise call.wrong(f"option perm={_list(order)}: expected an order of {_list(range(len(shape)))}")
    result = tuple(shape[axis] for axis in order)
    body = (f"  %empty = tensor.empty() : {call.kind(result)}\n  %result = linalg.transpose ins(%a : "
            f"{call.kind(shape)}) outs(%empty : {call.kind(result)}) permutation = [{_list(order)}]")
    return _function(call, call.shapes, result, body)


def _relu(call: OperatorCall) -> str:
    kind = call.kind(call.shapes[0])
    body = _filled(call, call.shapes[0]) + (
        f"  %empty = tensor.empty() : {kind}\n"
        f"  %result = linalg.max ins(%a, %start : {kind}, {kind}) outs(%empty : {kind}) -> {kind}")
    return _function(call, call.shapes, call.shapes[0], body)


def _add(call: OperatorCall) -> str:
    kind = call.kind(call.shapes[0])
    body = (f"  %empty = tensor.empty() : {kind}\n"
            f"  %result = linalg.add ins(%a, %b : {kind}, {kind}) outs(%empty : {kind}) -> {kind}")
    return _function(call, (call.shapes[0], call.shapes[0]), call.shapes[0], body)


def _softmax(call: OperatorCall) -> str:
    shape = call.shapes[0]
    kind = call.kind(shape)
    body = (f"  %empty = tensor.empty() : {kind}\n  %result = linalg.softmax dimension({len(shape) - 1}) "
            f"ins(%a : {kind}) outs(%empty : {kind}) -> {kind}")
    return _function(call, call.shapes, shape, body)


def _sum(call: OperatorCall) -> str:
    shape = call.shapes[0]
    if len(shape) < 2:
        raise call.wrong("expected at least two extents: the sum is over the last")
    return _function(call, call.shapes, shape[:-1], _filled(call, shape[:-1]) + _reduced(call, "a", "result", "start"))


def _reduced(call: OperatorCall, source: str, name: str, start: str) -> str:
    """The sum of `%source` over the last axis."""
    shape = call.shapes[0]
    return (f"  %{name} = linalg.reduce ins(%{source} : {call.kind(shape)}) outs(%{start} : {call.kind(shape[:-1])}) "
            f"dimensions = [{len(shape) - 1}] (%in: {call.dtype}, %out: {call.dtype}) {{\n"
            f"    %s = arith.addf %out, %in : {call.dtype}\n    linalg.yield %s : {call.dtype}\n  }}\n")


def _layernorm(call: OperatorCall) -> str:
    """(a - mean) / sqrt(variance + 1e-5) over the last axis."""
    shape = call.shapes[0]
    if len(shape) < 2:
        raise call.wrong("expected at least two extents: rows are normalised along the last")
    rank, dtype, kind, rows = len(shape), call.dtype, call.kind(shape), call.kind(shape[:-1])
    dims = ", ".join(f"d{i}" for i in range(rank))
    whole = f"affine_map<({dims}) -> ({dims})>"
    row = f"affine_map<({dims}) -> ({', '.join(f'd{i}' for i in range(rank - 1))})>"
    parallel = ", ".join(['"parallel"'] * rank)

    def mapped(name: str, values: Sequence[str], body: str) -> str:
        maps = ", ".join([whole, *([row] * (len(values) - 1)), whole])
        arguments = ", ".join(f"%v{i}: {dtype}" for i in range(len(values)))
        operands = f"{', '.join(values)} : {', '.join([kind, *([rows] * (len(values) - 1))])}"
        return (f"  %{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{parallel}]}} "
                f"ins({operands}) outs(%empty : {kind}) {{\n  ^bb0({arguments}, %o: {dtype}):\n{body}"
                f"    linalg.yield %y : {dtype}\n  }} -> {kind}\n")

    body = (
        _filled(call, shape[:-1]) + f"  %empty = tensor.empty() : {kind}\n"
        f"  %count = arith.constant {float(shape[-1])} : {dtype}\n  %small = arith.constant 1.0e-5 : {dtype}\n"
        + _reduced(call, "a", "total", "start")
        + mapped("centred", ("%a", "%total"), f"    %m = arith.divf %v1, %count : {dtype}\n"
                 f"    %y = arith.subf %v0, %m : {dtype}\n")
        + mapped("squares", ("%centred",), f"    %y = arith.mulf %v0, %v0 : {dtype}\n")
        + _reduced(call, "squares", "spread", "start")
        + mapped("result", ("%centred", "%spread"), f"    %m = arith.divf %v1, %count : {dtype}\n"
                 f"    %p = arith.addf %m, %small : {dtype}\n    %q = math.sqrt %p : {dtype}\n"
                 f"    %y = arith.divf %v0, %q : {dtype}\n"))
    return _function(call, call.shapes, shape, body)


_IMAGE = "NxHxWxC,RxSxCxF (image, filters)"
_WINDOW_OPTIONS = ("stride", "pad")
OPERATORS: Mapping[str, Operator] = {
    "matmul": Operator("MxNxK of the product MxK by KxN", (3,), _matmul),
    "batch_matmul": Operator("BxMxNxK of B products MxK by KxN", (4,), _matmul),
    "matmul_relu": Operator("MxNxK of the product MxK by KxN", (3,), _matmul_relu),
    "conv2d": Operator(_IMAGE, (4, 4), _conv2d, _WINDOW_OPTIONS),
    "depthwise_conv2d": Operator("NxHxWxC,RxSxC (image, filters)", (4, 3), _depthwise, _WINDOW_OPTIONS),
    "pad": Operator("of the operand", (None,), _pad, ("low", "high")),
    "transpose": Operator("of the operand", (None,), _transpose, ("perm",)),
    "relu": Operator("of the operand", (None,), _relu),
    "add": Operator("of both operands", (None,), _add),
    "softmax": Operator("of the operand, rows last", (None,), _softmax),
    "sum": Operator("of the operand, rows last", (None,), _sum),
    "layernorm": Operator("of the operand, rows last", (None,), _layernorm),
}
