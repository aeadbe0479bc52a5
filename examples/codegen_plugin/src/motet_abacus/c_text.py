"""C code for the stages of a kernel: loops over an iteration space, with one expression for each operation of the
body."""

from __future__ import annotations

import math
from collections.abc import Sequence

from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.kernel import Access, Kernel, Scalar, Size, Stage, Value

TYPES = {
    "f32": "float", "f64": "double", "i1": "uint8_t", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t",
    "i64": "int64_t", "index": "int64_t",
}
_COMPARED = {
    "oeq": "{0} == {1}", "ogt": "{0} > {1}", "oge": "{0} >= {1}", "olt": "{0} < {1}", "ole": "{0} <= {1}",
    "one": "{0} < {1} || {0} > {1}", "ord": "{0} == {0} && {1} == {1}", "uno": "{0} != {0} || {1} != {1}",
    "ueq": "!({0} < {1} || {0} > {1})", "ugt": "!({0} <= {1})", "uge": "!({0} < {1})", "ult": "!({0} >= {1})",
    "ule": "!({0} > {1})", "une": "{0} != {1}",
    "eq": "{0} == {1}", "ne": "{0} != {1}", "slt": "{0} < {1}", "sle": "{0} <= {1}", "sgt": "{0} > {1}",
    "sge": "{0} >= {1}",
}
_NAN = "{0} != {0} || {1} != {1} ? {0} + {1} : "  # arith.maximumf and minimumf pass NaN on, and order the zeros
_FUNCTIONS = "exp exp2 expm1 log log2 log10 log1p sqrt cbrt sin cos tan sinh cosh tanh asin acos atan erf floor ceil"
_EXPRESSIONS = {f"math.{name}": f"{name}({{0}})" for name in _FUNCTIONS.split()} | {  # of <tgmath.h>, by type
    "arith.addf": "{0} + {1}", "arith.subf": "{0} - {1}", "arith.mulf": "{0} * {1}", "arith.divf": "{0} / {1}",
    "arith.negf": "-{0}", "arith.addi": "{0} + {1}", "arith.subi": "{0} - {1}", "arith.muli": "{0} * {1}",
    "arith.maximumf": _NAN + "({0} > {1} || ({0} == {1} && !signbit({0})) ? {0} : {1})",
    "arith.minimumf": _NAN + "({0} < {1} || ({0} == {1} && signbit({0})) ? {0} : {1})",
    "arith.maxnumf": "fmax({0}, {1})", "arith.minnumf": "fmin({0}, {1})", "arith.select": "{0} ? {1} : {2}",
    "arith.extf": "{0}", "arith.truncf": "{0}", "arith.sitofp": "{0}", "arith.index_cast": "{0}", "arith.extsi": "{0}",
    "arith.andi": "{0} & {1}", "arith.ori": "{0} | {1}", "arith.xori": "{0} ^ {1}",
    "math.absf": "fabs({0})", "math.powf": "pow({0}, {1})", "math.fma": "fma({0}, {1}, {2})",
    "math.rsqrt": "1 / sqrt({0})", "math.copysign": "copysign({0}, {1})", "math.roundeven": "nearbyint({0})",
}
_SIGNED = ("arith.sitofp", "arith.extsi", "arith.index_cast")  # their operand may be an i1, which is unsigned in C


def refused(kernel: Kernel) -> str | None:
    """A part of the kernel that is not supported; None if all is."""
    if kernel.checks:
        return "an index that is checked when it runs"
    for dtype in [value.dtype for value in kernel.values]:
        if dtype not in TYPES:
            return f"elements of type {dtype}"
    for stage in kernel.stages:
        if stage.reductions:
            return "a reduction"
        if any(access.padding is not None for access in stage.inputs):
            return "padding"
        dtypes = [kernel.values[access.value].dtype for access in (*stage.inputs, *stage.outputs)]
        for scalar in stage.body:
            if (reason := _refused(scalar, dtypes)) is not None:
                return reason
            dtypes.append(scalar.dtype)
    return None


def _refused(scalar: Scalar, dtypes: Sequence[str]) -> str | None:
    known = scalar.op in _EXPRESSIONS or scalar.op in ("arith.constant", "linalg.index")
    if not known and (scalar.op not in ("arith.cmpf", "arith.cmpi") or scalar.predicate not in _COMPARED):
        return f"operation {scalar.op} {scalar.predicate}".strip()
    if scalar.dtype not in TYPES:
        return f"operation {scalar.op} on {scalar.dtype}"
    if scalar.op in (*_SIGNED, "arith.addi", "arith.subi", "arith.cmpi") and dtypes[scalar.operands[0]] == "i1":
        return f"operation {scalar.op} on i1"
    return None


def function(kernel: Kernel, stage: Stage, symbol: str, buffers: Sequence[int]) -> str:
    """The function that runs iterations [begin, end) of a stage's outermost loop; `buffers` are the values passed to
    it."""
    lines = [f"void {symbol}(void **buffers, const int64_t *sizes, int64_t begin, int64_t end, void *scratch) {{"]
    lines += [f"  const int64_t {name} = sizes[{number}];" for number, name in enumerate(kernel.symbols)]
    lines += [
        f"  {TYPES[kernel.values[value].dtype]} *v{value} = buffers[{number}];" for number, value in enumerate(buffers)
    ]
    ranges = [("begin", "end"), *(("0", str(size)) for size in stage.sizes[1:])]
    for axis, (first, last) in enumerate(ranges):
        lines.append(f"  for (int64_t d{axis} = {first}; d{axis} < {last}; d{axis}++)")
    return "\n".join([*lines, "  {", *_body(kernel, stage), "  }", "}", ""])


def _body(kernel: Kernel, stage: Stage) -> list[str]:
    """Declare x0, x1, … as `Scalar` numbers them: inputs, initial values of outputs, results. Then store the
    outputs."""
    lines: list[str] = []

    def declare(dtype: str, text: str) -> None:
        lines.append(f"    {TYPES[dtype]} x{len(lines)} = {text};")

    for access in stage.inputs:
        declare(kernel.values[access.value].dtype, _element(kernel, access))
    for output, init in zip(stage.outputs, stage.inits, strict=True):
        dtype = kernel.values[output.value].dtype
        declare(dtype, _element(kernel, init) if isinstance(init, Access) else _number(init or 0, dtype))
    for scalar in stage.body:
        declare(scalar.dtype, _expression(scalar))
    stores = zip(stage.outputs, stage.yields, strict=True)
    return [*lines, *(f"    {_element(kernel, output)} = x{number};" for output, number in stores)]


def _expression(scalar: Scalar) -> str:
    if scalar.op == "arith.constant":
        return _number(scalar.value or 0, scalar.dtype)
    if scalar.op == "linalg.index":
        return f"d{scalar.value}"
    template = _EXPRESSIONS.get(scalar.op) or _COMPARED[scalar.predicate]
    return template.format(*(f"x{operand}" for operand in scalar.operands))


def _number(value: float, dtype: str) -> str:
    if dtype not in ("f32", "f64"):
        return f"({TYPES[dtype]})({int(value)}LL)"
    if math.isnan(value):
        return "NAN"
    return float(value).hex() if math.isfinite(value) else "-INFINITY" if value < 0 else "INFINITY"


def _element(kernel: Kernel, access: Access) -> str:
    value = kernel.values[access.value]
    terms = [f"({_index(one)}) * {_stride(value, axis)}" for axis, one in enumerate(access.map)]
    return f"v{access.value}[{' + '.join(terms) or '0'}]"


def _index(affine: Affine) -> str:
    terms = [f"{factor} * d{axis}" for axis, factor in affine.terms]
    return " + ".join([*terms, str(affine.constant)])


def _stride(value: Value, axis: int) -> str:
    inside: Sequence[Size] = [value.shape[other] for other in value.order[value.order.index(axis) + 1 :]]
    return " * ".join(map(str, inside)) or "1"
