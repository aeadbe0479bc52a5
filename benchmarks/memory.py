"""The memory of intermediate tensors with and without planning: `python -m benchmarks.memory`.

For each network: the arena as compiled; the arena for sequential commands; the most bytes in use at the same time in
that case, a lower bound for all plans; the size reached by an allocator that gives each tensor, command by command, the
smallest free block that fits, and frees it after its last use; and the sum of all intermediate tensors. `pairs` is the
number of pairs of commands that may run concurrently. No network is run.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from examples import models

import motet
from motet.artifact.schema import Schedule
from motet.graphs.order import bit_set, close_order

NETWORKS = ("resnet18", "resnet50", "mobilenet_v2", "inception_v3", "unet", "encoder", "gpt2_block", "bert")
_ALIGNMENT = 64


@dataclass(frozen=True)
class Tensor:
    """An intermediate tensor: aligned bytes, and the first and last command that use it."""

    bytes: int
    first: int
    last: int


def tensors_of(schedule: Schedule) -> list[Tensor]:
    """The buffers in the arena of a schedule with static extents."""
    uses: dict[int, list[int]] = {}
    for number, command in enumerate(schedule.commands):
        for buffer in command.buffers:
            uses.setdefault(buffer, []).append(number)
    found: list[Tensor] = []
    for index, buffer in enumerate(schedule.buffers):
        if buffer.kind == "arena" and isinstance(buffer.bytes, int):
            size = -(-buffer.bytes // _ALIGNMENT) * _ALIGNMENT
            found.append(Tensor(size, min(uses[index]), max(uses[index])))
    return found


def best_fit(tensors: Sequence[Tensor]) -> int:
    """The size that an online allocator reaches: best fit, with neighbouring free blocks merged."""
    free: dict[int, int] = {}  # blocks by their start
    place: dict[Tensor, list[int]] = {}
    top = 0
    for moment in range(1 + max((tensor.last for tensor in tensors), default=-1)):
        for tensor in tensors:
            if tensor.first == moment and tensor.bytes:
                fitting = [begin for begin, size in free.items() if size >= tensor.bytes]
                if fitting:
                    begin = min(fitting, key=lambda b: (free[b], b))
                    size = free.pop(begin)
                    if size > tensor.bytes:
                        free[begin + tensor.bytes] = size - tensor.bytes
                else:
                    begin, top = top, top + tensor.bytes
                place.setdefault(tensor, []).append(begin)
        for tensor in tensors:
            if tensor.last == moment and tensor.bytes:
                _give_back(free, place[tensor].pop(), tensor.bytes)
    return top


def _give_back(free: dict[int, int], begin: int, size: int) -> None:
    after = free.pop(begin + size, 0)
    before = next((b for b, s in free.items() if b + s == begin), None)
    if before is None:
        free[begin] = size + after
    else:
        free[before] += size + after


def concurrent_pairs(schedule: Schedule) -> int:
    closure = close_order([bit_set(command.after) for command in schedule.commands])
    return sum(number - earlier.bit_count() for number, earlier in enumerate(closure))


def row(name: str) -> str:
    """One row of the Markdown table."""
    schedule = motet.compile(models.MODELS[name]()).manifest.variants[0].schedules["main"]
    tensors = tensors_of(schedule)
    total = sum(tensor.bytes for tensor in tensors)
    sizes = [schedule.arena, schedule.serial, schedule.least, best_fit(tensors), total]
    shown = [f"{int(str(size)) / 2**20:.2f}" for size in sizes]
    ratio = int(str(schedule.arena)) / max(1, schedule.least or 0)
    return f"| {name} | {len(schedule.commands)} | {concurrent_pairs(schedule)} | {' | '.join(shown)} | {ratio:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="network")
    print("| network | commands | pairs | arena, MiB | serial | lower bound | best fit | sum | arena ÷ lower bound |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name in parser.parse_args().networks:
        print(row(name), flush=True)


if __name__ == "__main__":
    main()
