"""Whether a stage may run inside the nest of another one, at a loop.

    C = A * B at i, j, k; D = max(C, 0)      D joins at i or j, where all of k has been added, not at k

The *host* is the stage with a nest whose values the fused stage reads (a consumer) or which reads those that it writes
(a producer), directly or through stages fused into the same host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from motet.compiler.kernels.kernel import Kernel, Stage
from motet.compiler.kernels.loop_names import stage_name
from motet.compiler.kernels.nested_stage import NestedStage, NestReason
from motet.compiler.kernels.schedule import NestFusion, NestSchedule


def fusion_hosts(kernel: Kernel, schedule: NestSchedule) -> dict[int, int]:
    """The host of each fused stage, by number; stages that have none are left out. A stage that joins several stages
    joins the last one before it, else the first one after it."""
    hosts = {each.stage: each.stage for each in schedule.nests}
    labels = {each.stage: each.at for each in schedule.fused}
    while True:
        found = {s: host for s in labels if s not in hosts for host in [_host(kernel, s, hosts)] if host is not None}
        if not found:
            return {s: hosts[s] for s in labels if s in hosts}
        hosts |= found


def _host(kernel: Kernel, s: int, hosts: dict[int, int]) -> int | None:
    before = [t for t in range(s) if t in hosts and _reads(kernel.stages[s], kernel.stages[t])]
    after = [t for t in range(s + 1, len(kernel.stages)) if t in hosts and _reads(kernel.stages[t], kernel.stages[s])]
    nearest = before[-1] if before else (after[0] if after else None)
    return None if nearest is None else hosts[nearest]


def _reads(reader: Stage, writer: Stage) -> bool:
    written = {access.value for access in writer.outputs}
    inits = [init.value for init in reader.inits if init is not None and not isinstance(init, float | int)]
    return any(value in written for value in (*(access.value for access in reader.inputs), *inits))


def fusion_reasons(kernel: Kernel, schedule: NestSchedule, nested: Sequence[NestedStage]) -> Iterator[NestReason]:
    """Why the fusions of `schedule`, whose nests are legal, are not."""
    hosts = fusion_hosts(kernel, schedule)
    by_number = {each.number: each for each in nested}
    for fusion in schedule.fused:
        host = hosts.get(fusion.stage)
        if host is None:
            legal = "a stage that reads or writes the values of one with a nest"
            yield NestReason("fuse", stage_name(fusion.stage), legal, "it is linked to no stage that has a nest")
            continue
        at = _place(by_number[host], fusion)
        if isinstance(at, NestReason):
            yield at
        elif fusion.stage > host:
            yield from _as_consumer(kernel, fusion, by_number[host], at, hosts)
        else:
            yield from _as_producer(kernel, fusion, host, hosts)


def _place(host: NestedStage, fusion: NestFusion) -> int | NestReason:
    """The position of the loop, around all parts and outside of vectors."""
    path = host.paths[0]
    body = next((n for n, loop in enumerate(path.loops) if loop.vectorize or loop.tensorize), len(path.loops))
    legal = [loop.label for loop in path.loops[:min(body, path.outside)]]
    position = path.position(fusion.at)
    if fusion.at not in legal or position is None:
        why = f"the nest of {stage_name(host.number)} has no loop {fusion.at} outside of vectors and parts"
        return NestReason("fuse", stage_name(fusion.stage), f"one of {', '.join(legal) or 'none'}", why)
    return position


def _as_consumer(
    kernel: Kernel, fusion: NestFusion, host: NestedStage, at: int, hosts: dict[int, int]
) -> Iterator[NestReason]:
    stage, name, loops = kernel.stages[fusion.stage], stage_name(fusion.stage), host.paths[0].loops
    around = {host.dims.index(loop.dim) for loop in loops[:at + 1] if host.size(loop.dim) != 1}
    legal = _complete(host)
    summed = [host.dims[d] for d in sorted(around) if host.stage.iterators[d] == "reduction"]
    if summed:
        why = f"at {fusion.at}, the sum along {', '.join(summed)} is not complete"
        yield NestReason("fuse", name, f"one of {legal}", why)
        return
    linked = _linked(host.stage, stage, around)
    if linked is None:
        why = f"it reads elements that other iterations of {fusion.at} write"
        yield NestReason("fuse", name, "a loop outside, or a nest", why)
    elif any(stage.iterators[d] == "reduction" for d in linked):
        why = f"one iteration of {fusion.at} has a part of the elements that it reduces"
        yield NestReason("fuse", name, "a loop outside, or a nest", why)
    for other in range(host.number + 1, fusion.stage):
        if hosts.get(other) != host.number and _reads(stage, kernel.stages[other]):
            why = f"it reads what {stage_name(other)} writes after {stage_name(host.number)}"
            yield NestReason("fuse", name, f"{stage_name(other)} fused as well, or a nest", why)


def _complete(host: NestedStage) -> str:
    """The loops outside all loops of reductions."""
    path = host.paths[0]
    labels: list[str] = []
    for loop in path.loops[:path.outside]:
        if host.stage.iterators[host.dims.index(loop.dim)] == "reduction" or loop.vectorize:
            break
        labels.append(loop.label)
    return ", ".join(labels) or "none: a reduction is outermost"


def _linked(host: Stage, stage: Stage, around: set[int]) -> set[int] | None:
    """The dimensions of `stage` that run together with the dimensions `around` of `host`; None if they do not."""
    linked: dict[int, int] = {}
    for output in host.outputs:
        for access in stage.inputs:
            if access.value != output.value:
                continue
            for reading, writing in zip(access.map, output.map, strict=True):
                moved = [d for d in writing.dims if d in around]
                if not moved:
                    continue
                mine = reading.single
                if writing.single is None or mine is None or access.padding is not None:
                    return None
                if stage.sizes[mine] != host.sizes[moved[0]] or linked.setdefault(moved[0], mine) != mine:
                    return None
    return set(linked.values()) if linked.keys() == around else None


def _as_producer(kernel: Kernel, fusion: NestFusion, host: int, hosts: dict[int, int]) -> Iterator[NestReason]:
    name = stage_name(fusion.stage)
    for output in kernel.stages[fusion.stage].outputs:
        if kernel.values[output.value].role != "temporary":
            yield NestReason("fuse", name, "a nest", "what it writes is a result of the kernel")
    for other in range(fusion.stage + 1, len(kernel.stages)):
        if other != host and hosts.get(other) != host and _reads(kernel.stages[other], kernel.stages[fusion.stage]):
            why = f"{stage_name(other)} also reads what it writes"
            yield NestReason("fuse", name, f"{stage_name(other)} fused into {stage_name(host)}, or a nest", why)
