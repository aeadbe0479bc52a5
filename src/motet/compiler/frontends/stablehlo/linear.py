"""Writes StableHLO's triangular solves and Cholesky factorisations as loops over rows and columns.

    stablehlo.triangular_solve %a, %b    →   for each row i: x[i] = (b[i] - a[i, :] · x) / a[i, i]; x is initially 0
    stablehlo.cholesky %a                →   for each column j: c = a[:, j] - l · l[j, :]ᴴ; l[:, j] = c / √c[j], below j

A solve with the matrix on the right, or transposed, is a solve from the left of the transposed tensors. Bodies are
StableHLO, which is lowered with the rest of the program.
"""

from __future__ import annotations

import re
from math import prod

from motet.compiler.frontends.stablehlo.writing import StablehloText, V, is_static, require_static, tensor_type
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations

_FACTOR = re.compile(r"lapack_[sdcz]potrf_ffi|cusolver_potrf_ffi")
_SOLVE = re.compile(r"lapack_[sdcz]trsm_ffi")
_INDEX = "tensor<i32>, tensor<i32>, tensor<i32>"
_PRODUCT = "batching_dims = [0] x [0], contracting_dims = [2] x [1]"  # of matrices in a batch


def read_library_calls(module: ir.Module) -> None:
    """Replaces LAPACK calls, as JAX exports them for CPUs, by the equivalent operations."""
    for op in find_operations(module, "stablehlo.custom_call"):
        target = ir.StringAttr(op.attributes["call_target_name"]).value
        said = str(op.attributes["mhlo.backend_config"]) if "mhlo.backend_config" in op.attributes else ""
        if not is_static(op):
            continue
        w = StablehloText(op)
        if _FACTOR.fullmatch(target):
            (a,) = w.operands
            lower = "true" if "lower = true" in said or "uplo = 76" in said else "false"
            factor = w.line(f"stablehlo.cholesky {a.name}, lower = {lower} : {a.kind}", a.shape, a.element)
            state = ir.RankedTensorType(op.results[1].type)
            w.replace([factor, w.constant(0, state.shape, str(state.element_type))])
        elif _SOLVE.fullmatch(target):
            a, b = w.operands
            letters = {name: chr(int(code)) for name, code in re.findall(r"(\w+) = (\d+) : ui8", said)}
            transposed = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[letters["trans_x"]]
            flags = {"left_side": letters["side"] == "L", "lower": letters["uplo"] == "L",
                     "unit_diagonal": letters["diag"] == "U"}  # fmt: skip
            said = ", ".join(f"{name} = {str(flag).lower()}" for name, flag in flags.items())
            text = f'"stablehlo.triangular_solve"({a.name}, {b.name}) <{{{said}, transpose_a = #stablehlo<transpose '
            w.replace([w.line(f"{text}{transposed}>}}> : ({a.kind}, {b.kind}) -> {b.kind}", b.shape, b.element)])


def write_solves(module: ir.Module) -> None:
    """Rewrites each `stablehlo.triangular_solve` and `stablehlo.cholesky` in place."""
    for op in find_operations(module, "stablehlo.triangular_solve", "stablehlo.cholesky"):
        require_static(op)
        w = StablehloText(op)
        if not all(prod(operand.shape) for operand in w.operands):
            w.replace([w.operands[-1]])
        elif op.name == "stablehlo.cholesky":
            w.replace([_cholesky(w, _flag(op, "lower"))])
        else:
            w.replace([_triangular_solve(w, op)])


def _flag(op: ir.Operation, name: str) -> bool:
    return name in op.attributes and ir.BoolAttr(op.attributes[name]).value


def _swapped(w: StablehloText, a: V) -> V:
    """The transposed matrices."""
    rank = len(a.shape)
    return w.transpose(a, [*range(rank - 2), rank - 1, rank - 2])


def _conjugate(w: StablehloText, a: V) -> V:
    if not a.element.startswith("complex"):
        return a
    real = a.element[8:-1]
    parts = w.unary("real", a, real), w.unary("negate", w.unary("imag", a, real))
    return w.line(f"stablehlo.complex {parts[0].name}, {parts[1].name} : {a.kind}", a.shape, a.element)


def _triangular_solve(w: StablehloText, op: ir.Operation) -> V:
    a, b = w.operands
    left, lower, unit = (_flag(op, name) for name in ("left_side", "lower", "unit_diagonal"))
    transposed = str(op.attributes["transpose_a"]).rstrip(">").split()[-1]
    if transposed == "ADJOINT":
        a = _conjugate(w, a)
    flipped = transposed in ("TRANSPOSE", "ADJOINT")
    if not left:  # x · a = b is aᵀ · xᵀ = bᵀ
        b, flipped = _swapped(w, b), not flipped
    if flipped:
        a, lower = _swapped(w, a), not lower
    batch, (n, m) = b.shape[:-2], b.shape[-2:]
    count = prod(batch)
    a, b = w.reshape(a, (count, n, n)), w.reshape(b, (count, n, m))
    kept = w.iota((count, n, n), "i32", 1), w.iota((count, n, n), "i32", 2)
    inside = w.compare("GT" if lower else "LT", *kept)
    zero = _number(w, 0, (count, n, n), a.element)
    triangle = w.select(inside, a, zero)
    x = w.reshape(_solve_loop(w, triangle, None if unit else a, b, lower), (*batch, n, m))
    return x if left else _swapped(w, x)


def _number(w: StablehloText, number: float, shape: tuple[int, ...], element: str) -> V:
    return w.constant(f"({number:.1f}, 0.0)" if element.startswith("complex") else float(number), shape, element)


def _solve_loop(w: StablehloText, triangle: V, pivots: V | None, b: V, lower: bool) -> V:
    """Solves row by row; rows not yet solved are 0."""
    count, n, m = b.shape
    one, row, line = (tensor_type((count, 1, size), b.element) for size in (1, n, m))
    square, whole = triangle.kind, b.kind
    body = f"""
    %last = stablehlo.constant dense<{n - 1}> : tensor<i32>
    %mirrored = stablehlo.subtract %last, %k : tensor<i32>
    %i = stablehlo.add {"%k" if lower else "%mirrored"}, %zero : tensor<i32>
    %row = stablehlo.dynamic_slice {triangle.name}, %zero, %i, %zero, sizes = [{count}, 1, {n}]
      : ({square}, {_INDEX}) -> {row}
    %known = stablehlo.dot_general %row, %x, {_PRODUCT} : ({row}, {whole}) -> {line}
    %b = stablehlo.dynamic_slice {b.name}, %zero, %i, %zero, sizes = [{count}, 1, {m}] : ({whole}, {_INDEX}) -> {line}
    %left = stablehlo.subtract %b, %known : {line}"""
    if pivots is not None:
        body += f"""
    %pivot = stablehlo.dynamic_slice {pivots.name}, %zero, %i, %i, sizes = [{count}, 1, 1]
      : ({square}, {_INDEX}) -> {one}
    %pivots = stablehlo.broadcast_in_dim %pivot, dims = [0, 1, 2] : ({one}) -> {line}
    %quotient = stablehlo.divide %left, %pivots : {line}"""
    made = "%left" if pivots is None else "%quotient"
    body += f"""
    %next = stablehlo.dynamic_update_slice %x, {made}, %zero, %i, %zero : ({whole}, {line}, {_INDEX}) -> {whole}"""
    return _loop(w, n, _number(w, 0, b.shape, b.element), body)


def _loop(w: StablehloText, steps: int, start: V, body: str) -> V:
    """The final value of %x, which is `start` at first and %next of `body` after each step %k; %zero is 0 in `body`."""
    first = w.constant(0, (), "i32")
    text = f"""stablehlo.while(%k = {first.name}, %x = {start.name}) : tensor<i32>, {start.kind}
  cond {{
    %end = stablehlo.constant dense<{steps}> : tensor<i32>
    %goes_on = stablehlo.compare LT, %k, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %goes_on : tensor<i1>
  }} do {{
    %zero = stablehlo.constant dense<0> : tensor<i32>{body}
    %one = stablehlo.constant dense<1> : tensor<i32>
    %k1 = stablehlo.add %k, %one : tensor<i32>
    stablehlo.return %k1, %next : tensor<i32>, {start.kind}
  }}"""
    return w.lines(text, [first, start])[1]


def _cholesky(w: StablehloText, lower: bool) -> V:
    """The factor `l` with l · lᴴ = the tensor if `lower`, else its conjugate transpose."""
    (a,) = w.operands
    if not lower:
        a = _conjugate(w, _swapped(w, a))
    batch, n = a.shape[:-2], a.shape[-1]
    count, element, is_complex = prod(batch), a.element, a.element.startswith("complex")
    a = w.reshape(a, (count, n, n))
    whole, column, row = a.kind, tensor_type((count, n, 1), element), tensor_type((count, 1, n), element)
    one, truths, numbers = tensor_type((count, 1, 1), element), *(tensor_type((count, n, 1), t) for t in ("i1", "i32"))
    body = f"""
    %row = stablehlo.dynamic_slice %x, %zero, %k, %zero, sizes = [{count}, 1, {n}] : ({whole}, {_INDEX}) -> {row}
    {"%row_t" if is_complex else "%row_c"} = stablehlo.transpose %row, dims = [0, 2, 1] : ({row}) -> {column}
    {_conjugate_of_row(count, n, element) if is_complex else ""}
    %known = stablehlo.dot_general %x, %row_c, {_PRODUCT} : ({whole}, {column}) -> {column}
    %a = stablehlo.dynamic_slice {a.name}, %zero, %zero, %k, sizes = [{count}, {n}, 1] : ({whole}, {_INDEX}) -> {column}
    %left = stablehlo.subtract %a, %known : {column}
    %square = stablehlo.dynamic_slice %left, %zero, %k, %zero, sizes = [{count}, 1, 1] : ({column}, {_INDEX}) -> {one}
    %pivot = stablehlo.sqrt %square : {one}
    %pivots = stablehlo.broadcast_in_dim %pivot, dims = [0, 1, 2] : ({one}) -> {column}
    %quotient = stablehlo.divide %left, %pivots : {column}
    %rows = stablehlo.iota dim = 1 : {numbers}
    %ks = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<i32>) -> {numbers}
    %below = stablehlo.compare GE, %rows, %ks : ({numbers}, {numbers}) -> {truths}
    %nothing = stablehlo.constant dense<{"(0.0, 0.0)" if is_complex else "0.0"}> : {column}
    %kept = stablehlo.select %below, %quotient, %nothing : {truths}, {column}
    %next = stablehlo.dynamic_update_slice %x, %kept, %zero, %zero, %k : ({whole}, {column}, {_INDEX}) -> {whole}"""
    factor = w.reshape(_loop(w, n, _number(w, 0, a.shape, element), body), (*batch, n, n))
    return factor if lower else _conjugate(w, _swapped(w, factor))


def _conjugate_of_row(count: int, n: int, element: str) -> str:
    """The text that computes %row_c, the conjugate of %row_t."""
    column, part = tensor_type((count, n, 1), element), tensor_type((count, n, 1), element[8:-1])
    return f"""%re = stablehlo.real %row_t : ({column}) -> {part}
    %im = stablehlo.imag %row_t : ({column}) -> {part}
    %down = stablehlo.negate %im : {part}
    %row_c = stablehlo.complex %re, %down : {column}"""
