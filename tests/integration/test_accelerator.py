"""Whole programs on the host and the emulated accelerator: what is copied when, and what happens when it dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from examples import models
from tests.integration.placed import build_placed, expected, random_program
from tests.prepared import load_source
from tests.seeds import examples

import motet
from motet.compiler.verify.oracle import run_oracle
from motet.errors import DeviceLost
from motet.runtime import Session, load
from motet.runtime.device import probe

REASON = next((info.reason for info in probe("riscv") if not info.available and info.uri == "riscv:qemu"), "")
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)

DEVICE = "riscv:qemu?harts=2"
TARGETS = ("x86-64-v3", "riscv:rv64gcv128", "null:x86-64-v3")
MATMUL = """
func.func @main(%a: tensor<{m}x{k}xf32> {{iree.abi.affinity = #hal.device.affinity<@host>}},
                %b: tensor<{k}x{n}xf32> {{iree.abi.affinity = #hal.device.affinity<@acc>}})
    -> (tensor<{m}x{n}xf32> {{iree.abi.affinity = #hal.device.affinity<@acc>}}) {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<{m}x{n}xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %c = linalg.matmul {{stream.affinity = #hal.device.affinity<@acc>}}
                     ins(%a, %b : tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>)
                     outs(%init : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %c : tensor<{m}x{n}xf32>
}}
"""
FLAGS = ("host=host", "acc=riscv")


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("m", "n", "k"), [(4, 16, 8), (4, 512, 32)])
def test_values_that_live_on_the_device_are_not_copied_in_a_call(m: int, n: int, k: int) -> None:
    text = MATMUL.format(m=m, n=n, k=k)
    a, b = random(m, k), random(k, n)
    with load(build_placed(text, FLAGS, TARGETS), devices={"acc": DEVICE}) as session:
        np.testing.assert_allclose(session(a, b), a @ b, rtol=1e-5, atol=1e-5)
        there, out = session.put(b, "acc"), session.empty((m, n), np.float32, "acc")
        result, events = session.main.trace(a, there, out=out)
        assert result is out
        np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-5, atol=1e-5)
        moved = [(traced.event.kind, traced.event.bytes) for traced in events if traced.event.kind in ("read", "write")]
        assert moved == [("write", a.nbytes)]
        assert {traced.device for traced in events if traced.event.kind == "launch"} == {DEVICE}


def test_parameters_are_copied_at_load() -> None:
    import motet.builder as b

    weights = random(128, 64)
    graph = b.Graph("main")
    x = graph.input("x", ("rows", 128), device="acc")
    graph.result(b.relu(b.matmul(x, graph.constant(weights, "weights"), device="acc"), device="acc"))
    with load(build_placed(graph, FLAGS, TARGETS), devices={"acc": DEVICE}) as session:
        assert session.memory.parameters >= weights.nbytes
        for rows in (3, 1):
            value = random(rows, 128)
            result, events = session.main.trace(value)
            np.testing.assert_allclose(result, np.maximum(value @ weights, 0), rtol=1e-4, atol=1e-4)
            written = [traced.event.bytes for traced in events if traced.event.kind == "write"]
            assert written == [value.nbytes]


def run_random(seeds: range, session_devices: dict[str, str]) -> None:
    for seed in seeds:
        program = random_program(seed)
        artifact = build_placed(program.graph, ("a=host", "b=null[1]", "c=riscv"), TARGETS)
        with load(artifact, devices=session_devices, threads=2) as session:
            results = session(*program.inputs)
            for result, value in zip(
                results if isinstance(results, tuple) else (results,), expected(program.graph, program.inputs),
                strict=True,
            ):
                np.testing.assert_allclose(result, value, rtol=2e-4, atol=2e-5, err_msg=f"seed {seed}")


def test_random_programs_over_three_kinds_of_devices_agree_with_the_oracle() -> None:
    run_random(range(200, 200 + examples(12)), {"c": DEVICE})


@pytest.mark.slow
@pytest.mark.parametrize("first", range(300, 400, 10))
def test_a_hundred_random_programs_over_three_kinds_of_devices(first: int) -> None:
    run_random(range(first, first + 10), {"c": DEVICE})


# -- loss ------------------------------------------------------------------------------------------

LONG = """
func.func @main(%x: tensor<700x700xf32>) -> tensor<700x700xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<700x700xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<700x700xf32>) -> tensor<700x700xf32>
  %y = linalg.matmul {motet.affinity = "acc"} ins(%x, %x : tensor<700x700xf32>, tensor<700x700xf32>)
                     outs(%init : tensor<700x700xf32>) -> tensor<700x700xf32>
  %z = arith.addf %y, %x {motet.affinity = "host"} : tensor<700x700xf32>
  return %z : tensor<700x700xf32>
}
"""


def kill_during(session: Session, x: np.ndarray) -> np.ndarray:
    """Calls the function; the emulator dies meanwhile."""
    process = next(child for child in children() if "qemu-system" in command_of(child))
    killer = threading.Timer(0.05, os.kill, (process, signal.SIGKILL))
    killer.start()
    try:
        return session(x)
    finally:
        killer.join()


def children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        found += [int(text) for text in (task / "children").read_text().split()]
    return found


def command_of(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def test_an_emulator_killed_in_a_call_is_replaced_by_the_fallback() -> None:
    x = random(700, 700) / 30
    artifact = build_placed(LONG, ("host=host", "acc=riscv,@host"), TARGETS)
    with load(artifact) as session:
        assert session.devices[1].info.uri == "riscv:qemu"
        result = kill_during(session, x)
        np.testing.assert_allclose(result, x @ x + x, rtol=1e-4, atol=1e-4)
        assert session.devices[1].info.uri == "host"
        assert any("@acc" in note and "riscv:qemu" in note and "host" in note for note in session.notes)
        np.testing.assert_allclose(session(x), x @ x + x, rtol=1e-4, atol=1e-4)


def test_an_emulator_killed_in_a_call_without_a_fallback_fails_the_call_alone() -> None:
    x = random(700, 700) / 30
    artifact = build_placed(LONG, FLAGS, TARGETS)
    with load(artifact, devices={"acc": DEVICE}) as session:
        begin = time.perf_counter()
        with pytest.raises(DeviceLost, match="riscv:qemu"):
            kill_during(session, x)
        assert time.perf_counter() - begin < 60  # not for ever
        with pytest.raises(DeviceLost):
            session(x)
    with load(artifact, devices={"acc": DEVICE}) as session:  # another emulator
        np.testing.assert_allclose(session(x), x @ x + x, rtol=1e-4, atol=1e-4)


# -- a model, split --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18_small", "resnet18"])
def test_resnet_18_split_over_host_and_accelerator_agrees_with_the_oracle(name: str) -> None:
    model = models.MODELS[name]()
    data = model.SerializeToString()
    artifact = motet.compile(
        data, devices={"cpu": "host", "acc": "riscv"}, place={"conv_1[5-9]": "acc", "add_8": "acc", "gemm_1": "acc"}
    )
    shape = [int(str(extent)) for extent in artifact.manifest.functions[0].inputs[0].shape]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    wanted = run_oracle(load_source(data, "model.onnx"), artifact.manifest.functions[0].name, [x])[0]
    with motet.load(artifact, devices={"acc": DEVICE}) as session:
        result, events = session.functions[artifact.manifest.functions[0].name].trace(x)
        np.testing.assert_allclose(result, wanted, rtol=1e-3, atol=1e-3 * float(np.abs(wanted).max()))
        launches = {traced.device for traced in events if traced.event.kind == "launch"}
        assert launches == {"host", DEVICE}


def test_a_mesh_of_accelerators_is_named_and_placed_on() -> None:
    """Two products on two nodes of a mesh; operands and results are in the memories of others."""
    def at(node: str) -> str:
        return f"#hal.device.affinity<@{node}>"

    def product(result: str, left: str, right: str, node: str, m: int, n: int, k: int) -> str:
        a, b, c = f"tensor<{m}x{k}xf32>", f"tensor<{k}x{n}xf32>", f"tensor<{m}x{n}xf32>"
        return f"""
          %e{result} = tensor.empty() : {c}
          %f{result} = linalg.fill ins(%zero : f32) outs(%e{result} : {c}) -> {c}
          %{result} = linalg.matmul {{stream.affinity = {at(node)}}} ins(%{left}, %{right} : {a}, {b})
            outs(%f{result} : {c}) -> {c}"""

    text = f"""func.func @main(%a: tensor<8x16xf32> {{iree.abi.affinity = {at("grid_0_0")}}},
        %b: tensor<16x12xf32> {{iree.abi.affinity = {at("grid_0_1")}}},
        %c: tensor<12x8xf32> {{iree.abi.affinity = {at("grid_1_0")}}})
        -> (tensor<8x8xf32> {{iree.abi.affinity = {at("grid_1_1")}}}) {{
      %zero = arith.constant 0.0 : f32
      {product("p", "a", "b", "grid_0_1", 8, 12, 16)}
      {product("q", "p", "c", "grid_1_1", 8, 8, 12)}
      return %q : tensor<8x8xf32>
    }}"""
    a, b, c = random(8, 16), random(16, 12), random(12, 8)
    artifact = build_placed(text, ("grid[2x2]=riscv",), TARGETS)
    with load(artifact, devices={"grid[2x2]": "riscv:qemu?harts=1&memory=64M"}) as session:
        there = [session.put(array, node) for array, node in zip((a, b, c), ("grid_0_0", "grid_0_1", "grid_1_0"),
                                                                 strict=True)]
        result, events = session.main.trace(*there)
        np.testing.assert_allclose(np.asarray(result), a @ b @ c, rtol=1e-4, atol=1e-4)
        launched = {traced.device for traced in events if traced.event.kind == "launch"}
    assert launched == {"riscv:qemu/1?harts=1&memory=64M", "riscv:qemu/3?harts=1&memory=64M"}
