"""The overhead of programs over several devices: `python -m benchmarks.devices --markdown`.

Calls with four elements over two instances of the host, compared with IREE over two local devices, whose arrays are
there already and which allocates its result; launches and transfers of each kind of device, compared with `memmove` of
the same bytes; and automatic placement of 3,000 operations. Each value is the fastest of several rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import motet
from motet.compiler.targets.device_flags import parse_device_flags
from motet.runtime.device import Device, find_device, open_device
from motet.runtime.device_program import LoadedDevice
from motet.runtime.instantiate import make_concrete
from motet.runtime.session import load

OPERATIONS = 3000
SIZES = (64 << 10, 1 << 20, 16 << 20)
DEVICES = ("host", "null", "riscv:qemu")
_SECONDS = 0.1  # of a round, approximately
_ROUNDS = 10

# Half of the work on @a, half on @b: in sequence, or concurrently.
AFTER = """
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.mulf %x, %y {stream.affinity = #hal.device.promise<@a>} : tensor<4xf32>
  %1 = flow.tensor.transfer %0 : tensor<4xf32> to #hal.device.promise<@b>
  %2 = arith.addf %1, %1 {stream.affinity = #hal.device.promise<@b>} : tensor<4xf32>
  %3 = flow.tensor.transfer %2 : tensor<4xf32> to #hal.device.promise<@a>
  return %3 : tensor<4xf32>
}
"""
AT_ONCE = """
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.mulf %x, %y {stream.affinity = #hal.device.promise<@a>} : tensor<4xf32>
  %1 = arith.addf %x, %y {stream.affinity = #hal.device.promise<@b>} : tensor<4xf32>
  %2 = flow.tensor.transfer %1 : tensor<4xf32> to #hal.device.promise<@a>
  %3 = arith.subf %0, %2 {stream.affinity = #hal.device.promise<@a>} : tensor<4xf32>
  return %3 : tensor<4xf32>
}
"""
ADD = """
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %x, %y : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


@dataclass(frozen=True)
class Row:
    """A measurement: its description, Motet's value, and the value compared with it."""

    what: str
    motet: str
    beside: str = "–"


def fastest(call: Callable[[], Any], rounds: int = _ROUNDS) -> float:
    """The seconds of a call, the fastest of several rounds."""
    begin = time.perf_counter()
    for _ in range(3):
        call()
    count = max(1, round(_SECONDS / rounds * 3 / max(time.perf_counter() - begin, 1e-9)))
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter() - begin) / count)
    return best


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} µs"


# -- calls -----------------------------------------------------------------------------------------


def call_rows() -> list[Row]:
    rows = [
        Row("call, 4 elements, two instances of the host, one after the other",
            micros(motet_call(AFTER, {"a": "host/1?cores=0", "b": "host/2?cores=1"}, lambda x, y: 2 * x * y)),
            iree_call(AFTER, lambda x, y: 2 * x * y)),
        Row("… both at once",
            micros(motet_call(AT_ONCE, {"a": "host/1?cores=0", "b": "host/2?cores=1"}, lambda x, y: x * y - (x + y))),
            iree_call(AT_ONCE, lambda x, y: x * y - (x + y))),
    ]
    for uri in DEVICES[1:]:
        if find_device(uri).available:
            seconds = motet_call(AFTER, {"a": "host", "b": uri}, lambda x, y: 2 * x * y, uri.partition(":")[0])
            rows.append(Row(f"call, 4 elements, the host, then {uri}, and back", micros(seconds)))
    return rows


def motet_call(text: str, bound: dict[str, str], reference: Callable[..., np.ndarray], family: str = "host") -> float:
    x, y, out = np.arange(4, dtype=np.float32), np.full(4, 3, np.float32), np.empty(4, np.float32)
    artifact = motet.compile(text, devices={"a": "host", "b": family})
    with load(artifact, devices=bound, threads=1) as session:
        np.testing.assert_array_equal(session(x, y, out=out), reference(x, y))
        return fastest(lambda: session(x, y, out=out))


def iree_call(text: str, reference: Callable[..., np.ndarray]) -> str:
    """IREE from Python, and by its own native benchmark; "–" if it is not installed or fails."""
    tool = Path(sys.executable).with_name("iree-compile")
    try:
        import iree.runtime as runtime  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
        from iree.runtime.function import (  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
            FunctionInvoker,
        )
    except ImportError:
        return "–"
    with tempfile.TemporaryDirectory() as folder:
        source, module = Path(folder) / "p.mlir", Path(folder) / "p.vmfb"
        source.write_text(text)
        outcome = subprocess.run(
            [str(tool), str(source), "-o", str(module), "--iree-hal-target-device=a=local",
             "--iree-hal-target-device=b=local", "--iree-hal-local-target-device-backends=llvm-cpu",
             "--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"], capture_output=True, text=True,
        )
        if outcome.returncode:
            return f"IREE: it did not compile ({outcome.stderr.strip().splitlines()[0][:60]})"
        instance = runtime.VmInstance()
        driver = runtime.get_driver("local-sync")
        devices = [driver.create_default_device() for _ in range(2)]
        hal = runtime.create_hal_module(instance, devices=devices)
        loaded = runtime.VmModule.mmap(instance, str(module))
        context = runtime.VmContext(instance, modules=[hal, loaded])
        function = FunctionInvoker(context, devices[0], loaded.lookup_function("main"))  # pyright: ignore
        x, y = np.arange(4, dtype=np.float32), np.full(4, 3, np.float32)
        arrays = [runtime.asdevicearray(devices[0], array) for array in (x, y)]
        result: Any = function(*arrays)
        np.testing.assert_array_equal(result.to_host(), reference(x, y))
        return f"IREE {micros(fastest(lambda: function(*arrays)))}, its own benchmark {_iree_native(module)}"


def _iree_native(module: Path) -> str:
    tool = Path(sys.executable).with_name("iree-benchmark-module")
    outcome = subprocess.run(
        [str(tool), f"--module={module}", "--device=local-sync", "--device=local-sync", "--function=main",
         "--input=4xf32=1", "--input=4xf32=3", "--benchmark_format=json", "--benchmark_repetitions=5"],
        capture_output=True, text=True,
    )
    try:
        found = json.loads(outcome.stdout)["benchmarks"]
    except (json.JSONDecodeError, KeyError):
        return "–"
    units = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}
    timed = [entry for entry in found if entry.get("run_type") == "iteration"]
    return micros(min(entry["real_time"] * units[entry["time_unit"]] for entry in timed))


# -- devices ---------------------------------------------------------------------------------------


@contextmanager
def opened(uri: str) -> Generator[Device]:
    device = open_device(find_device(uri))
    try:
        yield device
    finally:
        device.close()


def launch_rows() -> list[Row]:
    rows: list[Row] = []
    for uri in DEVICES:
        if find_device(uri).available:
            with opened(uri) as device:
                rows.append(Row(f"launch of 4 elements on {uri}, until it was waited for", micros(launch(device))))
    return rows


def launch(device: Device) -> float:
    artifact = motet.compile(ADD, devices={"": device.info.family})
    variant = next(variant for variant in artifact.manifest.variants if device.obstacle(variant) is None)
    loaded = LoadedDevice(device, variant, artifact)
    concrete = make_concrete(
        artifact.manifest.functions[0], variant.schedules["main"], {}, loaded.parameter_bytes, "main"
    )
    work = device.record(loaded.executable, concrete.work, concrete.externals, concrete.scratch)
    buffers = [device.allocate(max(64, concrete.arena)) for _ in range(concrete.externals)]
    return fastest(lambda: device.submit(work, buffers).wait())


def transfer_rows() -> list[Row]:
    rows: list[Row] = []
    for uri in DEVICES:
        if not find_device(uri).available:
            continue
        with opened(uri) as device:
            for size in SIZES:
                write, read = transfers(device, size)
                shown = f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB"
                rows.append(Row(f"{shown} to {uri}, and back", f"{_rate(size, write)}, {_rate(size, read)} GB/s",
                                f"memmove {_rate(size, moved(size))} GB/s"))
    return rows


def transfers(device: Device, size: int) -> tuple[float, float]:
    """The seconds to write an array to a device, and to read it back."""
    source = np.random.default_rng(0).integers(0, 255, size, np.uint8)
    target = np.zeros(size, np.uint8)
    buffer = device.allocate(size)
    seconds = (
        fastest(lambda: device.write(buffer, source).wait()), fastest(lambda: device.read(buffer, target).wait())
    )
    np.testing.assert_array_equal(target, source)
    return seconds


def moved(size: int) -> float:
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    begin, end = source.ctypes.data, target.ctypes.data
    return fastest(lambda: ctypes.memmove(end, begin, size))


def _rate(size: int, seconds: float) -> str:
    return f"{size / seconds / 1e9:.3g}"


# -- placement -------------------------------------------------------------------------------------


def network(operations: int) -> str:
    """Products and element-wise operations, in blocks of three branches with a combined result."""
    tensor, square = "tensor<64x256xf32>", "tensor<256x256xf32>"
    lines = [
        f"func.func @main(%x: {tensor}, %w: {square}) -> {tensor} {{", "  %zero = arith.constant 0.0 : f32",
        f"  %e = tensor.empty() : {tensor}", f"  %z = linalg.fill ins(%zero : f32) outs(%e : {tensor}) -> {tensor}",
    ]
    value, number = "%x", 0

    def add(text: str) -> str:
        nonlocal number
        number += 1
        lines.append(f"  %v{number} = {text}")
        return f"%v{number}"

    while number < operations:
        ends: list[str] = []
        for _ in range(3):
            product = add(f"linalg.matmul ins({value}, %w : {tensor}, {square}) outs(%z : {tensor}) -> {tensor}")
            ends.append(add(f"linalg.tanh ins({product} : {tensor}) outs(%e : {tensor}) -> {tensor}"))
        value = add(f"arith.addf {ends[0]}, {ends[1]} : {tensor}")
        value = add(f"arith.addf {value}, {ends[2]} : {tensor}")
    return "\n".join([*lines, f"  return {value} : {tensor}", "}"])


def placement_rows() -> list[Row]:
    """The time to read and place a program by cost, minus the time to read it."""
    from motet.compiler.frontends import load_source
    from motet.compiler.pipeline import ONE_DEVICE, prepare
    from motet.compiler.placement.machine import rates_of_families
    from motet.compiler.placement.place import Place

    text = network(OPERATIONS)
    place = Place(parse_device_flags(("a=host", "b=cuda")), True, (), rates_of_families(None))
    took: dict[bool, float] = {}
    for automatic in (False, True):
        best = float("inf")
        for _ in range(2):
            begin = time.perf_counter()
            prepare(load_source(text, "network.mlir"), place if automatic else ONE_DEVICE)
            best = min(best, time.perf_counter() - begin)
        took[automatic] = best
    shown = f"{took[True] - took[False]:.2f} s"
    return [Row(f"automatic placement of {OPERATIONS:,} operations on two devices", shown)]


PARTS: dict[str, Callable[[], list[Row]]] = {
    "calls": call_rows, "launches": launch_rows, "transfers": transfer_rows, "placement": placement_rows,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="print rows of a Markdown table")
    parser.add_argument("--only", choices=[*PARTS], nargs="+", default=[*PARTS], help="what to measure")
    arguments = parser.parse_args()
    if arguments.markdown:
        print("| what | Motet | beside it |\n|---|---:|---:|")
    for part in arguments.only:
        for row in PARTS[part]():
            if arguments.markdown:
                print(f"| {row.what} | {row.motet} | {row.beside} |", flush=True)
            else:
                print(f"{row.what:<64} {row.motet:>22}   {row.beside}", flush=True)


if __name__ == "__main__":
    main()
