"""Programs for Intel's GPUs: native code read from the binary, numbers on Intel's platform for processors from the
SPIR-V of the same programs without the matrix engine, and the driver in capture mode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.integration.capture_mode import run_captured
from tests.integration.test_gpu_dialect import MATMUL_LAUNCH
from tests.unit.compiler.codegen.triton import attention_texts
from tests.unit.compiler.codegen.triton.attention_texts import Form
from tests.unit.compiler.codegen.triton.products import ProductText
from tests.unit.compiler.codegen.triton.texts import convolution, nest, softmax, tensor
from tests.unit.runtime.drivers.opencl.opening import opencl_device, spirv_device

import motet
from motet.artifact.launch import Launch
from motet.artifact.reader import Artifact
from motet.compiler.codegen.backends import backend_of
from motet.compiler.codegen.triton.compile import ocloc
from motet.compiler.codegen.triton.compile.zebin import missing_functions, read_kernel
from motet.compiler.targets.families import resolve_target
from motet.errors import CompileError, DeviceError, OptionError
from motet.tools.inspect import describe

pytestmark = pytest.mark.usefixtures("intel_compilers")

URI = "opencl:0"
ALL = "intel{device=pvc+dg2+tgllp}"


def product(m: int, n: int, k: int, dtype: str, left: str = "i, k", right: str = "k, j") -> str:
    """A product with operands stored as `left` and `right` say, summed in f32."""
    sizes = {"i": m, "j": n, "k": k}
    shapes = [tensor([sizes[d] for d in access.split(", ")], dtype) for access in (left, right)]
    widen = "f" if dtype in ("f16", "bf16") else ""
    names = (("%p", "%x0"), ("%q", "%x1")) if widen else ()
    body = [f"{new} = arith.ext{widen} {old} : {dtype} to f32" for new, old in names]
    x, y = ("%p", "%q") if widen else ("%x0", "%x1")
    body += [f"%m = arith.mulf {x}, {y} : f32", "%s = arith.addf %y0, %m : f32"]
    return nest(
        list(zip(shapes, (left, right), strict=True)), [(tensor((m, n), "f32"), "i, j", "0.0")], "ppr", body, ["%s"]
    )


def residual(n: int) -> str:
    """A·B + A with the product rounded to f16 before the sum, as its type says."""
    kind = tensor((n, n), "f16")
    return f"""
func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{
  %z = arith.constant 0.0 : f16
  %e = tensor.empty() : {kind}
  %f = linalg.fill ins(%z : f16) outs(%e : {kind}) -> {kind}
  %m = linalg.matmul ins(%a, %b : {kind}, {kind}) outs(%f : {kind}) -> {kind}
  %r = linalg.add ins(%m, %a : {kind}, {kind}) outs(%e : {kind}) -> {kind}
  return %r : {kind}
}}"""


def compiled(text: str, devices: str = ALL) -> Artifact:
    return motet.compile(text, devices=devices)


def launches(artifact: Artifact, target: str) -> list[tuple[Launch, bytes]]:
    """The launch records of a target, each with the machine code or SPIR-V."""
    variant = next(each for each in artifact.manifest.variants if each.target == target)
    found: list[tuple[Launch, bytes]] = []
    for name in variant.objects:
        if name.endswith(".json"):
            code = name.removesuffix(".json") + (".spv" if target == "spirv" else ".zebin")
            found.append((msgspec.json.decode(artifact.member(name), type=Launch), bytes(artifact.member(code))))
    return found


def ran(artifact: Artifact, *inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    spirv_device(URI)
    with motet.load(artifact, devices=URI) as session:
        return np.asarray(session(*inputs))


def random(seed: int, *shapes: Sequence[int], dtype: str = "f4") -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def check_native(artifact: Artifact, target: str) -> None:
    """The launch records of a target say what its machine code says, which is whole."""
    for launch, code in launches(artifact, target):
        facts = read_kernel(code, launch.entry)
        assert launch.native is not None and not missing_functions(code)
        assert launch.native.matrix_engine == facts.matrix_engine == (target == "pvc")
        assert (launch.registers, launch.sub_group) == (facts.registers, facts.sub_group)
        assert launch.warps * launch.sub_group <= launch.native.max_work_group
        assert launch.native.device == {"dg2": "acm-g10"}.get(target, target)


def test_every_named_device_has_native_code() -> None:
    artifact = compiled(product(24, 17, 31, "f16"), ALL)
    assert [v.target for v in artifact.manifest.variants] == ["pvc", "dg2", "tgllp", "spirv"]
    for target in ("pvc", "dg2", "tgllp"):
        check_native(artifact, target)


@pytest.mark.parametrize(("left", "right"), [("k, i", "k, j"), ("i, k", "j, k")])
def test_transposed_products_use_the_matrix_engine(left: str, right: str) -> None:
    artifact = compiled(product(65, 40, 48, "f16", left, right), "intel{device=pvc}")
    check_native(artifact, "pvc")
    a, b = random(3, *[[{"i": 65, "j": 40, "k": 48}[d] for d in each.split(", ")] for each in (left, right)],
                  dtype="f2")  # fmt: skip
    wide = [a.astype("f8") if left == "i, k" else a.T.astype("f8"), b.astype("f8") if right == "k, j" else b.T]
    np.testing.assert_allclose(ran(artifact, a, b), wide[0] @ wide[1].astype("f8"), rtol=1e-4, atol=1e-4)


def test_a_product_and_a_sum_are_within_one_unit_of_f16() -> None:
    a, b = random(5, (33, 33), (33, 33), dtype="f2")
    found = ran(compiled(residual(33), "intel{device=spirv}"), a, b)
    wanted = (a.astype("f4") @ b.astype("f4") + a.astype("f4")).astype("f2")
    between = np.abs(found.astype("f8") - wanted.astype("f8"))
    product_unit = np.spacing(np.abs(a.astype("f4") @ b.astype("f4")).astype("f2")).astype("f8")
    assert np.all(between <= np.maximum(np.spacing(np.abs(wanted)).astype("f8"), product_unit))


@pytest.mark.parametrize("n", [64, 100, 128])
def test_a_product_and_a_sum_in_f32_are_within_one_unit_of_f16(n: int) -> None:
    text = ProductText(n, n, n, "f16", follows=("residual",)).text
    a, b = random(n, (n, n), (n, n), dtype="f2")
    found = ran(compiled(text, "intel{device=spirv}"), a, b, a)
    wanted = (a.astype("f8") @ b.astype("f8") + a.astype("f8")).astype("f4").astype("f2")
    between = np.abs(found.astype("f8") - wanted.astype("f8"))
    sums = n * 2.0**-24 * (np.abs(a.astype("f8")) @ np.abs(b.astype("f8")))  # the error of a sum in f32
    assert np.all(between <= np.spacing(np.abs(wanted)).astype("f8") + sums)


def test_attention_on_a_platform_for_processors() -> None:
    form = Form(batch=1, heads=4, queries=65, keys=97, depth=32, width=32, dtype="f16", scale=0.125)
    artifact = compiled(attention_texts.text(form), "intel{device=spirv}")
    assert [kernel.kind for kernel in artifact.manifest.variants[0].kernels] == ["attention"]
    q, k, v = random(7, *attention_texts.shapes(form), dtype="f2")
    scores = np.einsum("bhqd,bhkd->bhqk", q.astype("f8"), k.astype("f8")) * 0.125
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = np.einsum("bhqk,bhkd->bhqd", weights / weights.sum(-1, keepdims=True), v.astype("f8"))
    np.testing.assert_allclose(ran(artifact, q, k, v), wanted, rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize(("queries", "keys", "depth"), [(1, 97, 64), (1, 1024, 40), (3, 2048, 64), (17, 33, 72)])
def test_attention_of_few_queries_and_odd_heads(queries: int, keys: int, depth: int) -> None:
    form = Form(batch=1, heads=2, queries=queries, keys=keys, depth=depth, width=depth, dtype="f16", scale=0.125)
    inputs = random(13, *attention_texts.shapes(form), dtype="f2")
    found = ran(compiled(attention_texts.text(form), "intel{device=spirv}"), *inputs)
    np.testing.assert_allclose(found, attention_texts.expected(form, inputs), rtol=1e-2, atol=2e-3)


def test_attention_uses_the_matrix_engine() -> None:
    form = Form(batch=1, heads=1, queries=64, keys=64, depth=32, width=32, dtype="f16")
    check_native(compiled(attention_texts.text(form), "intel{device=pvc}"), "pvc")


@pytest.mark.slow
def test_long_attention_on_a_platform_for_processors() -> None:
    form = Form(batch=1, heads=4, queries=4096, keys=4096, depth=64, width=64, dtype="f16", scale=0.125)
    artifact = compiled(attention_texts.text(form), "intel{device=spirv}")
    q, k, v = random(9, *attention_texts.shapes(form), dtype="f2")
    found = ran(artifact, q, k, v)
    for head in range(4):
        scores = q[0, head].astype("f8") @ k[0, head].astype("f8").T * 0.125
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        wanted = weights @ v[0, head].astype("f8") / weights.sum(-1, keepdims=True)
        np.testing.assert_allclose(found[0, head], wanted, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (7, 1000), (33, 127), (3, 4097)])
def test_rows_of_odd_lengths(rows: int, columns: int) -> None:
    (x,) = random(rows * columns, (rows, columns))
    e = np.exp(x.astype("f8") - x.max(-1, keepdims=True))
    found = ran(compiled(softmax(rows, columns), "intel{device=spirv}"), x)
    np.testing.assert_allclose(found, e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (33, 127), (3, 4097)])
def test_rows_in_sub_groups_of_32(rows: int, columns: int) -> None:
    (x,) = random(rows, (rows, columns))
    e = np.exp(x.astype("f8") - x.max(-1, keepdims=True))
    artifact = compiled(softmax(rows, columns), "intel{device=spirv,subgroup=32}")
    assert {launch.sub_group for launch, _ in launches(artifact, "spirv")} == {32}
    np.testing.assert_allclose(ran(artifact, x), e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("m", "n", "k"), [(17, 33, 31), (64, 80, 100)])
def test_products_in_sub_groups_of_32(m: int, n: int, k: int) -> None:
    artifact = compiled(product(m, n, k, "f32"), "intel{device=spirv,subgroup=32}")
    assert {launch.sub_group for launch, _ in launches(artifact, "spirv")} == {32}
    a, b = random(m, (m, k), (k, n))
    np.testing.assert_allclose(ran(artifact, a, b), a.astype("f8") @ b.astype("f8"), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_attention_in_sub_groups_of_32() -> None:
    form = Form(batch=1, heads=2, queries=33, keys=70, depth=32, width=32, dtype="f16", scale=0.125)
    inputs = random(13, *attention_texts.shapes(form), dtype="f2")
    found = ran(compiled(attention_texts.text(form), "intel{device=spirv,subgroup=32}"), *inputs)
    np.testing.assert_allclose(found, attention_texts.expected(form, inputs), rtol=1e-2, atol=2e-3)


@pytest.mark.slow
def test_a_matrix_engine_keeps_sub_groups_of_16() -> None:
    ((launch, _),) = launches(compiled(product(64, 64, 64, "f16"), "intel{device=pvc,subgroup=32}"), "pvc")
    assert launch.sub_group == 16 and launch.native is not None and launch.native.matrix_engine
    ((launch, code),) = launches(compiled(softmax(3, 1000), "intel{device=pvc,subgroup=32}"), "pvc")
    assert launch.sub_group == read_kernel(code, launch.entry).sub_group == 32


@pytest.mark.slow
def test_sub_groups_of_32_are_taken_where_they_spill_less() -> None:
    text = convolution((2, 3, 30, 31), 24, 7, 2, 3, "f32")
    wide, narrow = (compiled(text, f"intel{{device=tgllp{mode}}}") for mode in ("", ",subgroup=16"))
    check_native(wide, "tgllp")
    ((found, _),), ((other, _),) = launches(wide, "tgllp"), launches(narrow, "tgllp")
    assert found.native is not None and other.native is not None and other.sub_group == 16
    assert other.native.passed_over is None
    if (passed := found.native.passed_over) is not None:
        assert passed.spilled_bytes >= found.native.spilled_bytes * found.warps
    assert found.native.spilled_bytes * found.warps <= other.native.spilled_bytes * other.warps
    (fact,) = describe(wide)["variants"][0]["launches"]
    assert (fact["sub_group"], fact["work_items"]) == (found.sub_group, found.warps * found.sub_group)
    assert (fact["native"]["passed_over"] is None) == (passed is None)


def test_dynamic_rows() -> None:
    artifact = compiled(softmax("?", 77), "intel{device=tgllp}")
    for rows in (1, 5, 64):
        (x,) = random(rows, (rows, 77))
        e = np.exp(x.astype("f8") - x.max(-1, keepdims=True))
        np.testing.assert_allclose(ran(artifact, x), e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)


def test_launches_of_gpu_kernels_go_as_on_opencl_devices() -> None:
    a, b = random(11, (24, 40), (40, 16))
    found = ran(compiled(MATMUL_LAUNCH, "intel{device=pvc}"), a, b, np.zeros((24, 16), np.float32))
    np.testing.assert_allclose(found, a.astype("f8") @ b.astype("f8"), rtol=1e-4, atol=1e-5)


def test_inspect_states_units_and_sources() -> None:
    artifact = compiled(product(64, 64, 64, "f16"), "intel{device=pvc,registers=large}")
    pvc, spirv = describe(artifact)["variants"]
    (fact,) = pvc["launches"]
    native = fact["native"]
    assert native["flags"] == "-cl-intel-256-GRF-per-thread" and native["retries"] == []
    assert native["registers"] == {
        "value": 256, "unit": "registers of a sub-group", "source": ".ze_info grf_count"}
    assert native["max_work_group"]["value"] == 512 and native["max_work_group"]["unit"] == "work-items"
    assert {"spilled_registers", "spilled_bytes", "matrix_engine", "register_bytes"} <= native.keys()
    assert spirv["launches"][0]["binary"] == "spv" and "native" not in spirv["launches"][0]


def test_f64_is_refused_by_name_where_the_device_lacks_it() -> None:
    text = product(8, 8, 8, "f32").replace("f32", "f64")
    assert launches(compiled(text, "intel{device=pvc}"), "pvc")
    with pytest.raises(CompileError, match="it computes in f64, which dg2 lacks"):
        compiled(text, "intel{device=pvc+dg2}")


def test_tf32_uses_the_matrix_engine_or_is_refused_with_the_compiler() -> None:
    text, devices = product(64, 64, 64, "f32"), "intel{device=pvc,precision=tf32}"
    if ocloc.has_tf32("pvc"):
        check_native(compiled(text, devices), "pvc")
        return
    with pytest.raises(OptionError, match=r"precision tf32: libocloc .* has no tf32 products for pvc; expected .*ieee"):
        compiled(text, devices)


def test_a_missing_offline_compiler_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocloc, "is_available", lambda: False)
    with pytest.raises(OptionError, match=r"offline compiler, which is not installed; apt install") as error:
        backend_of(resolve_target("intel:pvc"))
    assert "\n" not in str(error.value) and "intel{device=spirv} needs none" in str(error.value)
    backend_of(resolve_target("intel:spirv"))


def test_what_is_missing_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOTET_INTEL", str(tmp_path))
    with pytest.raises(OptionError, match=r"triton-xpu .*make intel.*pip install") as error:
        motet.compile(softmax(4, 4), devices="intel", cache=False)
    assert "\n" not in str(error.value)


def test_a_platform_without_sub_groups_says_so() -> None:
    opencl_device("opencl:pocl" if _has("opencl:pocl") else "opencl:1")
    artifact = compiled(softmax(4, 4), "intel{device=pvc}")
    with pytest.raises(DeviceError, match="needs sub-groups-of-16, which"):
        motet.load(artifact, devices="opencl:pocl")


def _has(alias: str) -> bool:
    from motet.runtime.device import probe

    return any(alias.partition(":")[2] in info.aliases for info in probe("opencl"))


_CAPTURED = """
import sys
import numpy as np
import motet
from motet.runtime.device import probe
from motet.runtime.drivers.opencl import tiles
from motet.runtime.drivers.opencl.context import Context

native = []
load = Context.native_program
Context.native_program = lambda self, code: (native.append(len(code)), load(self, code))[1]
(info,) = [each for each in probe("opencl") if "Graphics" in each.name]
session = motet.load(sys.argv[1], devices=info.uri)
(choice,) = session.devices
session["main"]
print(choice.variant.target, len(session._bound.opened[0].executable.kernels), len(native))
if sys.argv[2] == "run":
    session(np.ones((33, 127), np.float32))
"""


@pytest.mark.parametrize(("product_family", "target", "runs"), [("pvc", "pvc", False), ("tgllp", "tgllp", True)])
def test_the_driver_loads_native_code(tmp_path: Path, product_family: str, target: str, runs: bool) -> None:
    file = tmp_path / "a.motet"
    compiled(softmax(33, 127), "intel{device=pvc+tgllp}").save(file)
    said = run_captured(_CAPTURED, tmp_path, str(file), "run" if runs else "load", product=product_family)
    assert said.split() == [target, "1", "1"]
