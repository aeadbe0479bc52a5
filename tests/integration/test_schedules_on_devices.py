"""The same schedule on every device whose kernels are loop nests: results against numpy in double precision."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.unit.runtime.drivers.embedded.opening import needs

import motet
from motet.artifact.kernel_schedules import SCHEDULES
from motet.errors import CompileError, OptionError
from motet.runtime import load
from motet.runtime.device import probe

pytest.importorskip("yaml")


def _present(family: str, uri: str) -> pytest.MarkDecorator:
    """Skips a test where no device `uri` is present."""
    reasons = [info.reason or "absent" for info in probe(family) if not info.available]
    found = any(info.available and info.uri == uri for info in probe(family))
    return pytest.mark.skipif(not found, reason=f"no {uri}: {'; '.join(reasons) or 'not found'}")


DEVICES = [
    pytest.param("host", "host", id="host"),
    pytest.param("riscv", "riscv:qemu?harts=2", id="riscv", marks=_present("riscv", "riscv:qemu")),
    pytest.param("riscv{cpu=rv64gcv256}", "riscv:qemu?harts=1&vlen=256", id="riscv-v",
                 marks=_present("riscv", "riscv:qemu")),
    *(pytest.param("embedded{cpu=" + cpu + "}", f"embedded:qemu?machine={machine}&timeout=30", id=machine,
                   marks=needs(machine)) for machine, cpu in (("mps3-an547", "cortex-m55"), ("virt32", "rv32gc"))),
    pytest.param("opencl", "opencl:0", id="opencl", marks=_present("opencl", "opencl:0")),
]

PRODUCTS = {
    "tile": "{i: parallelize, j: , k: , i#2: unroll, j#8: vectorize, B: {pack: j}}",
    "order": "{k: , j: , i: , j#8: vectorize}",
    "buffer": "{i: parallelize, k: , j: , k#16: , j#8: vectorize, C: {buffer: i}}",
    "parts": "{'j[0:8]': {i: , k: , j#4: vectorize}, 'j[8:]': {i: , k: unroll=2, j#3: unroll}}",
    "partial": "{k: split_reduction, i: parallelize, j: , k#8: , j#4: vectorize}",
    "lanes": "{i: parallelize, j: , k: , k#8: vectorize}",
}


def _product(schedule: str, m: int, n: int, k: int) -> str:
    a, b, c = f"tensor<{m}x{k}xf32>", f"tensor<{k}x{n}xf32>", f"tensor<{m}x{n}xf32>"
    return f"""func.func @main(%a: {a}, %b: {b}) -> {c} {{
  %z = arith.constant 0.5 : f32
  %e = tensor.empty() : {c}
  %c = linalg.fill ins(%z : f32) outs(%e : {c}) -> {c}
  %0 = linalg.matmul {{loop.schedule = "{schedule}"}} ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}
  return %0 : {c}
}}
"""


def _recurrence(schedule: str, n: int, k: int) -> str:
    a, r = f"tensor<{n}x{k}xf32>", f"tensor<{n}xf32>"
    return f"""func.func @main(%a: {a}) -> {r} {{
  %z = arith.constant 2.0 : f32
  %h = arith.constant 0.5 : f32
  %e = tensor.empty() : {r}
  %f = linalg.fill ins(%z : f32) outs(%e : {r}) -> {r}
  %0 = linalg.generic {{indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (i)>],
    iterator_types = ["parallel", "reduction"], loop.schedule = "{schedule}"}}
    ins(%a : {a}) outs(%f : {r}) {{
  ^bb0(%x: f32, %y: f32):
    %1 = arith.mulf %y, %h : f32
    %2 = arith.addf %1, %x : f32
    linalg.yield %2 : f32
  }} -> {r}
  return %0 : {r}
}}
"""


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(("devices", "uri"), DEVICES)
def test_a_product_by_a_schedule_is_that_of_numpy(devices: str, uri: str, name: str) -> None:
    seed = int(np.random.default_rng().integers(1 << 30))
    rng = np.random.default_rng(seed)
    m, n, k = (int(rng.choice(each)) for each in ((1, 5, 17), (9, 16, 31), (1, 13, 33)))
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    artifact = motet.compile(_product(PRODUCTS[name], m, n, k), devices=devices)
    assert all(kernel.kind == "nest" for variant in artifact.manifest.variants for kernel in variant.kernels)
    with load(artifact, devices=uri) as session:
        result = np.asarray(session(a, b), np.float64)
    wanted = a.astype(np.float64) @ b.astype(np.float64) + 0.5
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}: {m} {n} {k}")


@pytest.mark.parametrize(("devices", "uri"), DEVICES)
def test_a_file_of_schedules_is_followed(devices: str, uri: str, tmp_path: Path) -> None:
    """A schedule from the artifact, edited, and given by `--option schedules=`."""
    text = _product("", 7, 19, 33).replace('{loop.schedule = ""} ', "")
    listed = json.loads(bytes(motet.compile(text, devices=devices).member(SCHEDULES)))
    loops = [{"dim": "i", "parallel": True}, {"dim": "j"}, {"dim": "k"}, {"dim": "j", "tile": 4, "vectorize": True}]
    for each in listed["kernels"]:
        each["schedule"] = {"class": "nest", "nests": [{"stage": 0, "nest": {"loops": loops}}]}
    file = tmp_path / "schedules.json"
    file.write_text(json.dumps(listed))
    artifact = motet.compile(text, devices=devices, options={"schedules": str(file)})
    assert all(kernel.kind == "nest" for variant in artifact.manifest.variants for kernel in variant.kernels)
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((7, 33)).astype(np.float32), rng.standard_normal((33, 19)).astype(np.float32)
    with load(artifact, devices=uri) as session:
        result = np.asarray(session(a, b), np.float64)
    np.testing.assert_allclose(result, a.astype(np.float64) @ b.astype(np.float64) + 0.5, rtol=1e-4, atol=1e-4)
    loops[2]["parallel"] = True
    file.write_text(json.dumps(listed))
    with pytest.raises(OptionError, match="parallelize of k: "):
        motet.compile(text, devices=devices, options={"schedules": str(file)})


@pytest.mark.parametrize(("devices", "uri"), DEVICES)
def test_a_recurrence_keeps_its_order(devices: str, uri: str) -> None:
    a = np.random.default_rng(5).standard_normal((7, 19)).astype(np.float32)
    for schedule in ("{j: , i: vectorize}", "{i: parallelize, j: unroll=3}"):
        artifact = motet.compile(_recurrence(schedule, *a.shape), devices=devices)
        with load(artifact, devices=uri) as session:
            result = np.asarray(session(a), np.float64)
        wanted = np.full(7, 2.0)
        for column in a.T.astype(np.float64):
            wanted = wanted * 0.5 + column
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("devices", "uri"), DEVICES)
def test_an_illegal_schedule_is_the_same_error_everywhere(devices: str, uri: str) -> None:
    del uri
    for schedule, says in (("{i: , j: vectorize}", "vectorize of j"), ("{j: parallelize, i: }", "tasks would race")):
        with pytest.raises(CompileError, match=says):
            motet.compile(_recurrence(schedule, 7, 19), devices=devices)
