"""How close programs over eight devices come to their critical paths: `python -m benchmarks.concurrency`.

Graphs of a thousand nodes run on eight null devices with simulated clocks: every launch takes LAUNCH seconds, writing
to and reading from a device MOVE seconds each, one at a time on each queue. Scheduling, submission and waiting are
real. HEFT places the nodes. The bound is the longest path of launches and transfers, or, if larger, all launches of a
device spread evenly over its queues: no schedule of this placement is shorter.

The second table is the compiler's time to find the dependences of commands and to assign streams.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

import motet
from motet.artifact.reader import Artifact
from motet.artifact.schema import Plan, Signature, Step, TensorSpec
from motet.compiler.placement.search.heft import heft, upward_ranks
from motet.compiler.placement.search.problem import Machine, PlacementTask, Problem
from motet.compiler.scheduling.dependences import ByteSpan, CommandAccess, find_dependences
from motet.compiler.scheduling.streams import assign_streams
from motet.runtime.device import find_device
from motet.runtime.device_program import LoadedDevice
from motet.runtime.drivers import null
from motet.runtime.plan_executor import PlacedInstance

LAUNCH, MOVE = 0.2, 0.01  # far more than the time to submit, which the simulated clock does not include
DEVICES = 8
_ELEMENTS = 16
_SUM = f"""
func.func @sum(%a: tensor<{_ELEMENTS}xf32>, %b: tensor<{_ELEMENTS}xf32>) -> tensor<{_ELEMENTS}xf32> {{
  %e = tensor.empty() : tensor<{_ELEMENTS}xf32>
  %half = arith.constant 0.5 : f32
  %s = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]}}
    ins(%a, %b : tensor<{_ELEMENTS}xf32>, tensor<{_ELEMENTS}xf32>) outs(%e : tensor<{_ELEMENTS}xf32>) {{
    ^bb0(%x: f32, %y: f32, %o: f32):
      %0 = arith.addf %x, %y : f32
      %1 = arith.mulf %0, %half : f32
      linalg.yield %1 : f32
  }} -> tensor<{_ELEMENTS}xf32>
  return %s : tensor<{_ELEMENTS}xf32>
}}
"""

# For each node, the two nodes that it reads; -1 is the function's input.
Graph = list[tuple[int, int]]


def layered(nodes: int, width: int, random: np.random.Generator) -> Graph:
    """Layers of `width` nodes, each of which reads two nodes of the previous layer."""
    graph: Graph = []
    for node in range(nodes):
        first = node // width * width - width
        a, b = (first + int(offset) for offset in random.integers(width, size=2))
        graph.append((-1, -1) if first < 0 else (a, b))
    return graph


def scattered(nodes: int, reach: int, random: np.random.Generator) -> Graph:
    """Each node reads two of the `reach` nodes before it."""
    return [(-1, -1)] + [
        (int(random.integers(max(0, n - reach), n)), int(random.integers(max(0, n - reach), n)))
        for n in range(1, nodes)
    ]


def branches(nodes: int, count: int, random: np.random.Generator) -> Graph:
    """Blocks of `count` branches of one to four nodes that are summed up, like Inception's."""
    graph: Graph = [(-1, -1)]
    while len(graph) < nodes:
        start = len(graph) - 1
        ends: list[int] = []
        for _ in range(count):
            node = start
            for _ in range(int(random.integers(1, 5))):
                graph.append((node, node))
                node = len(graph) - 1
            ends.append(node)
        total = ends[0]
        for end in ends[1:]:
            graph.append((total, end))
            total = len(graph) - 1
    return graph


def chains(nodes: int, count: int, random: np.random.Generator) -> Graph:
    """Independent chains."""
    return [(-1, -1) if n < count else (n - count, n - count) for n in range(nodes)]


GRAPHS: dict[str, Callable[[int, np.random.Generator], Graph]] = {
    "layers of 16": lambda nodes, random: layered(nodes, 16, random),
    "layers of 64": lambda nodes, random: layered(nodes, 64, random),
    "two of the last 40": lambda nodes, random: scattered(nodes, 40, random),
    "blocks of 6 branches": lambda nodes, random: branches(nodes, 6, random),
    "32 chains": lambda nodes, random: chains(nodes, 32, random),
}
NODES = 1000
COMMANDS = (1000, 2000, 5000)


@dataclass(frozen=True)
class Outcome:
    """Seconds: the time of scheduling, and, by the simulated clock, the times of the call and of the critical path, and
    a lower bound of any call."""

    scheduling: float
    makespan: float
    critical: float
    bound: float


def place(graph: Graph) -> list[int]:
    """The device of each node."""
    tasks = tuple(
        PlacementTask((LAUNCH,) * DEVICES, tuple((source, 4 * _ELEMENTS) for source in sorted({*pair} - {-1})))
        for pair in graph
    )
    moving = tuple(tuple(0.0 if p == q else 2 * MOVE for q in range(DEVICES)) for p in range(DEVICES))
    free = tuple((0.0,) * DEVICES for _ in range(DEVICES))
    problem = Problem(tasks, Machine(tuple(range(DEVICES)), moving, free))
    return list(heft(problem, upward_ranks(problem)).places)


def plan_of(graph: Graph, places: Sequence[int]) -> Plan:
    """A plan in which value 0 is the input and value n + 1 the result of node n."""
    last = len(graph)
    steps = [
        Step("run", places[node], [a + 1, b + 1], [node + 1], "sum") for node, (a, b) in enumerate(graph)
    ]
    return Plan(last + 1, [0], [last], [places[0]], [places[-1]], steps)


def critical_path(graph: Graph, places: Sequence[int]) -> float:
    """The longest path of launches and transfers, including those of the input and the result."""
    ends: list[float] = []
    for node, pair in enumerate(graph):
        ready = MOVE  # of the input, once written
        for source in pair:
            if source >= 0:
                moved = 0.0 if places[source] == places[node] else 2 * MOVE
                ready = max(ready, ends[source] + moved)
        ends.append(ready + LAUNCH)
    return max([*ends[:-1], ends[-1] + MOVE])


def compile_sum() -> Artifact:
    return motet.compile(_SUM, devices={"": "null"})


def measure(artifact: Artifact, graph: Graph, queues: int) -> Outcome:
    """Schedule a graph, run it once, and check the result."""
    variant = artifact.manifest.variants[0]
    region, schedule = artifact.manifest.functions[0], variant.schedules["sum"]
    places = place(graph)
    options = f"latency={MOVE}&task-time={LAUNCH - MOVE}&bandwidth=1e15&memory-bandwidth=1e15&queues={queues}"
    info = find_device("null")
    opened = [null.open(replace(info, uri=f"null/{number}?{options}")) for number in range(DEVICES)]
    devices = [LoadedDevice(device, variant, artifact) for device in opened]
    spec = TensorSpec("x", [_ELEMENTS], "f32")
    signature = Signature("f", [spec], [spec], [])
    for device in devices:
        _ = device.executable
    begin = time.process_time()  # excludes other processes' work
    instance = PlacedInstance(
        signature, plan_of(graph, places), {"sum": region}, devices, {}, [{"sum": schedule}] * DEVICES
    )
    scheduling = time.process_time() - begin
    x = np.arange(_ELEMENTS, dtype=np.float32)
    result = np.zeros(_ELEMENTS, np.float32)
    events = [traced.event for traced in instance.run_traced([x, result])]
    for device in opened:
        device.close()
    if not np.array_equal(result, x):  # each node is the mean of two equal tensors
        raise RuntimeError(f"the result is {result}; expected {x}")
    makespan = max(event.end for event in events) - min(event.begin for event in events)
    critical = critical_path(graph, places)
    busiest = max(places.count(device) for device in range(DEVICES))
    return Outcome(scheduling, makespan, critical, max(critical, LAUNCH * busiest / queues))


@dataclass(frozen=True)
class Ordered:
    """The seconds to find the dependences of a graph's commands and to assign their streams, and the results."""

    dependences: float
    streams: float
    count: int
    waits: int


def order_commands(graph: Graph) -> Ordered:
    """Order commands that read two tensors and write one, one per node; all may run concurrently, on any number of
    streams."""
    accesses = [
        CommandAccess([ByteSpan(a, 64), ByteSpan(b, 64)], [ByteSpan(node, 64)]) for node, (a, b) in enumerate(graph)
    ]
    begin = time.perf_counter()
    before = find_dependences(accesses)
    found = time.perf_counter()
    assigned = assign_streams(before, [1e-3] * len(graph), [False] * len(graph), len(graph))
    end = time.perf_counter()
    return Ordered(found - begin, end - found, assigned.count, sum(map(len, assigned.waits)))


def print_makespans(queues_of: Sequence[int]) -> None:
    artifact = compile_sum()
    print("| graph | nodes | queues | scheduled, ms | makespan, s | critical path, s | bound, s | makespan ÷ bound |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, make in GRAPHS.items():
        graph = make(NODES, np.random.default_rng(0))
        for queues in queues_of:
            outcome = measure(artifact, graph, queues)
            print(
                f"| {name} | {len(graph)} | {queues} | {outcome.scheduling * 1e3:.0f} | {outcome.makespan:.2f} |"
                f" {outcome.critical:.2f} | {outcome.bound:.2f} | {outcome.makespan / outcome.bound:.2f} |"
            )


def print_orders() -> None:
    print("| graph | commands | dependences, ms | streams, ms | streams | waits |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, make in GRAPHS.items():
        for nodes in COMMANDS:
            graph = make(nodes, np.random.default_rng(0))
            outcomes = [order_commands(graph) for _ in range(3)]
            best = min(outcomes, key=lambda outcome: outcome.dependences + outcome.streams)
            print(
                f"| {name} | {len(graph)} | {best.dependences * 1e3:.0f} | {best.streams * 1e3:.0f} | {best.count} |"
                f" {best.waits} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queues", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--markdown", action="store_true", help="no effect: the output is always Markdown")
    print_makespans(parser.parse_args().queues)
    print()
    print_orders()


if __name__ == "__main__":
    main()
