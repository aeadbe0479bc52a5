"""Writes schedules in the form that `parsing.py` reads."""

from __future__ import annotations

import json

from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.loop_names import main_stage, stage_name
from motet.compiler.kernels.schedule import KernelSchedule, Nest, NestCopy, NestLoop, NestSchedule, encode_schedule
from motet.compiler.schedule_text.plain import Plain


def format_schedule(schedule: KernelSchedule, kernel: Kernel) -> str:
    """`schedule` of `kernel` as one line of text: the declarative form for nests, else the fields of its class."""
    return plain_text(schedule_mapping(schedule, kernel)) if isinstance(schedule, NestSchedule) else json.dumps(
        encode_schedule(schedule)
    )


def schedule_mapping(schedule: KernelSchedule, kernel: Kernel) -> dict[str, Plain]:
    """`schedule` as a mapping of text, numbers and None for flags, which JSON and YAML can write."""
    if not isinstance(schedule, NestSchedule):
        return encode_schedule(schedule)
    main = main_stage(kernel)
    found: dict[str, Plain] = {}
    for each in schedule.nests:
        if each.stage == main:
            found |= _nest(each.nest, "")
    for each in schedule.nests:
        if each.stage != main:
            found[stage_name(each.stage)] = _nest(each.nest, "")
    for each in schedule.fused:
        found[stage_name(each.stage)] = {"fuse": each.at}
    return found


def _nest(nest: Nest, part_of: str) -> dict[str, Plain]:
    loops = nest.loops
    if part_of and loops and loops[0] == NestLoop(part_of) and len(loops) > 1:
        loops = loops[1:]
    found: dict[str, Plain] = {loop.label: _flags(loop) for loop in loops}
    for copies, kind in ((nest.packs, "pack"), (nest.buffers, "buffer")):
        for copy in copies:
            entry = found.setdefault(copy.value, {})
            assert isinstance(entry, dict)
            entry[kind] = _copy(copy)
    for region in nest.regions:
        end = "" if region.end is None else region.end
        found[f"{region.dim}[{region.begin}:{end}]"] = _nest(region.nest, region.dim)
    return found


def _flags(loop: NestLoop) -> dict[str, Plain]:
    found: dict[str, Plain] = {}
    if loop.parallel:
        found["parallelize"] = None
    if loop.split_reduction:
        found["split_reduction"] = None
    if loop.vectorize:
        found["vectorize"] = None
    if loop.unroll is not None:
        found["unroll"] = loop.unroll or None
    if loop.tensorize:
        found["tensorize"] = loop.tensorize
    return found


def _copy(copy: NestCopy) -> Plain:
    return {"at": copy.at, "padding": copy.padding} if copy.padding else copy.at


def plain_text(value: Plain) -> str:
    """YAML in flow style; a key whose value is None stands alone."""
    if not isinstance(value, dict):
        return json.dumps(value)
    entries = (json.dumps(key) + ("" if each is None else f": {plain_text(each)}") for key, each in value.items())
    return "{" + ", ".join(entries) + "}"
