"""Products of bf16 numbers on every level of x86-64, from text to result, against numpy's products in double
precision."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from tests.prepared import load_mlir
from tests.seeds import examples
from tests.unit.compiler.building import build, kinds

from motet.compiler import pipeline
from motet.compiler.ir._mlir import ir
from motet.compiler.targets.cpu import (
    X86_64_V3,
    X86_64_V4,
    X86_64_V4_AMX,
    X86_64_V4_BF16,
    X86_64_V4_VNNI,
    CpuTarget,
)
from motet.cpu_features import allow, host_features

BFLOAT16 = ml_dtypes.bfloat16
MAPS = {"n": ("m, k", "k, n"), "ta": ("k, m", "k, n"), "tb": ("m, k", "n, k"), "tt": ("k, m", "n, k")}


def _runs(target: CpuTarget) -> bool:
    return set(target.requires) <= host_features() and allow(target.requires)


def on(*targets: CpuTarget) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("target", [
        pytest.param(target, id=target.name,
                     marks=pytest.mark.skipif(not _runs(target), reason=f"this processor is no {target.name}"))
        for target in targets
    ])


@dataclass(frozen=True)
class Case:
    """A product of `m` x `k` by `k` x `n` numbers, stored in the order of `MAPS`, `batch` of them (0: no such
    dimension). The extents in `dynamic` are only known in a call; `constant` makes the right operand a constant; the
    result is of dtype `out`."""

    m: int
    n: int
    k: int
    order: str = "n"
    batch: int = 0
    dynamic: str = ""
    constant: bool = False
    out: str = "f32"
    dtype: str = "bf16"

    def operands(self) -> tuple[np.ndarray, np.ndarray]:
        """The operands as they are stored."""
        generator = np.random.default_rng(self.m + self.n + self.k)
        lead = (self.batch,) if self.batch else ()
        dtype = np.float16 if self.dtype == "f16" else BFLOAT16
        a, b = (
            generator.standard_normal((*lead, *shape)).astype(dtype) for shape in ((self.m, self.k), (self.k, self.n))
        )
        first, second = self.order in ("ta", "tt"), self.order in ("tb", "tt")
        return (a.swapaxes(-1, -2).copy() if first else a), (b.swapaxes(-1, -2).copy() if second else b)

    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        """The product in double precision, and the bound of a sum's rounding errors in f32."""
        a, b = (each.astype(np.float64) for each in self.operands())
        a = a.swapaxes(-1, -2) if self.order in ("ta", "tt") else a
        b = b.swapaxes(-1, -2) if self.order in ("tb", "tt") else b
        exact = a @ b
        bound = (abs(a) @ abs(b)) * (self.k + 2) * 2.0**-24
        rounding = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 0.0}[self.out]
        return exact, bound + (abs(exact) + bound) * rounding + 1e-30

    def text(self) -> str:
        extents = {"z": self.batch, "m": self.m, "n": self.n, "k": self.k}
        shown = {name: "?" if name in self.dynamic else str(extent) for name, extent in extents.items()}
        lead = ["z"] if self.batch else []
        a, b = ([*lead, *dims.split(", ")] for dims in MAPS[self.order])
        c, loops = [*lead, "m", "n"], [*lead, "m", "n", "k"]

        def kind(dims: list[str], element: str) -> str:
            return "tensor<" + "x".join(shown[d] for d in dims) + f"x{element}>"

        def extent(name: str, source: str, dims: list[str]) -> str:
            here = kind(dims, self.dtype)
            return f"%{name} = tensor.dim {source}, %c{dims.index(name)} : {here}" if shown[name] == "?" else ""

        sizes = ", ".join(f"%{d}" for d in c if shown[d] == "?")
        maps = ", ".join(f"affine_map<({', '.join(loops)}) -> ({', '.join(dims)})>" for dims in (a, b, c))
        same = f"affine_map<({', '.join(c)}) -> ({', '.join(c)})>"
        iterators = ", ".join('"reduction"' if d == "k" else '"parallel"' for d in loops)
        data = self.operands()[1].tobytes().hex()
        constant = f'%b = arith.constant dense<"0x{data}"> : {kind(b, self.dtype)}' if self.constant else ""
        rounded = f"""
  %o = tensor.empty({sizes}) : {kind(c, self.out)}
  %t = linalg.generic {{indexing_maps = [{same}, {same}], iterator_types = [{', '.join(['"parallel"'] * len(c))}]}}
    ins(%r : {kind(c, "f32")}) outs(%o : {kind(c, self.out)}) {{
    ^bb0(%x: f32, %y: {self.out}):
      %w = arith.truncf %x : f32 to {self.out}
      linalg.yield %w : {self.out}
  }} -> {kind(c, self.out)}"""
        return f"""
func.func @main(%a: {kind(a, self.dtype)}{"" if self.constant else f", %b: {kind(b, self.dtype)}"})
    -> {kind(c, self.out)} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  {constant}
  {extent("m", "%a", a)}
  {extent("n", "%b", b)}
  %z = arith.constant 0.0 : f32
  %e = tensor.empty({sizes}) : {kind(c, "f32")}
  %f = linalg.fill ins(%z : f32) outs(%e : {kind(c, "f32")}) -> {kind(c, "f32")}
  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}}
    ins(%a, %b : {kind(a, self.dtype)}, {kind(b, self.dtype)}) outs(%f : {kind(c, "f32")}) {{
    ^bb0(%x: {self.dtype}, %y: {self.dtype}, %s: f32):
      %p = arith.extf %x : {self.dtype} to f32
      %q = arith.extf %y : {self.dtype} to f32
      %u = arith.mulf %p, %q : f32
      %v = arith.addf %s, %u : f32
      linalg.yield %v : f32
  }} -> {kind(c, "f32")}
  {"" if self.out == "f32" else rounded}
  return {"%r" if self.out == "f32" else "%t"} : {kind(c, self.out)}
}}"""


CASES = [
    Case(1, 1, 1), Case(128, 128, 128, out="bf16"), Case(17, 33, 65), Case(37, 101, 53, "tb"), Case(37, 50, 131, "ta"),
    Case(40, 50, 130, "tt", out="bf16"), Case(33, 77, 96, batch=3), Case(5, 7, 96, "tb", 2, "mn"),
    Case(100, 200, 64, "tb", constant=True, out="bf16"), Case(5, 16, 2000, constant=True), Case(130, 200, 2500),
    Case(7, 5, 3, dynamic="mnk"), Case(61, 45, 64, dynamic="m", constant=True, out="bf16"),
    Case(9, 45, 64, "tb", dynamic="m", constant=True), Case(300, 48, 700, "tb", dynamic="mnk"),
    Case(1, 64, 64, "tb", constant=True), Case(33, 31, 33, "tb", constant=True), Case(48, 17, 2080, constant=True),
    Case(16, 16, 32), Case(31, 15, 34, constant=True), Case(1, 300, 129), Case(513, 1, 31),
]


def agrees(case: Case, target: CpuTarget) -> bool:
    session = build(case.text(), target)
    a, b = case.operands()
    got = np.asarray(session.main(a) if case.constant else session.main(a, b)).astype(np.float64)
    exact, bound = case.expected()
    return got.shape == exact.shape and bool((abs(got - exact) <= bound).all())


@on(X86_64_V4_AMX, X86_64_V4_BF16)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_of_odd_shapes_round_like_sums_in_f32(case: Case, target: CpuTarget) -> None:
    assert agrees(case, target)


@on(X86_64_V4_AMX, X86_64_V4_BF16, X86_64_V4, X86_64_V3)
def test_random_shapes_orders_and_dynamic_extents_agree_with_double_precision(target: CpuTarget) -> None:
    seed = int(np.random.default_rng().integers(1 << 30))
    generator = np.random.default_rng(seed)
    for _ in range(examples(4)):
        m, n, k = (int(generator.choice([1, 3, 15, 16, 17, 31, 32, 33, 47, 64, 65, 97, 129])) for _ in range(3))
        dynamic = str(generator.choice(["", "m", "mn", "mnk"]))
        case = Case(
            m, n, k, str(generator.choice(list(MAPS))), int(generator.choice([0, 2])), dynamic,
            dynamic in ("", "m") and bool(generator.integers(2)), str(generator.choice(["f32", "bf16"])),
        )
        assert agrees(case, target), (seed, case)


@on(X86_64_V4, X86_64_V3)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize(("m", "n", "k"), [(100, 200, 64), (48, 17, 1300), (5, 70, 300), (16, 33, 129)])
@pytest.mark.parametrize("constant", [True, False])
def test_levels_without_instructions_widen(
    m: int, n: int, k: int, dtype: str, constant: bool, target: CpuTarget
) -> None:
    assert agrees(Case(m, n, k, constant=constant, dtype=dtype), target)


@on(X86_64_V4_AMX, X86_64_V4_BF16)
@pytest.mark.parametrize("order", list(MAPS))
def test_infinities_stay_in_their_rows_and_columns(order: str, target: CpuTarget) -> None:
    case = Case(33, 40, 45, order)
    a, b = case.operands()
    (a.T if order in ("ta", "tt") else a)[7, 44] = np.inf
    (b.T if order in ("tb", "tt") else b)[44, 33] = np.nan
    got = np.asarray(build(case.text(), target).main(a, b)).astype(np.float64)
    expected = np.zeros((33, 40), bool)
    expected[7] = expected[:, 33] = True
    assert (~np.isfinite(got) == expected).all()


def test_instructions_for_bf16_multiply_it() -> None:
    case = Case(64, 64, 64)
    assert not _runs(X86_64_V4_AMX) or kinds(case.text(), X86_64_V4_AMX) == ["bf16 product, tiles"]
    assert not _runs(X86_64_V4_BF16) or kinds(case.text(), X86_64_V4_BF16) == ["bf16 product, dots"]


def test_levels_for_bf16_are_left_out_of_programs_without_it() -> None:
    levels = [X86_64_V4_AMX, X86_64_V4_BF16, X86_64_V4_VNNI, X86_64_V4]

    def variants(text: str) -> list[str]:
        program = load_mlir(text, "test.mlir")
        with program.module.context, ir.Location.unknown():
            built = pipeline.build(program, levels, 1, lambda what, fraction: None)
        return [variant.target for variant in built.manifest.variants]

    assert variants(Case(64, 64, 64).text()) == ["x86-64-v4-amx", "x86-64-v4-bf16", "x86-64-v4"]
    assert variants(Case(64, 64, 64, dtype="f16").text()) == ["x86-64-v4"]
