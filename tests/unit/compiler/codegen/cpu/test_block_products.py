"""Products by weights of 4 and 8 bits in blocks, from ONNX to result on each level, against numpy's products in double
precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.prepared import load_source

from motet.artifact.reader import Artifact
from motet.artifact.writer import write_artifact
from motet.compiler import pipeline
from motet.compiler.ir._mlir import ir
from motet.compiler.targets.cpu import X86_64_V3, X86_64_V4, CpuTarget
from motet.cpu_features import host_features
from motet.runtime import Session, load

TARGETS = [
    pytest.param(target, id=target.name, marks=pytest.mark.skipif(
        not set(target.requires) <= set(host_features()), reason=f"this processor is no {target.name}"
    ))
    for target in (X86_64_V4, X86_64_V3)
]
Zeros = Literal["none", "whole", "real"]
REAL = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16}


@dataclass(frozen=True)
class Case:
    """A product of `m` rows of `k` numbers by `n` columns of weights, as a MatMulNBits (`nbits`), or after a
    DequantizeLinear with blocks of rows (`rows`) or of columns that are transposed (`columns`). `block` 0: one scale
    for each column. With `dynamic`, M is only known in a call; with `ends`, a bias and a Relu follow."""

    m: int
    k: int
    n: int
    block: int = 32
    bits: int = 4
    zeros: Zeros = "none"
    form: Literal["nbits", "rows", "columns"] = "nbits"
    dtype: str = "f32"
    dynamic: bool = False
    ends: bool = False
    lead: tuple[int, ...] = ()


@dataclass(frozen=True)
class Expected:
    """The input of a product, its exact result, and the largest difference from it."""

    case: Case
    x: np.ndarray
    exact: np.ndarray
    bound: np.ndarray


@dataclass
class Model:
    """A model under construction, of several products. What `case` adds has names that begin with `prefix`."""

    random: np.random.Generator
    case: Case = field(default_factory=lambda: Case(1, 1, 1))
    prefix: str = ""
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    constants: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list[onnx.ValueInfoProto])
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list[onnx.ValueInfoProto])

    def constant(self, name: str, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), self.prefix + name))
        return self.prefix + name

    def node(self, operator: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [self.prefix + output], domain=domain, **attributes))
        return self.prefix + output

    def stored(self, name: str, kind: int, array: np.ndarray) -> str:
        """A constant of a type that numpy lacks."""
        self.constants.append(helper.make_tensor(self.prefix + name, kind, array.shape, array.flatten().tolist()))
        return self.prefix + name

    def scales(self, *shape: int) -> np.ndarray:
        real = np.float16 if self.case.dtype == "f16" else np.float32
        return (self.random.random(shape) * 0.02 + 0.01).astype(real)

    def nbits(self) -> tuple[str, np.ndarray, np.ndarray]:
        """The result of a MatMulNBits, its weights, and bounds of the numbers that are summed."""
        c, high = self.case, 1 << self.case.bits
        block = c.block or 1 << (c.k - 1).bit_length()
        blocks = -(-c.k // block)
        numbers, scales = self.random.integers(0, high, (c.n, blocks, block)), self.scales(c.n, blocks)
        names = [self.prefix + "x", self.constant("w", _packed(numbers, c.bits))]
        names.append(self.constant("s", scales.reshape(-1)))
        zeros = np.full((c.n, blocks), high / 2)
        if c.zeros == "whole":
            zeros = self.random.integers(0, high, (c.n, blocks))
            names.append(self.constant("z", _packed(zeros, c.bits).reshape(-1)))
        elif c.zeros == "real":
            zeros = (self.random.random((c.n, blocks)) * high).astype(scales.dtype)
            names.append(self.constant("z", zeros.reshape(-1)))
        y = self.node(
            "MatMulNBits", names, "y", "com.microsoft", K=c.k, N=c.n, bits=c.bits, block_size=block)
        scales = scales.astype(np.float64)[..., None]
        weights, bounds = (numbers - zeros[..., None]) * scales, (numbers + np.abs(zeros)[..., None]) * scales
        weights, bounds = (each.reshape(c.n, -1)[:, : c.k].T for each in (weights, bounds))
        return y, weights, bounds

    def linear(self) -> tuple[str, np.ndarray, np.ndarray]:
        """A product after a DequantizeLinear, its weights, and bounds of the numbers that are summed."""
        c = self.case
        signed = bool(self.random.integers(2))
        low, high = (-(1 << (c.bits - 1)), 1 << (c.bits - 1)) if signed else (0, 1 << c.bits)
        kind = {(4, True): TensorProto.INT4, (4, False): TensorProto.UINT4, (8, True): TensorProto.INT8,
                (8, False): TensorProto.UINT8}[c.bits, signed]
        rows, blocks = (1, -(-c.k // c.block)) if c.block else (0, 1)
        numbers, scales = self.random.integers(low, high, (c.k, c.n)), self.scales(blocks, c.n)
        zeros = self.random.integers(low, high, scales.shape) if c.zeros != "none" else np.zeros(scales.shape, int)
        turned = c.form == "columns"

        def stored(array: np.ndarray) -> np.ndarray:
            array = array if rows else array[0]
            return array.T if turned and rows else array

        names = [self.stored("w", kind, numbers.T if turned else numbers), self.constant("s", stored(scales))]
        if c.zeros != "none":
            names.append(self.stored("z", kind, stored(zeros)))
        axis = (1 if turned else 0) if rows else (0 if turned else 1)
        wide = self.node("DequantizeLinear", names, "d", axis=axis, block_size=c.block if rows else 0)
        if turned:
            wide = self.node("Transpose", [wide], "t", perm=[1, 0])
        y = self.node("MatMul", [self.prefix + "x", wide], "y")
        of = np.arange(c.k) // (c.block or c.k)
        real, far = scales.astype(np.float64)[of], np.abs(numbers) + np.abs(zeros)[of]
        return y, (numbers - zeros[of]) * real, far * real

    def add(self, case: Case) -> Expected:
        """Adds `case` to the model."""
        c = self.case = case
        self.prefix = f"p{len(self.inputs)}_"
        real = np.float16 if c.dtype == "f16" else np.float32
        y, weights, bounds = self.nbits() if c.form == "nbits" else self.linear()
        x = self.random.standard_normal((*c.lead, c.m, c.k)).astype(real)
        wide = x.astype(np.float64)
        exact, bound = wide @ weights, np.abs(wide) @ bounds * (c.k + 16) * 2.0**-24
        if c.ends:
            bias = self.random.standard_normal(c.n).astype(real)
            y = self.node("Relu", [self.node("Add", [y, self.constant("b", bias)], "a")], "r")
            exact, bound = np.maximum(exact + bias, 0), bound + np.abs(bias) * 2.0**-22
        if c.dtype == "f16":
            bound = bound + (np.abs(exact) + np.abs(wide) @ bounds / 16) * 2.0**-9
        rows = [*c.lead, self.prefix + "m" if c.dynamic else c.m]
        self.inputs.append(helper.make_tensor_value_info(self.prefix + "x", REAL[c.dtype], [*rows, c.k]))
        self.outputs.append(helper.make_tensor_value_info(y, REAL[c.dtype], [*rows, c.n]))
        return Expected(case, x, exact, bound + 1e-30)

    def compile(self, target: CpuTarget) -> Artifact:
        """The artifact."""
        graph = helper.make_graph(self.nodes, "g", self.inputs, self.outputs, self.constants)
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        program = load_source(model.SerializeToString(), "test.onnx", "onnx")
        with program.module.context, ir.Location.unknown():
            built = pipeline.build(program, [target], 2, lambda what, fraction: None)
        return write_artifact(built.manifest, built.members, built.parameters)


def _packed(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of `bits` bits along the last axis as bytes, the first in the lowest bits."""
    per_byte = 8 // bits
    missing = -numbers.shape[-1] % per_byte
    padded = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, missing)]).astype(np.uint8)
    result = np.zeros((*padded.shape[:-1], padded.shape[-1] // per_byte), np.uint8)
    for i in range(per_byte):
        result |= padded[..., i::per_byte] << np.uint8(bits * i)
    return result


def kinds(session: Session) -> list[str]:
    return [kernel.kind for kernel in session.variants[0].kernels]


CASES = [
    Case(1, 256, 64), Case(2, 320, 17, zeros="whole"), Case(3, 370, 33, 16, zeros="real"),
    Case(5, 512, 47, 64, ends=True), Case(33, 264, 129, 0), Case(8, 1031, 31, 256, zeros="whole", ends=True),
    Case(1, 333, 70, 32, 8), Case(130, 96, 200, 32, 8, "real", ends=True), Case(6, 384, 50, 64, 4, "none", "rows"),
    Case(9, 500, 61, 0, 8, "whole", "rows", ends=True), Case(2, 500, 61, 0, 8, "none", "columns"),
    Case(3, 256, 75, 32, 4, "whole", "columns", ends=True), Case(1, 200, 90, 32, 4, "none", "rows"),
    Case(1, 512, 80, dynamic=True, ends=True, zeros="whole"), Case(70, 512, 80, 32, 8, dynamic=True, ends=True),
    Case(4, 256, 40, lead=(3,), ends=True), Case(1, 256, 64, dtype="f16", zeros="whole", ends=True),
    Case(12, 256, 64, dtype="f16"), Case(0, 256, 64, dynamic=True),
]


def check(cases: Sequence[Case], target: CpuTarget, seed: int = 0) -> Session:
    """Compile and run `cases` as one model; results must be within the rounding errors of sums in f32."""
    model = Model(np.random.default_rng(seed))
    expected = [model.add(case) for case in cases]
    session = load(model.compile(target))
    found = session.main(*[each.x for each in expected])
    for each, got in zip(expected, found if len(cases) > 1 else [found], strict=True):
        wide = np.asarray(got).astype(np.float64)
        assert wide.shape == each.exact.shape
        assert np.all(np.abs(wide - each.exact) <= each.bound), (seed, each.case, np.abs(wide - each.exact).max())
    return session


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("target", TARGETS)
def test_products_round_like_sums_in_f32(target: CpuTarget, half: int) -> None:
    cases = (CASES if target is X86_64_V4 else CASES[::3])[half::2]  # levels share all but the widening
    session = check(cases, target)
    assert sum("weights" in kind for kind in kinds(session)) == len(set(cases)), kinds(session)
    assert "generic" not in kinds(session)


@pytest.mark.parametrize("target", TARGETS)
def test_random_shapes_and_forms_agree_with_double_precision(target: CpuTarget) -> None:
    seed = int(np.random.default_rng().integers(1 << 30))
    random = np.random.default_rng(seed)
    cases = list[Case]()
    for _ in range(2):
        form = str(random.choice(["nbits", "rows", "columns"]))
        zeros = str(random.choice(["none", "whole", "real"] if form == "nbits" else ["none", "whole"]))
        cases.append(Case(
            int(random.choice([1, 2, 3, 4, 5, 7, 16, 31, 65])), int(random.integers(100, 700)),
            int(random.integers(41, 150)), int(random.choice([0, 16, 32, 64, 128, 256])),
            int(random.choice([4, 8])), zeros, form,  # type: ignore[arg-type]
            "f32", bool(random.integers(2)), bool(random.integers(2)),
        ))
    check(cases, target, seed)


def test_the_artifact_holds_what_is_stored() -> None:
    model = Model(np.random.default_rng(0))
    model.add(Case(1, 1024, 512))
    stored = 1024 * 512 * (1 / 2 + 4 / 32)
    assert len(model.compile(X86_64_V3).data) <= stored + (32 << 10)
