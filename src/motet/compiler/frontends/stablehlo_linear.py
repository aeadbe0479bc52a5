"""StableHLO's triangular solves and Cholesky factors, as loops over rows and columns.

    stablehlo.triangular_solve %a, %b      →   for each row i: x[i] = (b[i] - a[i, :] · x) / a[i, i], where x begins as 0
    stablehlo.cholesky %a                  →   for each column j: c = a[:, j] - l · l[j, :]ᴴ; l[:, j] = c / √c[j], below j

A solve with a factor from the right, or transposed, is one from the left of the transposed tensors. Bodies are
StableHLO, which is lowered with the rest of the program.
"""

from __future__ import annotations

import re
from math import prod

from motet.compiler.frontends.locations import locate
from motet.compiler.frontends.stablehlo_writing import Text, V, is_static, tensor_type
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.errors import CompileError

_FACTOR = re.compile(r"lapack_[sdcz]potrf_ffi|cusolver_potrf_ffi")
_SOLVE = re.compile(r"lapack_[sdcz]trsm_ffi")


def read_library_calls(module: ir.Module) -> None:
    """Rewrites calls of LAPACK, as JAX exports them for processors, as the operations that they are."""
    for op in find_operations(module, "stablehlo.custom_call"):
        target = ir.StringAttr(op.attributes["call_target_name"]).value
        said = str(op.attributes["mhlo.backend_config"]) if "mhlo.backend_config" in op.attributes else ""
        if not is_static(op):
            continue
        w = Text(op)
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
    """Rewrites each `stablehlo.triangular_solve` and `stablehlo.cholesky`, in place."""
    for op in find_operations(module, "stablehlo.triangular_solve", "stablehlo.cholesky"):
        if not is_static(op):
            raise CompileError(f"{op.name}: a dimension has no static size; expected static shapes", locate(op.location))
        w = Text(op)
        if not all(prod(operand.shape) for operand in w.operands):
            w.replace([w.operands[-1]])
        elif op.name == "stablehlo.cholesky":
            w.replace([_cholesky(w, _flag(op, "lower"))])
        else:
            w.replace([_triangular_solve(w, op)])


def _flag(op: ir.Operation, name: str) -> bool:
    return name in op.attributes and ir.BoolAttr(op.attributes[name]).value


def _swapped(w: Text, a: V) -> V:
    """The matrices transposed."""
    rank = len(a.shape)
    return w.transpose(a, [*range(rank - 2), rank - 1, rank - 2])


def _conjugate(w: Text, a: V) -> V:
    if not a.element.startswith("complex"):
        return a
    real = a.element[8:-1]
    parts = w.unary("real", a, real), w.unary("negate", w.unary("imag", a, real))
    return w.line(
        f"stablehlo.complex {parts[0].name}, {parts[1].name} : {a.kind}", a.shape, a.element
    )


def _triangular_solve(w: Text, op: ir.Operation) -> V:
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
    triangle, diagonal = w.select(inside, a, zero), w.select(w.compare("EQ", *kept), a, zero)
    x = w.reshape(_solve_loop(w, triangle, None if unit else diagonal, b, lower), (*batch, n, m))
    return x if left else _swapped(w, x)


def _number(w: Text, number: float, shape: tuple[int, ...], element: str) -> V:
    return w.constant(f"({number:.1f}, 0.0)" if element.startswith("complex") else float(number), shape, element)


def _solve_loop(w: Text, triangle: V, diagonal: V | None, b: V, lower: bool) -> V:
    """Row by row; rows that are not yet solved are 0."""
    count, n, m = b.shape
    element = b.element
    row, line, whole = (tensor_type(shape, element) for shape in ((count, 1, n), (count, 1, m), b.shape))
    start, square = _number(w, 0, b.shape, element), triangle.kind
    first = w.constant(0, (), "i32")
    divided = "%left"
    division = ""
    if diagonal is not None:
        sums = (
            f"%ones = stablehlo.constant dense<{'(1.0, 0.0)' if element.startswith('complex') else '1.0'}> : {line_of(count, n, element)}\n"
            f"    %row_d = stablehlo.dynamic_slice {diagonal.name}, %zero, %i, %zero, sizes = [{count}, 1, {n}] : "
            f"({square}, tensor<i32>, tensor<i32>, tensor<i32>) -> {row}\n"
            f"    %pivot = stablehlo.dot_general %row_d, %ones, batching_dims = [0] x [0], contracting_dims = [2] x [1] : "
            f"({row}, {line_of(count, n, element)}) -> {tensor_type((count, 1), element)}\n"
            f"    %pivots = stablehlo.broadcast_in_dim %pivot, dims = [0, 1] : ({tensor_type((count, 1), element)}) -> {line}\n"
        )
        division = sums + f"    %quotient = stablehlo.divide %left, %pivots : {line}\n"
        divided = "%quotient"
    at = "%k" if lower else "%mirrored"
    index = "tensor<i32>, tensor<i32>, tensor<i32>"
    text = (
        f"stablehlo.while(%k = {first.name}, %x = {start.name}) : tensor<i32>, {whole}\n"
        f"  cond {{\n    %n = stablehlo.constant dense<{n}> : tensor<i32>\n"
        f"    %c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        f"    stablehlo.return %c : tensor<i1>\n  }} do {{\n"
        f"    %zero = stablehlo.constant dense<0> : tensor<i32>\n    %one = stablehlo.constant dense<1> : tensor<i32>\n"
        f"    %last = stablehlo.constant dense<{n - 1}> : tensor<i32>\n"
        f"    %mirrored = stablehlo.subtract %last, %k : tensor<i32>\n"
        f"    %i = stablehlo.add {at}, %zero : tensor<i32>\n"
        f"    %row = stablehlo.dynamic_slice {triangle.name}, %zero, %i, %zero, sizes = [{count}, 1, {n}] : ({square}, {index}) -> {row}\n"
        f"    %known = stablehlo.dot_general %row, %x, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({row}, {whole}) -> {line}\n"
        f"    %b = stablehlo.dynamic_slice {b.name}, %zero, %i, %zero, sizes = [{count}, 1, {m}] : ({whole}, {index}) -> {line}\n"
        f"    %left = stablehlo.subtract %b, %known : {line}\n    {division}"
        f"    %next = stablehlo.dynamic_update_slice %x, {divided}, %zero, %i, %zero : ({whole}, {line}, {index}) -> {whole}\n"
        f"    %k1 = stablehlo.add %k, %one : tensor<i32>\n    stablehlo.return %k1, %next : tensor<i32>, {whole}\n  }}"
    )
    return w.lines(text, [first, start])[1]


def line_of(count: int, n: int, element: str) -> str:
    return tensor_type((count, n), element)


def _cholesky(w: Text, lower: bool) -> V:
    """The factor `l`, of which l · lᴴ is the tensor; or, where it is the upper one, its conjugate transpose."""
    (a,) = w.operands
    if not lower:
        a = _conjugate(w, _swapped(w, a))
    batch, n = a.shape[:-2], a.shape[-1]
    count, element = prod(batch), a.element
    a = w.reshape(a, (count, n, n))
    start, first = _number(w, 0, a.shape, element), w.constant(0, (), "i32")
    is_complex = element.startswith("complex")
    real = element[8:-1] if is_complex else element
    whole, column, row = a.kind, tensor_type((count, n, 1), element), tensor_type((count, 1, n), element)
    one, index = tensor_type((count, 1, 1), element), "tensor<i32>, tensor<i32>, tensor<i32>"
    conjugate = "    %row_c = stablehlo.transpose %row, dims = [0, 2, 1] : " f"({row}) -> {column}\n"
    if is_complex:
        part = tensor_type((count, n, 1), real)
        conjugate = (
            f"    %row_t = stablehlo.transpose %row, dims = [0, 2, 1] : ({row}) -> {column}\n"
            f"    %re = stablehlo.real %row_t : ({column}) -> {part}\n    %im = stablehlo.imag %row_t : ({column}) -> {part}\n"
            f"    %down = stablehlo.negate %im : {part}\n    %row_c = stablehlo.complex %re, %down : {column}\n"
        )
    text = (
        f"stablehlo.while(%k = {first.name}, %l = {start.name}) : tensor<i32>, {whole}\n"
        f"  cond {{\n    %n = stablehlo.constant dense<{n}> : tensor<i32>\n"
        f"    %c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        f"    stablehlo.return %c : tensor<i1>\n  }} do {{\n"
        f"    %zero = stablehlo.constant dense<0> : tensor<i32>\n    %one = stablehlo.constant dense<1> : tensor<i32>\n"
        f"    %row = stablehlo.dynamic_slice %l, %zero, %k, %zero, sizes = [{count}, 1, {n}] : ({whole}, {index}) -> {row}\n{conjugate}"
        f"    %known = stablehlo.dot_general %l, %row_c, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({whole}, {column}) -> {column}\n"
        f"    %a = stablehlo.dynamic_slice {a.name}, %zero, %zero, %k, sizes = [{count}, {n}, 1] : ({whole}, {index}) -> {column}\n"
        f"    %left = stablehlo.subtract %a, %known : {column}\n"
        f"    %square = stablehlo.dynamic_slice %left, %zero, %k, %zero, sizes = [{count}, 1, 1] : ({column}, {index}) -> {one}\n"
        f"    %pivot = stablehlo.sqrt %square : {one}\n"
        f"    %pivots = stablehlo.broadcast_in_dim %pivot, dims = [0, 1, 2] : ({one}) -> {column}\n"
        f"    %quotient = stablehlo.divide %left, %pivots : {column}\n"
        f"    %rows = stablehlo.iota dim = 1 : {tensor_type((count, n, 1), 'i32')}\n"
        f"    %ks = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<i32>) -> {tensor_type((count, n, 1), 'i32')}\n"
        f"    %below = stablehlo.compare GE, %rows, %ks : ({tensor_type((count, n, 1), 'i32')}, {tensor_type((count, n, 1), 'i32')}) -> {tensor_type((count, n, 1), 'i1')}\n"
        f"    %nothing = stablehlo.constant dense<{'(0.0, 0.0)' if is_complex else '0.0'}> : {column}\n"
        f"    %kept = stablehlo.select %below, %quotient, %nothing : {tensor_type((count, n, 1), 'i1')}, {column}\n"
        f"    %next = stablehlo.dynamic_update_slice %l, %kept, %zero, %zero, %k : ({whole}, {column}, {index}) -> {whole}\n"
        f"    %k1 = stablehlo.add %k, %one : tensor<i32>\n    stablehlo.return %k1, %next : tensor<i32>, {whole}\n  }}"
    )
    factor = w.reshape(w.lines(text, [first, start])[1], (*batch, n, n))
    return factor if lower else _conjugate(w, _swapped(w, factor))
