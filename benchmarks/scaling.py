"""How programs grow over simulated meshes: `python -m benchmarks.scaling --simulate 8,64,512,1000`.

The program is a step of training's communication over a stack of layers: in each layer, every device multiplies its
share of the rows by its share of the weights twice, and sums the products over the devices of its machine (tensor
parallel, 8 devices); at the end, the gradient of one layer's weights is summed over the machines (data parallel). In
weak scaling, the rows of a machine stay the same; in strong scaling, the rows of all machines together.

Devices and links are models (`motet.ranks.simulation`): `null` devices whose products take their operations over RATE.
Plans are divided among ranks, put in order and proved as real ones are; the planning time is that of this machine, for
all ranks together: a real rank divides the whole plan, and orders its own part. The bound is the longest path, the
busiest device or the busiest link, whichever takes longest: no order of the same steps is faster.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from motet.artifact.schema import Plan
from motet.ranks.collectives import PlanWriter, all_reduce
from motet.ranks.division import divide
from motet.ranks.proof import prove
from motet.ranks.simulation import Network, SimulatedRun, lower_bound, simulate
from motet.runtime.submission import submission_order

MACHINE = 8  # devices
RATE, BANDWIDTH = 4e14, 3e12  # operations on 16-bit floats, and bytes of memory, per second of a device
HIDDEN, LAYERS, ROWS = 8192, 4, 4096  # rows of a machine; of all together in strong scaling, times STRONG
STRONG = 16
_BYTES = 2


@dataclass(frozen=True)
class Scaled:
    """A row of the table; `planning` are seconds of this machine, `bound` of the model."""

    devices: int
    steps: int
    messages: int
    planning: float
    run: SimulatedRun
    bound: float


def program(devices: int, rows: int) -> tuple[Plan, list[int]]:
    """The plan of the layers over `devices`, and the bytes of its values."""
    writer = PlanWriter(BANDWIDTH)
    size = rows * HIDDEN * _BYTES
    first = writer.argument(0)  # rank 0 starts the others
    kept = [writer.run("load", device, [first], [size], 0.0)[0] for device in range(devices)]
    groups = [range(begin, min(begin + MACHINE, devices)) for begin in range(0, devices, MACHINE)]
    for _ in range(LAYERS):
        for group in groups:
            seconds = 2 * 2 * rows * HIDDEN * 4 * HIDDEN / len(group) / RATE
            products = [writer.run("layer", device, [kept[device]], [size], seconds)[0] for device in group]
            for device, value in zip(group, all_reduce(writer, products, group), strict=True):
                kept[device] = value
    gradient = 4 * HIDDEN * HIDDEN * _BYTES // MACHINE
    for lane in range(min(MACHINE, devices)):
        own = range(lane, devices, MACHINE)
        values = [writer.run("gradient", device, [kept[device]], [gradient])[0] for device in own]
        all_reduce(writer, values, own)
    return writer.plan([kept[0]]), writer.sizes


def scaled(devices: int, rows: int, noise: float, seed: int) -> Scaled:
    """Plan and simulate one mesh."""
    plan, sizes = program(devices, rows)
    begin = time.process_time()
    parts = divide(plan, list(range(devices)), [0] * devices, [0] * devices, [0], "scaling")
    ordered = [_in_order(part.plan) for part in parts]
    proof = prove(ordered, lambda rank, device: False, "scaling")
    planning = time.process_time() - begin
    network = Network(devices, MACHINE)
    run = simulate(ordered, dict(enumerate(sizes)), network, noise=noise, seed=seed)
    bound = lower_bound(ordered, dict(enumerate(sizes)), network, run)
    return Scaled(devices, len(plan.steps), proof.messages, planning, run, bound)


def _in_order(plan: Plan) -> Plan:
    order = submission_order(plan.steps, lambda device: False, lambda device: device)
    return replace(plan, steps=[plan.steps[number] for number in order])


def table(title: str, rows: Sequence[Scaled]) -> str:
    """The rows in Markdown; efficiency is relative to the smallest mesh."""
    lines = [
        f"{title}:", "",
        "| devices | steps | messages | moved | planning | makespan | bound | makespan / bound | memory of a device |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        run = row.run
        lines.append(
            f"| {row.devices} | {row.steps:,} | {row.messages:,} | {run.moved / 1e9:,.1f} GB | {row.planning:.2f} s | "
            f"{run.makespan * 1e3:.3f} ms | {row.bound * 1e3:.3f} ms | {run.makespan / row.bound:.3f} | "
            f"{run.memory / 1e6:,.0f} MB |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print weak and strong scaling."""
    parser = argparse.ArgumentParser(description="Scaling over simulated meshes.")
    parser.add_argument("--simulate", default="8,64,512,1000", metavar="N,N", help="the numbers of devices")
    parser.add_argument("--noise", type=float, default=0.0, help="standard deviation of steps' times, relative")
    parser.add_argument("--seed", type=int, default=0, help="of the noise")
    given = parser.parse_args()
    sizes = [int(text) for text in given.simulate.split(",")]
    weak = [scaled(size, ROWS, given.noise, given.seed) for size in sizes]
    print(table(f"Weak scaling, {ROWS} rows a machine", weak), end="\n\n")
    strong = [scaled(size, max(1, STRONG * ROWS * MACHINE // size), given.noise, given.seed) for size in sizes]
    print(table(f"Strong scaling, {STRONG * ROWS} rows", strong))


if __name__ == "__main__":
    main()
