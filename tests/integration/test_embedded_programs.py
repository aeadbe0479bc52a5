"""Programs on emulated microcontrollers: results against numpy in f64, and images that run by themselves."""

from __future__ import annotations

import math
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.drivers.embedded.opening import EVERY_MACHINE, needs
from typer.testing import CliRunner

import motet
import motet.builder as b
from motet.errors import OutOfMemoryError
from motet.exporting.embedded_image import export_image, machine_for
from motet.exporting.static import find_variant, make_static
from motet.runtime import load
from motet.runtime.drivers.common.link import DeviceLink
from motet.runtime.drivers.embedded.gdb import GdbTransport
from motet.runtime.drivers.embedded.image import read_image
from motet.runtime.drivers.embedded.machines import MACHINES

M55 = "mps3-an547"
FRAGMENT = Path(__file__).parents[2] / "examples" / "fragment.mlir"


def _graph(inputs: list[np.ndarray], build: Callable[..., Any]) -> b.Graph:
    names = {"float32": "f32", "int8": "i8", "float16": "f16"}
    graph = b.Graph("main")
    given = [graph.input(f"x{i}", array.shape, names[str(array.dtype)]) for i, array in enumerate(inputs)]
    graph.result(build(*given))
    return graph


def _convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), w.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64))


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _gelu(x: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))))(x.astype(np.float64))


def _product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) @ y.astype(np.float64)


def _bytes_product(x: b.Tensor, y: b.Tensor) -> b.Tensor:
    return b.matmul(b.cast(x, "i32"), b.cast(y, "i32"))


def _inputs(rng: np.random.Generator, kind: str) -> tuple[list[np.ndarray], Callable[..., Any], Callable[..., Any]]:
    """Inputs of random odd extents, the program, and its reference in f64."""
    m, n, k, width = (int(2 * extent + 1) for extent in rng.integers(0, 20, 4))
    f32 = [rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n))]
    if kind == "matmul":
        return f32, b.matmul, _product
    if kind == "int8":
        pair = [rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n))]
        return pair, _bytes_product, _product
    if kind == "softmax":
        return [f32[0]], b.softmax, _softmax
    if kind == "gelu":
        return [f32[0]], b.gelu, _gelu
    image = rng.standard_normal((1, 3, 9 + n % 5, 5 + width)).astype(np.float32)
    return [image, rng.standard_normal((2 + m % 9, 3, 3, 3)).astype(np.float32)], b.conv2d, _convolved


@pytest.mark.parametrize("kind", ["matmul", "int8", "softmax", "gelu", "conv2d"])
@pytest.mark.parametrize("machine", [pytest.param(name, marks=needs(name)) for name in (M55, "virt32")])
def test_results_are_those_of_numpy(machine: str, kind: str) -> None:
    seed = int(np.random.default_rng().integers(1 << 30))
    inputs, build, reference = _inputs(np.random.default_rng(seed), kind)
    artifact = motet.compile(_graph(inputs, build), devices=f"embedded{{cpu={MACHINES[machine].cpu}}}")
    with load(artifact, devices=f"embedded:qemu?machine={machine}&timeout=20") as session:
        result = session(*inputs)
    np.testing.assert_allclose(
        np.asarray(result, np.float64), reference(*inputs), rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}"
    )


@pytest.mark.parametrize("machine", EVERY_MACHINE)
def test_the_machine_in_a_uri_implies_the_code(machine: str) -> None:
    from motet.tools.app import make_app

    result = CliRunner().invoke(make_app(), [
        "run", str(FRAGMENT), "--device", f"embedded:qemu?machine={machine}", "--input", "64x128xf32=random:1",
        "--input", "128x128xf32=random:2", "--input", "64x128xf32=0", "--verify",
    ])
    assert result.exit_code == 0, result.output
    assert "agrees" in result.output


@pytest.mark.parametrize("machine", EVERY_MACHINE)
def test_an_image_computes_when_the_machine_starts(machine: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    weights, value = (rng.standard_normal(shape).astype(np.float32) for shape in ((13, 7), (5, 13)))
    graph = b.Graph("main")
    x = graph.input("x", value.shape, "f32")
    graph.result(b.tanh(b.matmul(x, graph.constant(weights, "weights"))))
    cpu = MACHINES[machine].cpu
    artifact = motet.compile(graph, devices=f"embedded{{cpu={cpu}}}")
    static = make_static(artifact, artifact.functions["main"], find_variant(artifact, f"embedded:{cpu}"), {})
    flash = export_image(static, machine_for(static, None), [value])
    file = tmp_path / "image.elf"
    file.write_bytes(flash.file("elf"))
    image = read_image(file.read_bytes(), file.name)
    ours, theirs = socket.socketpair()
    kind = MACHINES[machine]
    process = subprocess.Popen(
        [kind.program, *kind.arguments, "-kernel", str(file), "-display", "none", "-monitor", "none", "-serial", "null",
         "-S", "-chardev", f"socket,id=line,fd={theirs.fileno()}", "-gdb", "chardev:line"],
        pass_fds=[theirs.fileno()],
    )
    try:
        reached = GdbTransport(DeviceLink(ours.detach(), "the emulator's line"), image, 20, flash=False)
        status, done = (int.from_bytes(reached.read(image.symbols[f"motet_{name}"], 4), "little")
                        for name in ("status", "completed"))
        name = next(name for name in image.symbols if name.startswith("motet_result_"))
        result = np.frombuffer(reached.read(image.symbols[name], 5 * 7 * 4), np.float32).reshape(5, 7)
        ticks = int.from_bytes(reached.read(image.symbols["motet_ticks"], 8), "little")
    finally:
        process.kill()
        process.wait()
        theirs.close()
    assert (status, done) == (2, 1)
    assert 0 <= ticks < image.clock * 60
    np.testing.assert_allclose(result, np.tanh(_product(value, weights)), rtol=1e-5, atol=1e-5)


def test_the_files_have_the_same_content(tmp_path: Path) -> None:
    artifact = motet.compile(_graph([np.zeros((3, 5), np.float32)], b.tanh), devices="embedded{cpu=cortex-m4}")
    static = make_static(artifact, artifact.functions["main"], find_variant(artifact, "embedded"), {})
    flash = export_image(static, machine_for(static, None))
    memory: dict[int, int] = {}
    upper = 0
    for line in flash.file("hex").decode().splitlines():
        record = bytes.fromhex(line[1:])
        assert sum(record) % 256 == 0
        address, kind, data = int.from_bytes(record[1:3], "big"), record[3], record[4:-1]
        if kind == 4:
            upper = int.from_bytes(data, "big") << 16
        elif kind == 0:
            memory |= {upper + address + at: byte for at, byte in enumerate(data)}
    raw = flash.file("bin")
    begin = min(memory)
    assert bytes(memory.get(begin + at, 0) for at in range(len(raw))) == raw
    for segment in read_image(flash.file("elf"), "again").segments:
        assert raw[segment.address - begin :][: len(segment.data)] == segment.data


def test_a_program_that_does_not_fit_is_refused_with_sizes() -> None:
    artifact = motet.compile(_graph([np.zeros((2500, 2500), np.float32)], b.tanh), devices="embedded{cpu=cortex-m7}")
    static = make_static(artifact, artifact.functions["main"], find_variant(artifact, "embedded"), {})
    with pytest.raises(OutOfMemoryError, match=r"mps2-an500 with 2\d,\d+,\d+ bytes .*inputs and results 50,000,000"):
        export_image(static, machine_for(static, None))


def _extremes(dtype: str, op: str) -> str:
    """An element-wise maximum or minimum of two matrices, and that of each row of the first."""
    matrix, row = f"tensor<5x13x{dtype}>", f"tensor<5x{dtype}>"
    worst = {"f16": "0xFC00", "f64": "0xFFF0000000000000"}[dtype]
    maps = "indexing_maps = [#m, #m, #m], iterator_types = [\"parallel\", \"parallel\"]"
    return f"""#m = affine_map<(i, j) -> (i, j)>
func.func @main(%a: {matrix}, %b: {matrix}) -> ({matrix}, {row}) {{
  %e = tensor.empty() : {matrix}
  %0 = linalg.generic {{{maps}}} ins(%a, %b : {matrix}, {matrix}) outs(%e : {matrix}) {{
  ^bb0(%x: {dtype}, %y: {dtype}, %z: {dtype}):
    %r = arith.{op} %x, %y : {dtype}
    linalg.yield %r : {dtype}
  }} -> {matrix}
  %c = arith.constant {worst} : {dtype}
  %rows = tensor.empty() : {row}
  %f = linalg.fill ins(%c : {dtype}) outs(%rows : {row}) -> {row}
  %1 = linalg.reduce {{ arith.{op} }} ins(%a : {matrix}) outs(%f : {row}) dimensions = [1]
  return %0, %1 : {matrix}, {row}
}}
"""


@pytest.mark.parametrize("op", ["maximumf", "minimumf"])
@pytest.mark.parametrize(("machine", "dtype"), [
    pytest.param(machine, dtype, marks=needs(machine))
    for machine, dtype in ((M55, "f16"), (M55, "f64"), ("mps2-an386", "f64"), ("mps2-an500", "f64"))
])
def test_extremes_keep_nan_and_the_signs_of_zeros(machine: str, dtype: str, op: str) -> None:
    """LLVM has no code for `llvm.maximum` of these types on Cortex-M."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((5, 13)).astype({"f16": np.float16, "f64": np.float64}[dtype]) for _ in range(2))
    a[0, :4], b[0, :4] = [np.nan, 0.0, -0.0, 0.0], [1.0, -0.0, 0.0, np.nan]
    a[1], a[2, 3] = -0.0, np.inf
    artifact = motet.compile(_extremes(dtype, op), devices=f"embedded{{cpu={MACHINES[machine].cpu}}}")
    with load(artifact, devices=f"embedded:qemu?machine={machine}&timeout=20") as session:
        pairs, rows = map(np.asarray, session(a, b))
    reference = np.maximum if op == "maximumf" else np.minimum
    np.testing.assert_array_equal(pairs, reference(a, b))
    np.testing.assert_array_equal(rows, reference(reference.reduce(a, 1), -np.inf))
    assert np.signbit(pairs[0, 1:3]).all() == (op == "minimumf") and np.signbit(rows[1])
