"""Calls per second of one session called by several threads: `python -m benchmarks.throughput --markdown`.

Each program is called from 1, 2 and 4 threads concurrently, with separate arrays, and by `submit` with as many calls in
flight and some more waiting: by a session whose calls use one core each, and by one that may use all cores. Compared
with onnxruntime, one session with as many calling threads, and with threads that compute a hash, which measure the
machine's own scaling. All run alternately, and the best round of each counts; ratios are relative to one caller. The
last column is CPU time: that of a call on all CPUs with four callers, relative to one caller.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from examples import models

import motet
from motet.artifact.reader import Artifact
from motet.runtime.session import Session, load

CALLERS = (1, 2, 4)
QUEUED = 4  # calls submitted and not done, per call that may run
STAGES = (256, 512, 2)  # rows, width and layers of each half of a program over two devices
_QUIET = 0.02  # seconds in which threads of the previous measurement fall asleep
# A way to call a program with a number of callers for some seconds; returns calls per second.
Way = Callable[[int, float], float]
Measured = tuple[float, float]  # calls per second, CPU seconds per call



@dataclass(frozen=True)
class Program:
    """A program, and its title in the table."""

    title: str
    model: Callable[[], onnx.ModelProto]


PROGRAMS = (
    Program("MLP 16×64-128-64", lambda: models.mlp(16, (64, 128, 64))),
    Program("MLP 64×128-512-128", lambda: models.mlp(64, (128, 512, 128))),
    Program("MLP 64×256-1024-256", lambda: models.mlp(64, (256, 1024, 256))),
    Program("MobileNetV2", models.mobilenet_v2),
    Program("ResNet-18", models.resnet18),
)


def inputs_of(model: onnx.ModelProto) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [
        random.standard_normal([dim.dim_value for dim in value.type.tensor_type.shape.dim], dtype=np.float32)
        for value in model.graph.input
    ]


# -- ways to call ----------------------------------------------------------------------------------


def from_threads(make: Callable[[], Callable[[], Any]]) -> Way:
    """Each thread calls the result of `make` repeatedly."""

    def run(count: int, seconds: float) -> float:
        calls = [make() for _ in range(count)]
        gate = threading.Barrier(count)
        rates = [0.0] * count

        def work(number: int) -> None:
            call = calls[number]
            call()
            gate.wait()
            made, begin = 0, time.perf_counter()
            end = begin + seconds
            while (now := time.perf_counter()) < end:
                call()
                made += 1
            rates[number] = made / (now - begin)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(rates)

    return run


def submitted(start: Callable[[int], Session], inputs: Sequence[np.ndarray]) -> Way:
    """One thread submits to a session with `count` concurrent calls, `start(count)`, and keeps a few more waiting."""
    sessions = {count: start(count) for count in CALLERS}

    def run(count: int, seconds: float) -> float:
        session, outstanding = sessions[count], QUEUED * count
        arguments = [[array.copy() for array in inputs] for _ in range(outstanding)]
        places = [_places(session, inputs) for _ in range(outstanding)]
        waiting = deque(session.submit(*a, out=o) for a, o in zip(arguments, places, strict=True))
        made, begin = 0, time.perf_counter()
        end = begin + seconds
        while (now := time.perf_counter()) < end:
            waiting.popleft().result()
            waiting.append(session.submit(*arguments[made % outstanding], out=places[made % outstanding]))
            made += 1
        for future in waiting:
            future.result()
        return made / (now - begin)

    return run


def hashed() -> Way:
    """The scaling of independent threads."""
    data = bytes(1 << 18)
    return from_threads(lambda: lambda: hashlib.sha256(data).digest())


def _places(session: Session, inputs: Sequence[np.ndarray]) -> Any:
    """Memory for the results of a call."""
    results = session(*inputs)
    if isinstance(results, tuple):
        return tuple(np.empty_like(result) for result in results)
    return np.empty_like(results)


def called(session: Session, inputs: Sequence[np.ndarray]) -> Way:
    def make() -> Callable[[], Any]:
        own = [array.copy() for array in inputs]
        out = _places(session, own)
        return lambda: session(*own, out=out)

    return from_threads(make)


def onnxruntime_called(model: onnx.ModelProto, inputs: Sequence[np.ndarray], threads: int) -> Way | None:
    try:
        import onnxruntime as ort
    except ImportError:
        return None
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    result = session.get_outputs()[0].name

    def make() -> Callable[[], Any]:
        binding = session.io_binding()
        own = [array.copy() for array in inputs]
        out = np.empty_like(session.run(None, dict(zip(names, own, strict=True)))[0])
        values = [ort.OrtValue.ortvalue_from_numpy(array) for array in (*own, out)]
        for name, value in zip(names, values, strict=False):
            binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output(result, values[-1])
        return lambda: session.run_with_iobinding(binding)

    return from_threads(make)


# -- two devices -----------------------------------------------------------------------------------


def two_stages(rows: int, width: int, layers: int) -> str:
    """A chain of products, its first half on @a, its second half on @b."""
    tensor, square = f"tensor<{rows}x{width}xf32>", f"tensor<{width}x{width}xf32>"
    lines = [
        f"func.func @main(%x: {tensor}, %w: {square}) -> {tensor} {{",
        "  %zero = arith.constant 0.0 : f32", f"  %e = tensor.empty() : {tensor}",
        f"  %z = linalg.fill ins(%zero : f32) outs(%e : {tensor}) -> {tensor}",
    ]
    value = "%x"
    for layer in range(2 * layers):
        place = f"motet.affinity = #hal.device.affinity<@{'a' if layer < layers else 'b'}>"
        lines += [
            f"  %p{layer} = linalg.matmul {{{place}}} ins({value}, %w : {tensor}, {square})"
            f" outs(%z : {tensor}) -> {tensor}",
            f"  %v{layer} = linalg.tanh {{{place}}} ins(%p{layer} : {tensor}) outs(%e : {tensor}) -> {tensor}",
        ]
        value = f"%v{layer}"
    return "\n".join([*lines, f"  return {value} : {tensor}", "}"])


@dataclass(frozen=True)
class Placement:
    """A program over two devices, and their bindings here."""

    title: str
    devices: dict[str, str]
    bound: dict[str, str]


PLACEMENTS = (
    Placement("two stages, two processors of the host", {"a": "host", "b": "host"},
              {"a": "host/1?cores=0", "b": "host/2?cores=1"}),
    Placement("two stages, the host and a modelled device with one queue",
              {"a": "host", "b": "null{cpu=x86-64-v4+x86-64-v3}"}, {"a": "host/1?cores=0", "b": "null?queues=1"}),
)


# -- measuring -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    program: str
    way: str
    rates: list[float]  # calls per second, by `CALLERS`
    costs: list[float]  # CPU seconds per call

    def cells(self) -> list[str]:
        ratios = [f"{rate:,.0f} ({rate / self.rates[0]:.2f})" for rate in self.rates[1:]]
        return [self.program, self.way, f"{self.rates[0]:,.0f}", *ratios, f"{self.costs[-1] / self.costs[0]:.2f}"]


def measure(program: str, ways: dict[str, Way], rounds: int, seconds: float) -> list[Row]:
    """Measure every way with every number of callers, alternately; the best of each counts."""
    best: dict[tuple[str, int], Measured] = {(name, count): (0.0, math.inf) for name in ways for count in CALLERS}
    for _ in range(rounds):
        for name, way in ways.items():
            for count in CALLERS:
                time.sleep(_QUIET)
                begin = time.process_time(), time.perf_counter()
                rate = way(count, seconds)
                used, passed = time.process_time() - begin[0], time.perf_counter() - begin[1]
                most, least = best[name, count]
                best[name, count] = max(most, rate), min(least, used / (rate * passed))
    return [
        Row(program, name, [best[name, count][0] for count in CALLERS], [best[name, count][1] for count in CALLERS])
        for name in ways
    ]


def ways_of(model: onnx.ModelProto, cores: int) -> dict[str, Way]:
    inputs = inputs_of(model)
    artifact = motet.compile(model)
    one, all_of_them = load(artifact, threads=1), load(artifact, threads=cores)
    found: dict[str, Way | None] = {
        "Motet, one core a call": called(one, inputs),
        "Motet, one core a call, `submit`": submitted(lambda n: load(artifact, threads=1, in_flight=n), inputs),
        "Motet, all cores": called(all_of_them, inputs),
        "onnxruntime, one core a call": onnxruntime_called(model, inputs, 1),
        "onnxruntime, all cores": onnxruntime_called(model, inputs, cores),
        "a hash, one core": hashed(),
    }
    return {name: way for name, way in found.items() if way is not None}


def _load(artifact: Artifact, bound: dict[str, str], in_flight: int) -> Session:
    return load(artifact, devices=bound, threads=1, in_flight=in_flight)


def placed_rows(rounds: int, seconds: float) -> list[Row]:
    rows: list[Row] = []
    for placement in PLACEMENTS:
        artifact = motet.compile(two_stages(*STAGES), devices=placement.devices)
        random = np.random.default_rng(2)
        inputs = [random.standard_normal(shape, dtype=np.float32) for shape in (STAGES[:2], (STAGES[1], STAGES[1]))]
        start = functools.partial(_load, artifact, placement.bound)
        with start(1) as session:
            ways = {
                "Motet, threads": called(session, inputs), "Motet, `submit`": submitted(start, inputs),
                "a hash, one core": hashed(),
            }
            rows += measure(placement.title, ways, rounds, seconds)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="print rows of a Markdown table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.4, help="seconds of each measurement")
    parser.add_argument("--only", default="", help="programs whose titles contain this")
    arguments = parser.parse_args()
    rows: list[Row] = []
    cores = max(CALLERS)
    for program in PROGRAMS:
        if arguments.only in program.title:
            rows += measure(program.title, ways_of(program.model(), cores), arguments.rounds, arguments.seconds)
    if arguments.only in "two stages":
        rows += placed_rows(arguments.rounds, arguments.seconds)
    heads = ["program", "called by", "1, calls/s", *(f"{count} (to one)" for count in CALLERS[1:]), "processors"]
    if arguments.markdown:
        print("| " + " | ".join(heads) + " |")
        print("|---|---|" + "---:|" * (len(CALLERS) + 1))
        for row in rows:
            print("| " + " | ".join(row.cells()) + " |")
        return
    for row in rows:
        print("  ".join(f"{cell:<36}" if place < 2 else f"{cell:>18}" for place, cell in enumerate(row.cells())))


if __name__ == "__main__":
    main()
