"""What generated programs compute, by Triton's interpreter, against upstream's naive lowering and numpy."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import check, generate, interpret, interpret_checked, random
from tests.unit.compiler.codegen.triton.texts import convolution, depthwise, nest, product, softmax, tensor

from motet.artifact.dtypes import DTYPES
from motet.compiler.codegen.gpu import loops
from motet.compiler.targets.families import resolve_target
from motet.compiler.targets.gpu import GpuTarget

UNARY = {
    "math.exp": 1.0, "math.exp2": 1.0, "math.log": 0.0, "math.log2": 0.0, "math.log1p": 0.0, "math.sqrt": 0.0,
    "math.rsqrt": 0.0, "math.sin": 1.0, "math.cos": 1.0, "math.tan": 0.5, "math.tanh": 1.0, "math.erf": 1.0,
    "math.atan": 1.0, "math.sinh": 1.0, "math.cosh": 1.0, "math.expm1": 1.0, "math.absf": 1.0, "math.floor": 1.0,
    "math.ceil": 1.0, "math.trunc": 1.0, "math.round": 1.0, "math.roundeven": 1.0, "math.cbrt": 0.0, "arith.negf": 1.0,
}


@pytest.mark.parametrize("op", UNARY)
def test_functions_agree(op: str) -> None:
    kind = tensor((37,), "f32")
    x = random(37) if UNARY[op] else np.abs(random(37)) + 0.1
    check(nest([(kind, "i")], [(kind, "i", "")], "p", [f"%z = {op} %x0 : f32"], ["%z"]), [x * (UNARY[op] or 1)], 1e-5)


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64"])  # the interpreter reads the least bf16 as 0
@pytest.mark.parametrize("name", ["floor", "ceil"])
def test_numbers_next_to_zero_are_rounded_away_from_it(name: str, dtype: str) -> None:
    kind = tensor((16,), dtype)
    text = nest([(kind, "i")], [(kind, "i", "")], "p", [f"%z = math.{name} %x0 : {dtype}"], ["%z"])
    x = np.array([1e-45, 1e-40, 1e-7, 0.5, 0.0, 1.0, 1.5, np.inf])
    x = np.concatenate([x, -x]).astype(DTYPES[dtype])
    (got,) = interpret(generate(text), [x])
    wanted = {"floor": np.floor, "ceil": np.ceil}[name](x.astype("f8"))
    np.testing.assert_array_equal(got.astype("f8"), wanted)
    np.testing.assert_array_equal(np.signbit(got.astype("f8")), np.signbit(wanted))


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64"])
@pytest.mark.parametrize("name", ["sqrt", "rsqrt", "cbrt"])
def test_roots_of_numbers_next_to_zero_are_right(name: str, dtype: str) -> None:
    kind = tensor((8,), dtype)
    text = nest([(kind, "i")], [(kind, "i", "")], "p", [f"%z = math.{name} %x0 : {dtype}"], ["%z"])
    x = np.array([1e-45, 1e-40, 1e-38, 2e-38, 1e-7, 0.5, 0.0, np.inf]).astype(DTYPES[dtype])
    (got,) = interpret(generate(text), [x])
    wide = x.astype("f8")
    with np.errstate(divide="ignore"):
        wanted = {"sqrt": np.sqrt(wide), "rsqrt": 1 / np.sqrt(wide), "cbrt": np.cbrt(wide)}[name]
    np.testing.assert_allclose(got.astype("f8"), wanted, rtol=1e-3 if dtype == "f16" else 1e-6)


@pytest.mark.parametrize("dtype, most", [("f16", 0.54), ("bf16", 0.51)])
@pytest.mark.parametrize("name", ["erf", "tanh"])
def test_functions_of_every_short_float_are_their_neighbours(name: str, dtype: str, most: float) -> None:
    """All 65536 numbers, against C's functions in f64: no further away than `most` units in the last place."""
    kind = tensor((65536,), dtype)
    text = nest([(kind, "i")], [(kind, "i", "")], "p", [f"%z = math.{name} %x0 : {dtype}"], ["%z"])
    x = np.arange(65536, dtype=np.uint16).view(DTYPES[dtype])
    (got,) = interpret(generate(text), [x])
    function = {"erf": math.erf, "tanh": math.tanh}[name]
    with np.errstate(invalid="ignore"):
        exact = np.array([function(value) for value in x.astype("f8")])
    np.testing.assert_array_equal(np.isnan(got.astype("f4")), np.isnan(exact))
    known = ~np.isnan(exact) & ((exact == 0) | (np.abs(exact) > 2.0**-125))  # the interpreter reads the least bf16 as 0
    bits, least = (10, -24) if dtype == "f16" else (7, -133)
    _, exponent = np.frexp(exact[known])
    unit = np.exp2(np.maximum(exponent - 1 - bits, least).astype("f8"))
    assert np.max(np.abs(got.astype("f8")[known] - exact[known]) / unit) <= most
    zero = got[x.astype("f4") == 0]
    np.testing.assert_array_equal(np.signbit(zero.astype("f4")), [False, True])


@pytest.mark.parametrize("op", [
    "addf", "subf", "mulf", "divf", "remf", "maximumf", "minimumf", "maxnumf", "minnumf",
])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_float_arithmetic_agrees_with_nan_and_infinity(op: str, dtype: str) -> None:
    kind = tensor((40,), dtype)
    x, y = random(40), random(40, seed=1)
    x[:4], y[2:6] = [np.nan, np.inf, -np.inf, 0.0], [np.nan, np.inf, 0.0, 1.0]
    if op == "remf":
        x, y = np.abs(random(40)), np.abs(random(40, seed=1)) + 0.5
    text = nest([(kind, "i"), (kind, "i")], [(kind, "i", "")], "p", [f"%z = arith.{op} %x0, %x1 : {dtype}"], ["%z"])
    made = generate(text)
    x, y = x.astype(DTYPES[dtype]), y.astype(DTYPES[dtype])
    functions = {
        "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide, "remf": np.fmod,
        "maximumf": np.maximum, "minimumf": np.minimum, "maxnumf": np.fmax, "minnumf": np.fmin,
    }
    wide = "f8" if dtype == "f64" else "f4"
    with np.errstate(all="ignore"):
        wanted = functions[op](x.astype(wide), y.astype(wide)).astype(x.dtype).astype("f8")
    (got,) = interpret(made, [x, y])
    np.testing.assert_allclose(got.astype("f8"), wanted, rtol=1e-6 if dtype in ("f32", "f64") else 1e-2)


@pytest.mark.parametrize("op", [
    "addi", "subi", "muli", "andi", "ori", "xori", "maxsi", "minsi", "maxui", "minui", "divsi", "remsi", "divui",
    "remui", "floordivsi", "ceildivsi", "ceildivui", "shli", "shrsi", "shrui",
])
@pytest.mark.parametrize("dtype", ["i8", "i32", "i64"])
def test_integer_arithmetic_agrees(op: str, dtype: str) -> None:
    kind = tensor((67,), dtype)
    x, y = random(67, dtype=DTYPES[dtype].name), random(67, seed=1, dtype=DTYPES[dtype].name)
    if "div" in op or "rem" in op:
        y[y == 0] = 3
    if "sh" in op:
        y = np.abs(y) % 7
    check(nest([(kind, "i"), (kind, "i")], [(kind, "i", "")], "p",
               [f"%z = arith.{op} %x0, %x1 : {dtype}"], ["%z"]), [x, y])


@pytest.mark.parametrize("predicate", [
    "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno",
])
def test_float_comparisons_agree(predicate: str) -> None:
    kind = tensor((64,), "f32")
    x, y = random(64), random(64, seed=1)
    x[:8], y[4:12] = np.nan, np.nan
    x[20:30] = y[20:30]
    check(nest([(kind, "i"), (kind, "i")], [(kind, "i", ""), (tensor((64,), "i1"), "i", "")], "p", [
        f"%c = arith.cmpf {predicate}, %x0, %x1 : f32", "%one = arith.constant 1.0 : f32",
        "%two = arith.constant 2.0 : f32", "%z = arith.select %c, %one, %two : f32",
    ], ["%z", "%c"]), [x, y])


@pytest.mark.parametrize(("body", "source", "target"), [
    ("arith.sitofp", "i32", "f32"), ("arith.uitofp", "i8", "f32"), ("arith.fptosi", "f32", "i32"),
    ("arith.extsi", "i8", "i32"), ("arith.extui", "i8", "i32"), ("arith.trunci", "i32", "i8"),
    ("arith.extf", "f16", "f32"), ("arith.truncf", "f32", "bf16"), ("arith.extf", "f32", "f64"),
    ("arith.bitcast", "f32", "i32"), ("arith.extui", "i1", "i32"), ("arith.extsi", "i1", "i32"),
    ("arith.sitofp", "i1", "f32"), ("arith.uitofp", "i1", "f32"), ("arith.trunci", "i32", "i1"),
])
def test_conversions_agree(body: str, source: str, target: str) -> None:
    a, b = tensor((45,), source), tensor((45,), target)
    x = random(45, dtype="int32") if source[0] == "i" else 20 * random(45)
    if source == "i1":
        x = x % 2
    check(nest([(a, "i")], [(b, "i", "")], "p", [f"%z = {body} %x0 : {source} to {target}"], ["%z"]),
          [x.astype(DTYPES[source])])


@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (129, 3), (65, 130)])
def test_transposes_move_squares(shape: tuple[int, int]) -> None:
    a, b = tensor(shape, "f32"), tensor(shape[::-1], "f32")
    text = nest([(a, "j, i"), (b, "i, j")], [(b, "i, j", "")], "pp", ["%z = arith.addf %x0, %x1 : f32"], ["%z"])
    x, y = random(*shape), random(*shape[::-1])
    (got,) = interpret(generate(text), [x, y])
    np.testing.assert_array_equal(got, x.T + y)


@pytest.mark.parametrize("channels, pixels, line", [(3, 700, True), (7, 150, True), (8, 150, False)])
def test_few_channels_move_last_in_lines(channels: int, pixels: int, line: bool) -> None:
    a, b = tensor((2, channels, pixels), "f32"), tensor((2, pixels, channels), "f32")
    text = nest([(a, "i, k, j")], [(b, "i, j, k", "")], "ppp", ["%z = arith.negf %x0 : f32"], ["%z"])
    made = generate(text)
    (form,) = next(iter(made.programs.values())).forms
    assert ("[:, None]" not in form.source) is line
    x = random(2, channels, pixels)
    np.testing.assert_array_equal(interpret(made, [x])[0], -x.transpose(0, 2, 1))


@pytest.mark.slow
def test_large_transposes_of_short_numbers_move_larger_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_SQUARE", 8)
    monkeypatch.setattr(loops, "_SHORT_SQUARE", 16)
    for dtype, side, m, n in (("bf16", 16, 411, 397), ("f32", 8, 107, 99)):
        a, b = tensor((m, n), dtype), tensor((n, m), dtype)
        made = generate(nest([(a, "j, i")], [(b, "i, j", "")], "pp", [f"%z = arith.negf %x0 : {dtype}"], ["%z"]))
        (program,) = made.programs.values()
        assert program.forms[0].tasks == -(-m // side) * -(-n // side)
        x = random(m, n).astype(DTYPES[dtype])
        (got,) = interpret(made, [x])
        np.testing.assert_array_equal(got.astype("f4"), -x.T.astype("f4"))


@pytest.mark.parametrize("form", [0, 1])
def test_many_short_numbers_are_taken_in_longer_lines(monkeypatch: pytest.MonkeyPatch, form: int) -> None:
    for name, value in (("_SHORT_POINTS", 32), ("_MANY_POINTS", 64), ("_MANY", 1)):
        monkeypatch.setattr(loops, name, value)
    kind = tensor((8500,), "bf16")
    made = generate(nest([(kind, "i")], [(kind, "i", "")], "p", ["%z = arith.addf %x0, %x0 : bf16"], ["%z"]))
    (program,) = made.programs.values()
    assert [(one.label, one.tasks) for one in program.forms] == [("64 points", 133), ("32 points", 266)]
    x = random(8500).astype(DTYPES["bf16"])
    (got,) = interpret(made, [x], form)
    np.testing.assert_array_equal(got.astype("f4"), 2 * x.astype("f4"))


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_quotients_and_powers_keep_what_is_not_a_number(dtype: str) -> None:
    kind = tensor((25,), dtype)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
    x, y = (values.reshape(-1).astype(DTYPES[dtype]) for values in np.meshgrid(special, special))
    body = [f"%q = arith.divf %x0, %x1 : {dtype}", f"%e = math.exp %x0 : {dtype}"]
    made = generate(nest([(kind, "i"), (kind, "i")], [(kind, "i", ""), (kind, "i", "")], "p", body, ["%q", "%e"]))
    assert ("fast_dividef" in next(iter(made.programs.values())).forms[0].source) == (dtype == "f16")
    with np.errstate(all="ignore"):
        for got, wanted in zip(interpret(made, [x, y]), (x / y, np.exp(x)), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_any_order_of_dimensions_slices_and_indices_agree() -> None:
    a, b, c = tensor((5, 9, 7), "f32"), tensor((7,), "f32"), tensor((7, 5, 4), "f32")
    body = [
        "%i = linalg.index 2 : index", "%j = arith.index_cast %i : index to i32", "%f = arith.sitofp %j : i32 to f32",
        "%s = arith.addf %x0, %x1 : f32", "%z = arith.mulf %s, %f : f32",
    ]
    text = nest([(a, "j, k * 2 + 1, i"), (b, "i")], [(c, "i, j, k", "")], "ppp", body, ["%z"])
    x, y = random(5, 9, 7), random(7)
    (got,) = interpret(generate(text), [x, y])
    wanted = (np.transpose(x[:, 1::2], (2, 0, 1)) + y[:, None, None]) * np.arange(4, dtype="f4")
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


PADDED = """
func.func @main(%x: tensor<5x7xf32>) -> tensor<9x11xf32> {
  %z = arith.constant 2.5 : f32
  %p = tensor.pad %x low[1, 3] high[3, 1] {
  ^bb0(%i: index, %j: index):
    tensor.yield %z : f32
  } : tensor<5x7xf32> to tensor<9x11xf32>
  %e = tensor.empty() : tensor<9x11xf32>"""


@pytest.mark.parametrize("reader, programs", [("exp", 1), ("softmax dimension(1)", 2)])
def test_padding_gives_its_number(reader: str, programs: int) -> None:
    result = f"%r = linalg.{reader} ins(%p : tensor<9x11xf32>) outs(%e : tensor<9x11xf32>) -> tensor<9x11xf32>"
    made = check(f"{PADDED}\n{result}\nreturn %r : tensor<9x11xf32>\n}}", [random(5, 7)])
    assert len(made.programs) == programs


def test_slices_of_padding_are_one_program() -> None:
    made = check(PADDED.replace("-> tensor<9x11xf32> {", "-> tensor<8x9xf32> {") + """
  %a = tensor.extract_slice %p[0, 2] [8, 9] [1, 1] : tensor<9x11xf32> to tensor<8x9xf32>
  %b = tensor.extract_slice %p[1, 1] [8, 9] [1, 1] : tensor<9x11xf32> to tensor<8x9xf32>
  %f = tensor.empty() : tensor<8x9xf32>
  %s = linalg.sub ins(%a, %b : tensor<8x9xf32>, tensor<8x9xf32>) outs(%f : tensor<8x9xf32>) -> tensor<8x9xf32>
  return %s : tensor<8x9xf32>
}""", [random(5, 7)])
    assert len(made.programs) == 1


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (37, 129), (5, 7), (300, 3), (2, 5000), (17, 20000)])
def test_softmax_is_one_program(rows: int, columns: int) -> None:
    made = check(softmax(rows, columns), [random(rows, columns)])
    assert rows == 1 or len(made.programs) == 1


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_softmax_of_short_floats_agrees(dtype: str) -> None:
    check(softmax(9, 65, dtype), [random(9, 65).astype(DTYPES[dtype])], 2e-2)


@pytest.mark.parametrize("dtype, columns", [("f32", 17001), *(
    pytest.param(*long, marks=pytest.mark.slow) for long in (("f32", 32768), ("f16", 40001), ("bf16", 16400))
)])
@pytest.mark.parametrize("form", [0, 1])
def test_long_rows_stay_in_registers_or_are_gone_over(dtype: str, columns: int, form: int) -> None:
    made = generate(softmax(16, columns, dtype))
    (program,) = made.programs.values()
    assert [one.label for one in program.forms] == ["kept", "passes"]
    x = random(16, columns).astype(DTYPES[dtype])
    x[3, 5], x[4, columns - 1] = np.inf, np.nan
    with np.errstate(all="ignore"):
        wide = x.astype("f8")
        wanted = np.exp(wide - wide.max(1, keepdims=True))
        wanted /= wanted.sum(1, keepdims=True)
    (got,) = interpret(made, [x], form)
    tolerance = 1e-5 if dtype == "f32" else 2e-2
    np.testing.assert_allclose(got.astype("f8"), wanted, rtol=tolerance, atol=tolerance / columns)


@pytest.mark.parametrize("shape", [(300, 1000), (1024, 4096)])
def test_a_sum_of_all_is_parted_into_rows_that_registers_hold(shape: tuple[int, int]) -> None:
    kind = tensor(shape, "f32")
    made = generate(nest([(kind, "i, j")], [(tensor((), "f32"), "", "0.0")], "rr", [
        "%z = arith.addf %x0, %y0 : f32",
    ], ["%z"]))
    x = random(*shape)
    (got,) = interpret(made, [x])
    np.testing.assert_allclose(got, x.astype("f8").sum(), atol=1e-2)
    sources = [program.forms[0].source for program in made.programs.values()]
    assert len(sources) == 2 and not any("for k in" in source for source in sources)


def test_rows_that_do_not_fit_registers_are_gone_over() -> None:
    (program,) = generate(softmax(200, 33000)).programs.values()
    assert [one.label for one in program.forms] == [""]


def test_softmax_of_any_number_of_rows_is_one_program() -> None:
    made = generate(softmax("?", 61))
    assert made.kinds == ["rows"]
    for rows in (1, 7, 40):
        x = random(rows, 61)
        (got,) = interpret(made, [x])
        wanted = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(got, wanted / wanted.sum(1, keepdims=True), rtol=1e-5)


def test_a_row_with_nan_or_infinity_stays_alone() -> None:
    x = random(6, 70)
    x[1, 3], x[2, 4], x[3] = np.nan, np.inf, -np.inf
    (got,) = interpret(generate(softmax(6, 70)), [x])
    assert np.isnan(got[[1, 3]]).all() and np.isnan(got[2, 4])
    assert np.isfinite(got[[0, 4, 5]]).all()


REDUCTIONS = {
    "addf": ("0.0", np.sum), "mulf": ("1.0", np.prod), "maximumf": ("0xFF800000", np.max),
    "minimumf": ("0x7F800000", np.min), "maxnumf": ("0xFF800000", np.max),
}


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize(("shape", "inside"), [((70, 130), 1), ((130, 70), 0), ((3, 65), 1), ((2000, 3), 0)])
def test_reductions_along_any_axis_agree_with_numpy(op: str, shape: tuple[int, int], inside: int) -> None:
    begin, function = REDUCTIONS[op]
    a, b = tensor(shape, "f32"), tensor((shape[1 - inside],), "f32")
    text = nest([(a, "i, j")], [(b, "j" if inside == 0 else "i", begin)], "rp" if inside == 0 else "pr",
                [f"%z = arith.{op} %x0, %y0 : f32"], ["%z"])
    x = random(*shape) if op != "mulf" else 1 + 0.01 * random(*shape)
    (got,) = interpret(generate(text), [x])
    np.testing.assert_allclose(got, function(x.astype("f8"), axis=inside), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["addi", "muli", "maxsi", "minsi", "maxui", "minui", "andi", "ori", "xori"])
@pytest.mark.parametrize("dtype", ["i8", "i32"])
def test_integer_reductions_agree(op: str, dtype: str) -> None:
    a, b = tensor((9, 77), dtype), tensor((9,), dtype)
    text = nest([(a, "i, j")], [(b, "i", "5")], "pr", [f"%z = arith.{op} %x0, %y0 : {dtype}"], ["%z"])
    check(text, [random(9, 77, dtype=DTYPES[dtype].name)])


def test_a_sum_of_everything_is_done_in_pieces() -> None:
    text = nest([(tensor((640, 512), "f32"), "i, j")], [(tensor((), "f32"), "", "0.0")], "rr",
                ["%z = arith.addf %x0, %y0 : f32"], ["%z"])
    made = generate(text)
    assert len(made.programs) == 2
    x = random(640, 512)
    np.testing.assert_allclose(interpret(made, [x])[0], x.astype("f8").sum(), rtol=1e-4, atol=1e-2)


def test_the_position_of_a_maximum_is_found_in_order() -> None:
    body = [
        "%j = linalg.index 1 : index", "%k = arith.index_cast %j : index to i32",
        "%c = arith.cmpf ogt, %x0, %y0 : f32", "%z = arith.select %c, %x0, %y0 : f32",
        "%w = arith.select %c, %k, %y1 : i32",
    ]
    text = nest([(tensor((33, 70), "f32"), "i, j")],
                [(tensor((33,), "f32"), "i", "0xFF800000"), (tensor((33,), "i32"), "i", "0")], "pr", body, ["%z", "%w"])
    x = np.round(random(33, 70) * 2)
    values, positions = interpret(generate(text), [x])
    np.testing.assert_array_equal(values, x.max(1))
    np.testing.assert_array_equal(positions, x.argmax(1))


# -- products --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n", "k"), [
    (37, 129, 70), (8, 8, 8), (17, 9, 300), (1, 70, 65), (65, 1, 33), (64, 64, 64),
])
@pytest.mark.parametrize("form", [0, 2])
def test_products_of_odd_shapes_agree(m: int, n: int, k: int, form: int) -> None:
    check(product(m, n, k, "f32", "f32"), [random(m, k), random(k, n), random(n)], 1e-4, form)


@pytest.mark.parametrize(("dtype", "result"), [
    ("f16", "f32"), ("bf16", "f32"), ("f16", "f16"), ("i8", "i32"), ("f64", "f64"), ("i32", "i32"),
])
def test_products_of_every_type_agree(dtype: str, result: str) -> None:
    kind = "int8" if dtype[0] == "i" else "float32"
    inputs = [random(20, 33, dtype=kind), random(33, 40, dtype=kind)]
    bias = random(40, dtype=kind).astype(DTYPES[result])
    check(product(20, 40, 33, dtype, result), [*(x.astype(DTYPES[dtype]) for x in inputs), bias],
          2e-2 if result == "f16" else 1e-4)


@pytest.mark.parametrize(("left", "right"), [("k, i", "k, j"), ("i, k", "j, k"), ("k, i", "j, k")])
def test_products_of_transposed_factors_agree(left: str, right: str) -> None:
    sizes = {"i": 21, "j": 34, "k": 40}
    x, y = (random(*(sizes[d] for d in text.split(", "))) for text in (left, right))
    check(product(21, 34, 40, "f32", "f32", left, right), [x, y, random(34)], 1e-4)


def test_products_of_any_number_of_rows_are_one_program() -> None:
    made = generate(product("?", 24, 40, "f32", "f32"))
    for rows in (1, 5, 70):
        x, y, bias = random(rows, 40), random(40, 24), random(24)
        (got,) = interpret(made, [x, y, bias])
        np.testing.assert_allclose(got, np.maximum(x @ y + bias, 0), rtol=1e-4, atol=1e-4)


def test_products_of_a_batch_agree() -> None:
    a, b, c = tensor((3, 17, 20), "f32"), tensor((3, 20, 9), "f32"), tensor((3, 17, 9), "f32")
    body = ["%z = arith.mulf %x0, %x1 : f32", "%w = arith.addf %z, %y0 : f32"]
    text = nest([(a, "i, j, l"), (b, "i, l, k")], [(c, "i, j, k", "0.0")], "pppr", body, ["%w"])
    x, y = random(3, 17, 20), random(3, 20, 9)
    made = generate(text)
    assert made.kinds == ["contraction"]
    np.testing.assert_allclose(interpret(made, [x, y])[0], x @ y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("image", "filters", "window", "stride", "padding"), [
    ((2, 3, 9, 9), 8, 3, 1, 1), ((1, 8, 7, 11), 16, 3, 2, 1), ((2, 16, 5, 5), 9, 1, 1, 0), ((1, 3, 13, 13), 8, 5, 2, 2),
    ((1, 1, 6, 6), 2, 3, 1, 1),
])
def test_convolutions_agree(
    image: tuple[int, int, int, int], filters: int, window: int, stride: int, padding: int
) -> None:
    text = convolution(image, filters, window, stride, padding)
    check(text, [random(*image), random(filters, image[1], window, window), random(filters)], 1e-4)


def test_depthwise_convolutions_agree() -> None:
    check(depthwise(5, 11, 3), [random(1, 5, 11, 11), random(5, 3, 3)], 1e-5)


SIBLINGS = """
func.func @main(%x: tensor<2x1x9x11xf32>, %k: tensor<6x1x3x3xf32>, %l: tensor<6x1x3x3xf32>, %b: tensor<6xf32>)
    -> tensor<2x6x9x11xf32> {
  %z = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%i: index, %j: index, %m: index, %n: index):
    tensor.yield %z : f32
  } : tensor<2x1x9x11xf32> to tensor<2x1x11x13xf32>
  %e = tensor.empty() : tensor<2x6x9x11xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<2x6x9x11xf32>) -> tensor<2x6x9x11xf32>
  %g = linalg.broadcast ins(%b : tensor<6xf32>) outs(%e : tensor<2x6x9x11xf32>) dimensions = [0, 2, 3]
  %r = linalg.conv_2d_nchw_fchw ins(%p, %k : tensor<2x1x11x13xf32>, tensor<6x1x3x3xf32>)
      outs(%f : tensor<2x6x9x11xf32>) -> tensor<2x6x9x11xf32>
  %s = linalg.conv_2d_nchw_fchw ins(%p, %l : tensor<2x1x11x13xf32>, tensor<6x1x3x3xf32>)
      outs(%g : tensor<2x6x9x11xf32>) -> tensor<2x6x9x11xf32>
  %t = linalg.add ins(%r, %s : tensor<2x6x9x11xf32>, tensor<2x6x9x11xf32>)
      outs(%e : tensor<2x6x9x11xf32>) -> tensor<2x6x9x11xf32>
  return %t : tensor<2x6x9x11xf32>
}"""


@pytest.mark.parametrize("form", [0, 1])
def test_sibling_convolutions_of_few_products_are_one_program(form: int) -> None:
    inputs = [random(2, 1, 9, 11), random(6, 1, 3, 3), random(6, 1, 3, 3, seed=1), random(6)]
    made = check(SIBLINGS, inputs, 1e-5, form)
    assert made.kinds == ["windows"] and len(made.programs) == 1


@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
def test_constant_factors_lie_along_k_for_tensor_cores(precision: str) -> None:
    target = resolve_target(f"cuda:sm_90a/{precision}")
    weights = random(24, 40)
    text = f"""
func.func @main(%a: tensor<20x24xf32>) -> tensor<20x40xf32> {{
  %w = arith.constant dense<{weights.tolist()}> : tensor<24x40xf32>
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<20x40xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<20x40xf32>) -> tensor<20x40xf32>
  %r = linalg.matmul ins(%a, %w : tensor<20x24xf32>, tensor<24x40xf32>) outs(%f : tensor<20x40xf32>)
      -> tensor<20x40xf32>
  return %r : tensor<20x40xf32>
}}"""
    assert isinstance(target, GpuTarget)
    made = generate(text, target)
    (program,) = made.programs.values()
    assert f'input_precision="{precision}"' in program.forms[0].source
    assert "dimensions lie as [1, 0]" in program.forms[0].source
    x = random(20, 24)
    np.testing.assert_allclose(interpret(made, [x])[0], x @ weights, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("depth", "launches"), [(1024, 2), (700, 2), (500, 1)])
def test_a_product_of_few_tiles_is_parted_along_its_sum(depth: int, launches: int) -> None:
    made = check(product(17, 24, depth, "f32", "f32"), [random(17, depth), random(depth, 24), random(24)], 1e-3)
    assert len(made.programs) == launches


@pytest.mark.parametrize(("left", "right"), [("i, k", "k, j"), ("i, k", "j, k")])
def test_a_matrix_and_a_vector_are_multiplied_in_rows(left: str, right: str) -> None:
    sizes = {"i": 1, "j": 300, "k": 900}
    x, y = (random(*(sizes[d] for d in text.split(", "))) for text in (left, right))
    made = check(product(1, 300, 900, "f32", "f32", left, right), [x, y, random(300)], 1e-3)
    assert made.kinds == ["rows"]


# -- gathers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["i32", "i64"])
@pytest.mark.parametrize("shape", [(9, 4), (101, 24), (1, 7)])
def test_rows_of_a_table_are_gathered(kind: str, shape: tuple[int, int]) -> None:
    table, ids, result = tensor(shape, "f32"), tensor((13,), kind), tensor((13, shape[1]), "f32")
    text = f"""
func.func @main(%x: {table}, %i: {ids}) -> {result} {{
  %e = tensor.empty() : {result}
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}} ins(%i : {ids}) outs(%e : {result}) {{
  ^bb0(%k: {kind}, %y: f32):
    %n = arith.index_cast %k : {kind} to index
    %c = linalg.index 1 : index
    %v = tensor.extract %x[%n, %c] : {table}
    %w = arith.addf %v, %v : f32
    linalg.yield %w : f32
  }} -> {result}
  return %r : {result}
}}"""
    x, ids_ = random(*shape), np.random.default_rng(1).integers(0, shape[0], 13).astype(DTYPES[kind])
    made = generate(text)
    np.testing.assert_array_equal(interpret(made, [x, ids_])[0], 2 * x[ids_])
    ids_[:2] = [-5, 1000]  # what lies outside is brought to the border, rather than lose the GPU, and told of
    got, failure = interpret_checked(made, [x, ids_])
    np.testing.assert_array_equal(got[0][:2], 2 * x[[0, -1]])
    assert re.search(rf"tensor.extract: index (-5|1000) .*outside of an axis of extent {shape[0]}", str(failure))


@pytest.mark.parametrize("op, value", [
    ("math.powf", 2.0), ("math.powf", 0.5), ("math.powf", 3.0), ("arith.divf", 8.0), ("arith.divf", 3.0),
    ("math.fpowi", 2),
])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_powers_and_quotients_by_constants(op: str, value: float, dtype: str) -> None:
    kind = tensor((200,), dtype)
    second = "i64" if op == "math.fpowi" else dtype
    kinds = f"{dtype}, i64" if op == "math.fpowi" else dtype
    lines = [f"%c = arith.constant {value} : {second}", f"%z = {op} %x0, %c : {kinds}"]
    text = nest([(kind, "i")], [(kind, "i", "")], "p", lines, ["%z"])
    x = (random(200) * 3).astype(DTYPES[dtype])
    x[:5] = np.array([0.0, -0.0, np.inf, -np.inf, np.nan]).astype(x.dtype)
    (y,) = interpret(generate(text), [x])
    function = np.divide if op == "arith.divf" else np.power
    with np.errstate(invalid="ignore"):
        wanted = function(x.astype("f4"), np.full(x.shape, value, "f4")).astype(x.dtype)
    np.testing.assert_allclose(y.astype("f4"), wanted.astype("f4"), rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(y[:2]), np.signbit(wanted[:2]))
