"""Measures the rates of a device, for automatic placement, by small programs compiled for it.

Each class of kernel is run at growing sizes until a run takes long enough to be measured; fixed costs (launch,
submission) are measured separately and subtracted. An emulated device is thus measured in about the time of a real one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from motet.errors import DeviceError

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact
    from motet.compiler.targets.rates import Rates
    from motet.runtime.device import Buffer, CommandBuffer, Device, DeviceInfo
    from motet.runtime.device_program import LoadedDevice

LONG_ENOUGH = 0.02  # seconds of a run after which no larger size is tried
LEAST_ROUNDS, MOST_ROUNDS, MOST_SECONDS = 3, 1000, 0.1  # of each measurement
CHAIN = 8  # dependent kernels, to measure the cost of a launch
ARITHMETIC = 32  # operations on each element in measurements of arithmetic
CHANNELS, TAPS, COLUMNS = 32, 3, 256

_CONTRACTIONS = (16, 64, 256, 768)
_CONVOLUTIONS = (2, 8, 28, 56)
_ELEMENTS = (1 << 10, 1 << 14, 1 << 18, 1 << 21)
_STREAMED = (1 << 12, 1 << 16, 1 << 20, 1 << 23)
_GATHERED = (1 << 8, 1 << 12, 1 << 16, 1 << 19)
_TRANSFERRED = (1 << 12, 1 << 16, 1 << 20, 1 << 24)


def measure_rates(info: DeviceInfo, artifact: Artifact) -> Rates:
    """The rates of a device; `artifact` is `programs()` compiled for its family. Raises DeviceError."""
    from motet.compiler.targets.rates import Rates
    from motet.runtime.device import open_device
    from motet.runtime.device_program import LoadedDevice

    device = open_device(info)
    try:
        variant = next((each for each in artifact.manifest.variants
                        if each.family == info.family and device.obstacle(each) is None), None)
        if variant is None:
            raise DeviceError(f"device {info.uri}: no code can be made for it")
        found = _Measured(LoadedDevice(device, variant, artifact), artifact)
        one, many = found.seconds("launch_1"), found.seconds(f"launch_{CHAIN}")
        launch = max(1e-9, (many - one) / (CHAIN - 1))
        fixed = max(one, launch)
        speeds = {
            kind: found.speed(names, work, fixed) for kind, (names, work) in _measurements().items()
        }
        shared = info.host_memory
        latency, upload, download = (0.0, np.inf, np.inf) if shared else _link(device)
        return Rates(
            **speeds, launch=launch, submit=max(0.0, found.step_seconds() - launch), shared=shared, upload=upload,
            download=download, latency=latency,
        )
    finally:
        device.close()


def measure_family(info: DeviceInfo) -> dict[str, float | bool]:
    """The rates of a device in the format of a file of rates: three digits each, without infinite ones."""
    from motet.artifact.device_flags import DeviceFlag
    from motet.artifact.schema import Alternative
    from motet.artifact.uri import split_uri
    from motet.compiler import service
    from motet.compiler.targets.families import families
    from motet.compiler.targets.rates import Rates

    family, given = families()[info.family], split_uri(info.uri)[1]  # options may imply processors, as a machine does
    names = [name for key, value in given.items() for name in family.implied.get(key, {}).get(value, ())]
    flag = DeviceFlag("", (Alternative(info.family, options=f"{family.key}={'+'.join(names)}" if names else ""),))
    request = service.CompileRequest(programs(), path="rates.mlir", devices=(flag,))
    rates = measure_rates(info, service.compile(request))
    found: dict[str, float | bool] = {}
    for name in Rates.__struct_fields__:
        value: float | bool = getattr(rates, name)
        if isinstance(value, bool):
            found[name] = value
        elif np.isfinite(value):
            found[name] = float(f"{value:.3g}")
    return found


def _measurements() -> dict[str, tuple[list[str], list[float]]]:
    """For every rate the functions that measure it, and the work of each."""
    return {
        "contraction": ([f"contraction_{n}" for n in _CONTRACTIONS], [2.0 * n**3 for n in _CONTRACTIONS]),
        "convolution": (
            [f"convolution_{n}" for n in _CONVOLUTIONS],
            [2.0 * n * n * CHANNELS * CHANNELS * TAPS * TAPS for n in _CONVOLUTIONS],
        ),
        "elementwise": ([f"elementwise_{n}" for n in _ELEMENTS], [float(ARITHMETIC) * n for n in _ELEMENTS]),
        "reduction": ([f"reduction_{n}" for n in _ELEMENTS], [float(ARITHMETIC) * n for n in _ELEMENTS]),
        "generic": ([f"generic_{n}" for n in _GATHERED], [float(n) for n in _GATHERED]),
        "memory": ([f"memory_{n}" for n in _STREAMED], [12.0 * n for n in _STREAMED]),
    }


@dataclass(frozen=True)
class _Measured:
    """Functions of `artifact` on one device."""

    loaded: LoadedDevice
    artifact: Artifact

    def speed(self, names: Sequence[str], work: Sequence[float], fixed: float) -> float:
        """Work per second of the largest function that is worth running, without `fixed` seconds of overhead."""
        found = 0.0
        for name, amount in zip(names, work, strict=True):
            seconds = self.seconds(name)
            found = amount / max(seconds - fixed, seconds / 20)
            if seconds > LONG_ENOUGH:
                break
        return found

    def seconds(self, name: str) -> float:
        """The shortest time from a submission of a function, including its memory, to its end."""
        from motet.runtime.instantiate import make_concrete

        loaded, device = self.loaded, self.loaded.device
        schedule, signature = loaded.variant.schedules[name], self.artifact.functions[name]
        concrete = make_concrete(signature, schedule, {}, loaded.parameter_bytes, name)
        commands: CommandBuffer = device.record(
            loaded.executable, concrete.work, concrete.externals, concrete.scratch
        )
        inputs: list[Buffer] = []
        for shape in concrete.inputs:
            buffer = device.allocate(shape.bytes)
            device.write(buffer, np.zeros(shape.bytes, np.uint8)).wait()
            inputs.append(buffer)
        parameters = [loaded.parameter(index) for index in concrete.parameters]

        def run() -> None:
            sizes = [*(shape.bytes for shape in concrete.results), concrete.arena]
            device.submit(commands, [*inputs, *map(device.allocate, sizes), *parameters]).wait()

        return _least(run)


    def step_seconds(self) -> float:
        """The additional time of a call whose plan has one more, tiny, step."""
        from motet.artifact.schema import Plan, Step
        from motet.runtime.plan_executor import PlacedInstance

        name = "launch_1"
        signature = self.artifact.functions[name]
        arrays = [np.zeros((4, 4), np.float32) for _ in (*signature.inputs, *signature.results)]
        taken: list[float] = []
        for count in (1, 1 + CHAIN):
            steps = [Step("run", 0, [0 if i == 0 else i + 1, 1], [i + 2], name) for i in range(count)]
            plan = Plan(count + 2, [0, 1], [count + 1], [0, 0], [0], steps)
            instance = PlacedInstance(
                signature, plan, {name: signature}, [self.loaded], {}, [self.loaded.variant.schedules]
            )
            taken.append(_least(lambda call=instance: call.run(arrays)))
        return max(0.0, taken[1] - taken[0]) / CHAIN


def _link(device: Device) -> tuple[float, float, float]:
    """The latency of a transfer in seconds, and the bytes per second to the device and back."""
    small = device.allocate(64)
    word = np.zeros(64, np.uint8)
    latency = min(_least(lambda: device.write(small, word).wait()), _least(lambda: device.read(small, word).wait()))
    upload = download = 0.0
    for size in _TRANSFERRED:
        buffer, array = device.allocate(size), np.zeros(size, np.uint8)
        up = _least(lambda b=buffer, a=array: device.write(b, a).wait())
        down = _least(lambda b=buffer, a=array: device.read(b, a).wait())
        upload, download = (size / max(each - latency, each / 20) for each in (up, down))
        if max(up, down) > LONG_ENOUGH:
            break
    return latency, upload, download


def _least(run: Callable[[], object]) -> float:
    run()
    best, begin, rounds = float("inf"), time.perf_counter(), 0
    while rounds < LEAST_ROUNDS or (
        best < LONG_ENOUGH and time.perf_counter() - begin < MOST_SECONDS and rounds < MOST_ROUNDS
    ):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
        rounds += 1
    return best


# -- the programs ----------------------------------------------------------------------------------


def programs() -> str:
    """The measured functions, as MLIR."""
    functions = [_chain(1), _chain(CHAIN)]
    functions += [_contraction(n) for n in _CONTRACTIONS]
    functions += [_convolution(n) for n in _CONVOLUTIONS]
    functions += [_elementwise(n) for n in _ELEMENTS]
    functions += [_reduction(n) for n in _ELEMENTS]
    functions += [_gather(n) for n in _GATHERED]
    functions += [_stream(n) for n in _STREAMED]
    return "\n".join(functions)


def _chain(count: int) -> str:
    kind = "tensor<4x4xf32>"
    lines = [
        f"  %{i + 1} = linalg.matmul ins(%{i}, %w : {kind}, {kind}) outs(%f : {kind}) -> {kind}" for i in range(count)
    ]
    body = "\n".join(lines)
    return f"""func.func @launch_{count}(%x: {kind}, %w: {kind}) -> {kind} {{
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : {kind}
  %f = linalg.fill ins(%c : f32) outs(%e : {kind}) -> {kind}
  %0 = linalg.abs ins(%x : {kind}) outs(%e : {kind}) -> {kind}
{body}
  return %{count} : {kind}
}}"""


def _contraction(n: int) -> str:
    kind = f"tensor<{n}x{n}xf32>"
    return f"""func.func @contraction_{n}(%x: {kind}, %y: {kind}) -> {kind} {{
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : {kind}
  %f = linalg.fill ins(%c : f32) outs(%e : {kind}) -> {kind}
  %0 = linalg.matmul ins(%x, %y : {kind}, {kind}) outs(%f : {kind}) -> {kind}
  return %0 : {kind}
}}"""


def _convolution(n: int) -> str:
    image = f"tensor<1x{n + TAPS - 1}x{n + TAPS - 1}x{CHANNELS}xf32>"
    filters, result = f"tensor<{TAPS}x{TAPS}x{CHANNELS}x{CHANNELS}xf32>", f"tensor<1x{n}x{n}x{CHANNELS}xf32>"
    return f"""func.func @convolution_{n}(%x: {image}, %w: {filters}) -> {result} {{
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : {result}
  %f = linalg.fill ins(%c : f32) outs(%e : {result}) -> {result}
  %0 = linalg.conv_2d_nhwc_hwcf ins(%x, %w : {image}, {filters}) outs(%f : {result}) -> {result}
  return %0 : {result}
}}"""


def _arithmetic(count: int) -> str:
    """`count` dependent operations on %a0."""
    names = ("arith.mulf", "arith.addf")
    return "\n".join(f"    %a{i + 1} = {names[i % 2]} %a{i}, %k : f32" for i in range(count))


def _elementwise(n: int) -> str:
    kind = f"tensor<{n}xf32>"
    return f"""func.func @elementwise_{n}(%x: {kind}) -> {kind} {{
  %k = arith.constant 0.99 : f32
  %e = tensor.empty() : {kind}
  %0 = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]}} ins(%x : {kind}) outs(%e : {kind}) {{
  ^bb0(%a0: f32, %o: f32):
{_arithmetic(ARITHMETIC)}
    linalg.yield %a{ARITHMETIC} : f32
  }} -> {kind}
  return %0 : {kind}
}}"""


def _reduction(n: int) -> str:
    rows = n // COLUMNS
    kind, result = f"tensor<{rows}x{COLUMNS}xf32>", f"tensor<{rows}xf32>"
    return f"""func.func @reduction_{n}(%x: {kind}) -> {result} {{
  %k = arith.constant 0.99 : f32
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : {result}
  %f = linalg.fill ins(%c : f32) outs(%e : {result}) -> {result}
  %0 = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}} ins(%x : {kind}) outs(%f : {result}) {{
  ^bb0(%a0: f32, %o: f32):
{_arithmetic(ARITHMETIC - 1)}
    %s = arith.addf %o, %a{ARITHMETIC - 1} : f32
    linalg.yield %s : f32
  }} -> {result}
  return %0 : {result}
}}"""


def _gather(n: int) -> str:
    indices, kind = f"tensor<{n}xindex>", f"tensor<{n}xf32>"
    return f"""func.func @generic_{n}(%x: {kind}, %i: {indices}) -> {kind} {{
  %e = tensor.empty() : {kind}
  %0 = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]}} ins(%i : {indices}) outs(%e : {kind}) {{
  ^bb0(%at: index, %o: f32):
    %v = tensor.extract %x[%at] : {kind}
    linalg.yield %v : f32
  }} -> {kind}
  return %0 : {kind}
}}"""


def _stream(n: int) -> str:
    kind = f"tensor<{n}xf32>"
    return f"""func.func @memory_{n}(%x: {kind}, %y: {kind}) -> {kind} {{
  %e = tensor.empty() : {kind}
  %0 = linalg.add ins(%x, %y : {kind}, {kind}) outs(%e : {kind}) -> {kind}
  return %0 : {kind}
}}"""
