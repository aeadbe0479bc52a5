"""The speedup of concurrent branches: `python -m benchmarks.overlap --markdown`.

Each model is compiled once. *Serial* is the same code with every command waiting for the previous one, and over several
devices every step for the previous one. The bound is a lower bound for all orders of the same commands: the longest
path of the commands' times, each measured alone on the whole device, or, if larger, the total time of all threads
divided by their number. Over several devices, it is the longest path of the plan's steps and transfers, or all steps of
one device if that is larger.

The accelerator is emulated: its cores are QEMU threads, which share the machine's CPUs with each other and with this
process, and its times are wall-clock times. QEMU counts instructions of a single core only.
"""

from __future__ import annotations

import argparse
import functools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

import motet
import motet.builder as b
from motet.artifact.expressions import evaluate
from motet.artifact.reader import Artifact
from motet.artifact.schema import Plan, Schedule
from motet.artifact.writer import write_artifact
from motet.builder import Graph, Tensor
from motet.runtime import load
from motet.runtime.device import Event, probe
from motet.runtime.trace import Traced

THREADS = 4
RISCV = f"riscv:qemu?harts={THREADS}"
HOSTS = ("host?cores=0-1", "host/1?cores=2-3")
_SECONDS = 1.0  # for each measurement
_ROUNDS = 5


@dataclass(frozen=True)
class Model:
    """`build` makes the graph with its branches on the given devices, one for each; None: unplaced."""

    name: str
    build: Callable[[Sequence[str | None]], Graph]
    shape: tuple[int, ...]


def _weights(*shape: int) -> np.ndarray:
    values = np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)
    return values / np.float32(np.sqrt(np.prod(shape[1:])))


def inception(blocks: int, size: int, channels: int) -> Callable[[Sequence[str | None]], Graph]:
    """Blocks of four branches, as in GoogLeNet: 1x1; 1x1 and 3x3; 1x1 and 5x5; pooling and 1x1."""

    def convolve(x: Tensor, features: int, window: int, device: str | None) -> Tensor:
        depth = x.shape[1]
        weights = _weights(features, int(depth), window, window)
        return b.relu(b.conv2d(x, weights, padding=window // 2, device=device), device=device)

    def build(devices: Sequence[str | None]) -> Graph:
        graph = Graph("main")
        x: Tensor = graph.input("x", (1, channels, size, size))
        quarter = channels // 4
        for _ in range(blocks):
            first, second = devices[0], devices[-1]
            parts = [
                convolve(x, quarter, 1, first),
                convolve(convolve(x, quarter, 1, first), quarter, 3, first),
                convolve(convolve(x, quarter // 2, 1, second), quarter, 5, second),
                convolve(b.max_pool2d(x, 3, 1, 1, device=second), quarter, 1, second),
            ]
            x = b.concat(parts, 1, device=first)
        graph.result(x)
        return graph

    return build


def branches(
    rows: int, width: int, lengths: Sequence[int], widths: Sequence[int] = ()
) -> Callable[[Sequence[str | None]], Graph]:
    """Chains of products, each followed by softmax, with a sum of all chains; `widths` are the branches' sizes."""

    def build(devices: Sequence[str | None]) -> Graph:
        graph = Graph("main")
        x: Tensor = graph.input("x", (rows, width))
        ends: list[Tensor] = []
        for branch, length in enumerate(lengths):
            y, device = x, devices[branch % len(devices)]
            inner = widths[branch] if widths else width
            extents = [width, *([inner] * (length - 1)), width]
            for step in range(length):
                weights = _weights(extents[step], extents[step + 1]) + np.float32(0.01 * (branch + step))
                y = b.softmax(b.matmul(y, weights, device=device), device=device)
            ends.append(y)
        graph.result(b.add(*ends, device=devices[0]))
        return graph

    return build


MODELS = {
    "inception": Model("two Inception blocks, 64 channels of 14x14", inception(2, 14, 64), (1, 64, 14, 14)),
    "small": Model("two branches of 6 products 24x128x128", branches(24, 128, (6, 6)), (24, 128)),
    "uneven": Model("two branches of 8 and 3 products 24x128x128", branches(24, 128, (8, 3)), (24, 128)),
    "large": Model("two branches of 2 products 1024x768x768, each of which fills the machine",
                   branches(1024, 768, (2, 2)), (1024, 768)),
    "long": Model("two branches of 8 products 32x512x512", branches(32, 512, (8, 8)), (32, 512)),
}
# For the accelerator, which is 50 times slower.
SMALLER = {
    "inception": Model("an Inception block, 32 channels of 8x8", inception(1, 8, 32), (1, 32, 8, 8)),
    "small": Model("two branches of 4 products 8x64x64", branches(8, 64, (4, 4)), (8, 64)),
    "uneven": Model("two branches of 6 and 2 products 8x64x64", branches(8, 64, (6, 2)), (8, 64)),
    "large": Model("two branches of 2 products 64x128x128, each of which fills the cores", branches(64, 128, (2, 2)),
                   (64, 128)),
}
UNLIKE = Model("a branch of 12 products 64x2048x2048 beside one of 3 products 64x64x64",
               branches(64, 64, (14, 3), (2048, 64)), (64, 64))


@dataclass(frozen=True)
class Row:
    """The seconds of each variant, the fastest of several calls."""

    where: str
    model: str
    serial: float
    concurrent: float
    bound: float

    def markdown(self) -> str:
        return (
            f"| {self.where} | {self.model} | {self.serial * 1e3:.3f} | {self.concurrent * 1e3:.3f} |"
            f" {self.serial / self.concurrent:.2f} | {self.bound * 1e3:.3f} | {self.serial / self.bound:.2f} |"
            f" {self.bound / self.concurrent:.0%} |"
        )


def chained(artifact: Artifact) -> Artifact:
    """The same code with each command waiting for the previous one."""
    manifest = artifact.manifest
    variants = [
        msgspec.structs.replace(
            variant, schedules={name: _chain(schedule) for name, schedule in variant.schedules.items()}
        )
        for variant in manifest.variants
    ]
    members = {name: artifact.member(name) for variant in variants for name in variant.objects}
    parameters = {parameter.key: artifact.parameter(n) for n, parameter in enumerate(manifest.parameters)}
    return write_artifact(msgspec.structs.replace(manifest, variants=variants), members, parameters)


def _chain(schedule: Schedule) -> Schedule:
    commands = [
        msgspec.structs.replace(command, after=[number - 1] if number else [])
        for number, command in enumerate(schedule.commands)
    ]
    return msgspec.structs.replace(schedule, commands=commands)


# -- one device ------------------------------------------------------------------------------------


def one_device(uri: str, where: str, models: Sequence[Model], family: str) -> list[Row]:
    rows: list[Row] = []
    for model in models:
        artifact = motet.compile(model.build([None]), devices=family)
        x = _input(model)
        with load(chained(artifact), devices=uri, threads=THREADS) as one, \
                load(artifact, devices=uri, threads=THREADS) as other:
            _check_equal(one(x), other(x), model)
            calls = [functools.partial(one, x), functools.partial(other, x)]
            serial, concurrent = fastest(calls, _SECONDS)
            (variant,) = [v for v in artifact.manifest.variants if v.target == one.variants[0].target]
            (schedule,) = variant.schedules.values()
            bound = _bound(schedule, [one.main.trace(x)[1] for _ in range(9)])
        rows.append(Row(where, model.name, serial, concurrent, min(bound, serial)))
    return rows


def _input(model: Model) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(model.shape, np.float32)


def _check_equal(one: np.ndarray, other: np.ndarray, model: Model) -> None:
    if not np.allclose(one, other, rtol=1e-4, atol=1e-5):
        raise RuntimeError(f"{model.name}: serial and concurrent results differ by {np.abs(one - other).max()}")


def fastest(calls: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """The fastest time of each of several calls, run alternately for `seconds` each."""
    best = [float("inf")] * len(calls)
    for call in calls:
        call()
    end = time.perf_counter() + seconds * len(calls)
    rounds = 0
    while time.perf_counter() < end or rounds < _ROUNDS:
        rounds += 1
        for number, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            best[number] = min(best[number], time.perf_counter() - begin)
    return best


def _bound(schedule: Schedule, runs: Sequence[Sequence[Traced]]) -> float:
    """The bound, from traces of commands that run alone."""
    runs = [[traced for traced in run if traced.event.kind in ("launch", "copy")] for run in runs]
    taken = [[traced.event.end - traced.event.begin for traced in run] for run in runs]
    alone = [min(seconds) for seconds in zip(*taken, strict=True)]
    spent = min(sum(p.end - p.begin for t in run for p in t.event.pieces) for run in runs)
    ends: list[float] = []
    for command, seconds in zip(schedule.commands, alone, strict=True):
        ends.append(max((ends[n] for n in command.after), default=0.0) + seconds)
    return max(*ends, spent / THREADS)


# -- several devices -------------------------------------------------------------------------------


def several_devices(devices: Sequence[str], where: str, model: Model) -> Row:
    """A row with one branch on each of two devices."""
    names = ("a", "b")
    families = [parse_family(uri) for uri in devices]
    artifact = motet.compile(model.build(names), devices=dict(zip(names, families, strict=True)))
    x = _input(model)
    with load(artifact, devices=dict(zip(names, devices, strict=True)), threads=THREADS) as session:
        serial, concurrent = fastest(
            [functools.partial(session.main.profile, x), functools.partial(session, x)], _SECONDS
        )
        (plan,) = artifact.manifest.plans.values()
        runs = [session.main.profile(x) for _ in range(9)]
        steps = [min(seconds for _, seconds in each) for each in zip(*runs, strict=True)]
    return Row(where, model.name, serial, concurrent, min(serial, _plan_bound(plan, steps)))


def parse_family(uri: str) -> str:
    """The family of the device with a URI."""
    return re.split(r"[?:/]", uri)[0]


def _plan_bound(plan: Plan, seconds: Sequence[float]) -> float:
    ends: dict[int, float] = {}
    busy: dict[int, float] = {}
    for step, taken in zip(plan.steps, seconds, strict=True):
        end = max((ends.get(value, 0.0) for value in step.operands), default=0.0) + taken
        ends.update(dict.fromkeys(step.results, end))
        if step.op == "run":
            busy[step.device] = busy.get(step.device, 0.0) + taken
    return max(*ends.values(), *busy.values())


# -- simulated devices -----------------------------------------------------------------------------


def modelled(model: Model) -> Row:
    """A row on two null devices, by their simulated clock: each launch takes 200 µs, each transfer 20 µs."""
    names = ("a", "b")
    artifact = motet.compile(model.build(names), devices=dict.fromkeys(names, "null"))
    options = "latency=2e-5&task-time=180e-6&bandwidth=1e15&memory-bandwidth=1e15"
    x = _input(model)
    with load(artifact, devices={"a": f"null?{options}", "b": f"null/1?{options}"}) as session:
        session(x)
        spans = [_span([t.event for t in session.main.trace(x)[1]]) for _ in range(50)]
        events = [t.event for t in session.main.trace(x)[1]]
    launches = sum(event.end - event.begin for event in events)
    (plan,) = artifact.manifest.plans.values()
    symbols = {variant.family: variant.schedules for variant in artifact.manifest.variants}["null"]
    steps = [
        sum(2e-5 + 180e-6 * evaluate(command.tasks, {}) for command in symbols[step.region].commands)
        if step.op == "run" else 4e-5 for step in plan.steps
    ]
    return Row("two null devices, modelled time", model.name, launches, min(spans), _plan_bound(plan, steps) + 4e-5)


_ITERATIONS, _ROWS, _WIDTH = 16, 64, 256
_LOOP = f"""
func.func @main(%x: tensor<{_ITERATIONS * _ROWS}x{_WIDTH}xf32>, %w: tensor<{_WIDTH}x{_WIDTH}xf32>)
    -> tensor<{_ITERATIONS * _ROWS}x{_WIDTH}xf32> {{
  %begin = arith.constant 0 : index
  %end = arith.constant {_ITERATIONS * _ROWS} : index
  %step = arith.constant {_ROWS} : index
  %zero = arith.constant 0.0 : f32
  %all = tensor.empty() : tensor<{_ITERATIONS * _ROWS}x{_WIDTH}xf32>
  %r = scf.for %i = %begin to %end step %step iter_args(%acc = %all)
      -> tensor<{_ITERATIONS * _ROWS}x{_WIDTH}xf32> {{
    %part = tensor.extract_slice %x[%i, 0] [{_ROWS}, {_WIDTH}] [1, 1]
      : tensor<{_ITERATIONS * _ROWS}x{_WIDTH}xf32> to tensor<{_ROWS}x{_WIDTH}xf32>
    %e = tensor.empty() : tensor<{_ROWS}x{_WIDTH}xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{_ROWS}x{_WIDTH}xf32>) -> tensor<{_ROWS}x{_WIDTH}xf32>
    %m = linalg.matmul {{motet.affinity = "b"}}
      ins(%part, %w : tensor<{_ROWS}x{_WIDTH}xf32>, tensor<{_WIDTH}x{_WIDTH}xf32>)
      outs(%f : tensor<{_ROWS}x{_WIDTH}xf32>) -> tensor<{_ROWS}x{_WIDTH}xf32>
    %back = "motet.transfer"(%m) {{to = "a"}}
      : (tensor<{_ROWS}x{_WIDTH}xf32>) -> tensor<{_ROWS}x{_WIDTH}xf32>
    %next = tensor.insert_slice %back into %acc[%i, 0] [{_ROWS}, {_WIDTH}] [1, 1]
      : tensor<{_ROWS}x{_WIDTH}xf32> into tensor<{_ITERATIONS * _ROWS}x{_WIDTH}xf32>
    scf.yield %next : tensor<{_ITERATIONS * _ROWS}x{_WIDTH}xf32>
  }}
  return %r : tensor<{_ITERATIONS * _ROWS}x{_WIDTH}xf32>
}}
"""


def looped() -> Row:
    """Parts of a batch on a null device, each transferred there while the previous one is computed: 4 ms of computation
    and 1 ms for each transfer. The bound is the computation plus the first and last part's transfers."""
    artifact = motet.compile(_LOOP, devices={"a": "host", "b": "null"})
    move, compute = 1e-3, 4e-3
    (schedules,) = [v.schedules for v in artifact.manifest.variants if v.family == "null"]
    (plan,) = artifact.manifest.plans.values()
    region = next(step.region for step in plan.steps if step.op == "run" and step.device == 1)
    tasks = sum(evaluate(command.tasks, {}) for command in schedules[region].commands)
    launches = len(schedules[region].commands)
    each = (compute - launches * move) / tasks
    options = f"latency={move}&task-time={each}&bandwidth=1e15&memory-bandwidth=1e15&pace=1"
    random = np.random.default_rng(0)
    x = random.standard_normal((_ITERATIONS * _ROWS, _WIDTH), np.float32)
    w = random.standard_normal((_WIDTH, _WIDTH), np.float32)
    with load(artifact, devices={"a": "host", "b": f"null?{options}"}) as session:
        if not np.allclose(session(x, w), x @ w, rtol=1e-3, atol=1e-3):
            raise RuntimeError("the loop's result is wrong")
        runs = [[t.event for t in session.main.trace(x, w)[1] if t.device.startswith("null")] for _ in range(5)]
    serial = sum(event.end - event.begin for event in runs[0])
    bound = _ITERATIONS * compute + 3 * move  # including the weights
    name = f"a loop of {_ITERATIONS} turns, 1 ms there, 4 ms of computing, 1 ms back, in the memory of two"
    return Row("host and a null device, paced", name, serial, min(_span(events) for events in runs), bound)


def _span(events: Sequence[Event]) -> float:
    return max(event.end for event in events) - min(event.begin for event in events)


# -- the table -------------------------------------------------------------------------------------


def rows(names: Sequence[str]) -> Iterator[Row]:
    """The rows of the groups with these names: host, riscv, placed, null."""
    accelerator = not any(not info.available for info in probe("riscv") if info.uri == "riscv:qemu")
    if "host" in names:
        yield from one_device(f"host?threads={THREADS}", f"host, {THREADS} threads", [*MODELS.values()], "host")
    if "riscv" in names and accelerator:
        yield from one_device(RISCV, f"riscv:qemu, {THREADS} harts", [*SMALLER.values()], "riscv")
    if "placed" in names:
        yield several_devices(HOSTS, "two hosts, two cores each", MODELS["inception"])
        yield several_devices(HOSTS, "two hosts, two cores each", MODELS["long"])
        yield several_devices(HOSTS, "two hosts, two cores each", MODELS["large"])
        if accelerator:
            both = "host, 2 threads, and riscv:qemu, 2 harts"
            yield several_devices(("host?threads=2", "riscv:qemu?harts=2"), both, UNLIKE)
            yield several_devices(("host?threads=2", "riscv:qemu?harts=2"), both, SMALLER["inception"])
    if "null" in names:
        yield modelled(MODELS["small"])
        yield modelled(MODELS["uneven"])
        yield looped()


def main() -> None:
    parser = argparse.ArgumentParser(description="The speedup of concurrent branches.")
    groups = ["host", "riscv", "placed", "null"]
    parser.add_argument("--only", nargs="+", choices=groups, default=groups)
    parser.add_argument("--markdown", action="store_true", help="no effect: the output is always Markdown")
    arguments = parser.parse_args()
    print("| where | model | serial, ms | at once, ms | speed-up | bound, ms | most speed-up | of bound |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for row in rows(arguments.only):
        print(row.markdown(), flush=True)


if __name__ == "__main__":
    main()
