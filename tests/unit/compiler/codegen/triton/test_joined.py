"""Products whose results meet element by element, for GPUs: one launch, with the rounding of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import SM_90A, Generated, generate, interpret, random

import motet
from motet.artifact.dtypes import DTYPES
from motet.compiler.codegen.gpu.gemm import multi_matching as joining
from motet.compiler.codegen.gpu.gemm import multi_plan as joined
from motet.compiler.codegen.triton.compile.objects import compile_programs
from motet.compiler.kernels.multi_gemm import ProductShape
from motet.compiler.targets.gpu import GpuTarget
from motet.runtime.device import probe

GPU = probe("cuda")[0]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are joined whatever the model says."""

    def multi_gemm_pays(products: Sequence[ProductShape], _: object) -> bool:
        return len(products) <= 3

    monkeypatch.setattr(joined, "pays", multi_gemm_pays)


def tensor(shape: Sequence[int], dtype: str) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{dtype}>"


def product(name: str, left: str, right: str, m: int, n: int, k: int, dtype: str, begin: str = "%f") -> str:
    """`right` as columns × sum where its name ends with t."""
    wide = "f32" if dtype.startswith("f8") else dtype
    across = right.endswith("t")
    maps = "(m, k)", "(n, k)" if across else "(k, n)", "(m, n)"
    listed = ", ".join(f"affine_map<(m, n, k) -> {each}>" for each in maps)
    lines = ["%i4 = arith.mulf %i0, %i1", "%i5 = arith.addf %i4, %i2"]
    if wide != dtype:
        widened = ["%i6 = arith.extf %i0", "%i7 = arith.extf %i1"]
        lines = [*widened, "%i4 = arith.mulf %i6, %i7", "%i5 = arith.addf %i4, %i2"]
    body = "\n".join(f"{line} : {f'{dtype} to ' if 'extf' in line else ''}{wide}" for line in lines)
    shapes = tensor((m, k), dtype), tensor((n, k) if across else (k, n), dtype), tensor((m, n), wide)
    return f"""
  {name} = linalg.generic {{indexing_maps = [{listed}], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins({left}, {right} : {shapes[0]}, {shapes[1]}) outs({begin} : {shapes[2]}) {{
  ^bb0(%i0: {dtype}, %i1: {dtype}, %i2: {wide}):
    {body}
    linalg.yield %i5 : {wide}
  }} -> {shapes[2]}"""


def function(
    m: int, n: int, dtype: str, arguments: Mapping[str, Sequence[int]], body: str, results: Sequence[str]
) -> str:
    wide = "f32" if dtype.startswith("f8") else dtype
    given = ", ".join(f"{name}: {tensor(shape, dtype)}" for name, shape in arguments.items())
    kind = tensor((m, n), wide)
    made = ", ".join([kind] * len(results))
    return f"""
func.func @main({given}) -> ({made}) {{
  %zero = arith.constant 0.0 : {wide}
  %e = tensor.empty() : {kind}
  %f = linalg.fill ins(%zero : {wide}) outs(%e : {kind}) -> {kind}
  {body}
  return {", ".join(results)} : {made}
}}"""


def named(operation: str, name: str, operands: Sequence[str], m: int, n: int, dtype: str) -> str:
    kind = tensor((m, n), dtype)
    return f"""
  {name} = linalg.{operation} ins({", ".join(operands)} : {", ".join([kind] * len(operands))})
      outs(%e : {kind}) -> {kind}"""


def sum_of_two(m: int, n: int, first: int, second: int, dtype: str, across: str = "") -> str:
    """a·b + c·d; `across` names the right factors that lie along their sums."""
    wide = "f32" if dtype.startswith("f8") else dtype
    b, d = ("%bt" if "b" in across else "%b"), ("%dt" if "d" in across else "%d")
    shapes = {
        "%a": (m, first), b: (n, first) if "b" in across else (first, n), "%c": (m, second),
        d: (n, second) if "d" in across else (second, n),
    }
    body = product("%p", "%a", b, m, n, first, dtype) + product("%q", "%c", d, m, n, second, dtype)
    return function(m, n, dtype, shapes, body + named("add", "%r", ["%p", "%q"], m, n, wide), ["%r"])


def gated(m: int, n: int, k: int, dtype: str, across: bool = True) -> str:
    """tanh(x·w) * (x·u)."""
    right = (n, k) if across else (k, n)
    w, u = ("%wt", "%ut") if across else ("%w", "%u")
    body = product("%p", "%x", w, m, n, k, dtype) + product("%q", "%x", u, m, n, k, dtype)
    body += named("tanh", "%g", ["%p"], m, n, dtype) + named("mul", "%r", ["%g", "%q"], m, n, dtype)
    return function(m, n, dtype, {"%x": (m, k), w: right, u: right}, body, ["%r"])


def rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    return x.astype(DTYPES["f32" if dtype.startswith("f8") else dtype]).astype("f8")


def times(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype("f8") @ b.astype("f8")


def close(result: np.ndarray, expected: np.ndarray, dtype: str, length: int) -> None:
    """Sums differ by their order alone, and by one rounding where that moves them over a border."""
    step = {"f32": 2.0**-23, "f64": 2.0**-52, "bf16": 2.0**-8, "f16": 2.0**-11}.get(dtype, 2.0**-23)
    scale = np.abs(expected).max() * (1 if step > 2.0**-20 else length**0.5)
    np.testing.assert_allclose(result.astype("f8"), expected, rtol=0, atol=4 * step * scale)


def one_launch(made: Generated) -> None:
    assert made.kinds == ["products"] and len(made.programs) == 1


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("m", "n", "first", "second"), [(37, 41, 67, 130), (64, 48, 32, 32), (8, 129, 200, 24)])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_a_sum_of_two_products_is_one_launch(m: int, n: int, first: int, second: int, dtype: str) -> None:
    made = generate(sum_of_two(m, n, first, second, dtype))
    one_launch(made)
    shapes = (m, first), (first, n), (m, second), (second, n)
    a, b, c, d = (random(*shape, seed=i).astype(DTYPES[dtype]) for i, shape in enumerate(shapes))
    (result,) = interpret(made, [a, b, c, d])
    expected = rounded(times(a, b), dtype) + rounded(times(c, d), dtype)
    close(result, expected, dtype, first + second)


@pytest.mark.usefixtures("always")
def test_the_first_result_is_rounded_before_the_sum() -> None:
    m = n = 16
    made = generate(sum_of_two(m, n, 8, 8, "f16"))
    one_launch(made)
    factor = np.zeros((m, 8), np.float16)
    factor[:, :2] = 2048, 3
    ones = np.ones((8, n), np.float16)
    (result,) = interpret(made, [factor, ones, factor, ones])
    assert np.all(result == 2 * 2052.0)  # unrounded, 2051 + 2051 were 4102, which is 4104 or 4100 in f16


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("across", ["", "b", "bd"])
def test_factors_lie_in_any_order(across: str) -> None:
    m, n, first, second = 24, 40, 56, 72
    made = generate(sum_of_two(m, n, first, second, "bf16", across))
    one_launch(made)
    bfloat16 = DTYPES["bf16"]
    a, c = random(m, first, seed=1).astype(bfloat16), random(m, second, seed=2).astype(bfloat16)
    b, d = random(first, n, seed=3).astype(bfloat16), random(second, n, seed=4).astype(bfloat16)
    given = [np.ascontiguousarray(each.T) if name in across else each for name, each in (("b", b), ("d", d))]
    (result,) = interpret(made, [a, given[0], c, given[1]])
    close(result, rounded(times(a, b), "bf16") + rounded(times(c, d), "bf16"), "bf16", first + second)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("m", "n", "k"), [(33, 70, 100), (64, 64, 64), (8, 257, 40)])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_a_factor_in_common_is_read_once(m: int, n: int, k: int, dtype: str) -> None:
    made = generate(gated(m, n, k, dtype))
    one_launch(made)
    (program,) = made.programs.values()
    form = next(form for form in program.forms if form.label.startswith("2 products at once"))
    assert form.source.count("tl.load(v0 ") == 1
    x, w, u = (random(*shape, seed=i).astype(DTYPES[dtype]) for i, shape in enumerate(((m, k), (n, k), (n, k))))
    (result,) = interpret(made, [x, w, u])
    gate = rounded(np.tanh(rounded(times(x, w.T), dtype)), dtype)
    close(result, gate * rounded(times(x, u.T), dtype), dtype, k)


@pytest.mark.usefixtures("always")
def test_sums_are_rounded_to_bf16_so_that_nobody_multiplies_16_bits_with_them() -> None:
    (program,) = generate(gated(256, 384, 256, "bf16")).programs.values()
    for form in program.forms:
        assert form.source.count("tl.int16, bitcast=True") >= 2
        assert "acc0).to(tl.bfloat16).to(tl.float32)" not in form.source


@pytest.mark.usefixtures("always")
def test_three_products_and_what_follows_are_one_launch() -> None:
    m, n, k = 20, 36, 48
    body = "".join(product(f"%p{i}", f"%a{i}", f"%b{i}", m, n, k, "f32") for i in range(3))
    body += named("add", "%r0", ["%p0", "%p1"], m, n, "f32") + named("mul", "%r1", ["%r0", "%p2"], m, n, "f32")
    body += named("exp", "%r2", ["%r1"], m, n, "f32")
    shapes = {f"%{name}{i}": shape for i in range(3) for name, shape in (("a", (m, k)), ("b", (k, n)))}
    made = generate(function(m, n, "f32", shapes, body, ["%r2"]))
    one_launch(made)
    given = [random(*shape, seed=i) / 8 for i, shape in enumerate(shapes.values())]
    (result,) = interpret(made, given)
    first, second, third = (times(given[2 * i], given[2 * i + 1]) for i in range(3))
    close(result, np.exp((first + second) * third), "f32", k)


@pytest.mark.usefixtures("always")
def test_a_sum_that_goes_on_over_the_second_product() -> None:
    m, n, k = 24, 24, 40
    body = product("%p", "%a", "%b", m, n, k, "f32") + product("%q", "%c", "%d", m, n, k, "f32", "%p")
    body += named("exp", "%r", ["%q"], m, n, "f32")
    shapes = {"%a": (m, k), "%b": (k, n), "%c": (m, k), "%d": (k, n)}
    made = generate(function(m, n, "f32", shapes, body, ["%r"]))
    one_launch(made)
    given = [random(*shape, seed=i) / 4 for i, shape in enumerate(shapes.values())]
    (result,) = interpret(made, given)
    close(result, np.exp(times(*given[:2]) + times(*given[2:])), "f32", 2 * k)


@pytest.mark.usefixtures("always")
def test_what_is_also_a_result_is_no_part_of_it() -> None:
    m, n, k = 16, 16, 32
    text = sum_of_two(m, n, k, k, "f32").replace("return %r : ", "return %r, %p : ")
    kind = tensor((m, n), "f32")
    text = text.replace(f"-> ({kind}) {{", f"-> ({kind}, {kind}) {{")
    made = generate(text.replace(f"%r, %p : {kind}", f"%r, %p : {kind}, {kind}"))
    assert "products" not in made.kinds
    a, b, c, d = (random(*shape, seed=i) for i, shape in enumerate(((m, k), (k, n), (m, k), (k, n))))
    both, first = interpret(made, [a, b, c, d])
    close(first, times(a, b), "f32", k)
    close(both, times(a, b) + times(c, d), "f32", 2 * k)


@pytest.mark.usefixtures("always")
def test_a_product_of_a_product_is_no_part_of_it() -> None:
    m = 24
    body = product("%p", "%a", "%b", m, m, m, "f32") + named("exp", "%g", ["%p"], m, m, "f32")
    body += product("%q", "%p", "%d", m, m, m, "f32") + named("add", "%r", ["%q", "%g"], m, m, "f32")
    made = generate(function(m, m, "f32", dict.fromkeys(("%a", "%b", "%d"), (m, m)), body, ["%r"]))
    assert "products" not in made.kinds
    a, b, d = (random(m, m, seed=i) / 5 for i in range(3))
    (result,) = interpret(made, [a, b, d])
    close(result, times(times(a, b), d) + np.exp(times(a, b)), "f32", m)


# -- whether it pays -------------------------------------------------------------------------------


def shapes(m: int, n: int, *depths: int, dtype: str = "bf16", shared: bool = False) -> list[ProductShape]:
    return [
        ProductShape(1, m, n, k, (dtype, dtype, "f32"), 0 if shared else 2 * number, 2 * number + 1)
        for number, k in enumerate(depths)
    ]


def test_a_sum_of_two_square_products_is_joined_without_being_asked() -> None:
    one_launch(generate(sum_of_two(1024, 1024, 1024, 1024, "bf16")))


@pytest.mark.parametrize(
    "products",
    [
        shapes(64, 64, 4096, 4096),  # few tiles, long sums: each is parted among processors
        shapes(4, 4096, 4096, 4096),  # few rows: read line by line
        shapes(1024, 1024, *[1024] * 4),  # too many to keep
        [*shapes(1024, 1024, 1024), *shapes(1024, 1024, 1024, dtype="f16")],
    ],
)
def test_what_several_launches_do_better_is_not(products: list[ProductShape]) -> None:
    assert not joined.pays(products, SM_90A)


# -- around a ring ---------------------------------------------------------------------------------


RINGS = [
    pytest.param(gated(264, 384, 256, "bf16"), "at once", id="at once"),
    pytest.param(sum_of_two(264, 512, 256, 128, "bf16"), "in turn", id="in turn", marks=pytest.mark.slow),
    pytest.param(sum_of_two(264, 512, 256, 128, "f8E4M3FN", "bd"), "in turn", id="8 bits", marks=pytest.mark.slow),
]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("text", "way"), RINGS)
def test_rings_compile(text: str, way: str) -> None:
    made = generate(text)
    (program,) = made.programs.values()
    found = [form for form in program.forms if form.label.startswith(f"ring of 2 products {way}")]
    assert found
    (compiled,) = compile_programs([replace(program, forms=(found[0],))], SM_90A, 1)[0]
    assert not compiled.error and not compiled.spills
    assert compiled.warps > found[0].warps  # those that fetch are more


@pytest.mark.cuda
@pytest.mark.skipif(not GPU.available, reason=GPU.reason)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("way", ["at once", "in turn"])
def test_rings_agree_with_numpy(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = joined.choices

    def around(j: joining.Joined, target: GpuTarget) -> tuple[joined.MultiRing, ...]:
        return tuple(choice for choice in every(j, target) if isinstance(choice, joined.MultiRing))

    monkeypatch.setattr(joined, "choices", around)
    m, n, k = 264, 384, 256
    text = tmp_path / "p.mlir"
    text.write_text(gated(m, n, k, "bf16") if way == "at once" else sum_of_two(m, n, k, k, "bf16"))
    shapes = ((m, k), (n, k), (n, k)) if way == "at once" else ((m, k), (k, n), (m, k), (k, n))
    given = [random(*shape, seed=i).astype(DTYPES["bf16"]) for i, shape in enumerate(shapes)]
    with motet.load(motet.compile(text, devices="cuda{arch=sm_90a}", cache=False)) as session:
        result = np.asarray(session(*given))
    if way == "at once":
        x, w, u = given
        expected = rounded(np.tanh(rounded(times(x, w.T), "bf16")), "bf16") * rounded(times(x, u.T), "bf16")
    else:
        expected = rounded(times(*given[:2]), "bf16") + rounded(times(*given[2:]), "bf16")
    close(result, expected, "bf16", 2 * k)
