"""Measures the forms of GPU kernels on this machine's device while compiling, for `--option tune=measure`.

    built, several forms of each kernel → an artifact in memory → `runtime/tuning.py` on a device of every family with
    such kernels → built with the fastest forms only, and the tunings in the job's folder
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from motet.artifact.candidates import Grid, pruned, read_index, with_grids
from motet.artifact.reader import Artifact
from motet.artifact.tunings import parse_tunings
from motet.artifact.writer import write_artifact
from motet.compiler.job import TUNINGS
from motet.compiler.pipeline import Built, Progress
from motet.compiler.tuning.candidates import Candidates
from motet.compiler.tuning.inputs import parse_inputs, region_symbols
from motet.errors import DeviceError
from motet.runtime.device import DeviceInfo, open_device, probe
from motet.runtime.tuning import Verdict, tune_kernels

_log = logging.getLogger("motet")


def tune_kernels_here(built: Built, tunings: bytes, inputs: str, folder: Path, progress: Progress) -> Built:
    """`built` with the forms that are fastest on this machine's devices. Measurements are added to the known `tunings`;
    `inputs` are shapes for functions with dynamic extents, whose kernels are otherwise unchanged. Raises DeviceError if
    there is no device for kernels with several forms."""
    trial = folder / "tuning.motet"
    artifact = write_artifact(built.manifest, built.members, built.parameters, trial)
    found: list[Verdict] = []
    given = parse_inputs(inputs) if inputs else {}
    known = [each for each in built.manifest.functions if not each.symbols or each.name in given or "" in given]
    symbols = region_symbols(structs.replace(built.manifest, functions=known), given)
    for family in dict.fromkeys(kernel.family for kernel in read_index(artifact)):
        found += _on_device(artifact, family, symbols, progress)
    for verdict in found:
        if verdict.skipped:
            _log.warning("kernel %s is not measured: %s; give them with tune-inputs", verdict.kernel.kernel,
                         verdict.skipped)
    measured = [verdict.tuning for verdict in found if not verdict.skipped]
    (folder / TUNINGS).write_bytes(parse_tunings(tunings, "tunings").merged(measured).encode())
    return _chosen(built, artifact, found)


def _on_device(
    artifact: Artifact, family: str, symbols: Mapping[str, Mapping[str, int]], progress: Progress
) -> list[Verdict]:
    device = open_device(_first(family))
    try:
        return tune_kernels(artifact, device, symbols, lambda what, part: progress(what, 0.85 + 0.05 * part))
    finally:
        device.close()


def _first(family: str) -> DeviceInfo:
    infos = probe(family)
    found = next((info for info in infos if info.available), None)
    if found is None:
        why = next((f" ({info.reason})" for info in infos if info.reason), "")
        raise DeviceError(f"option tune=measure: no device of {family} is here{why}; compile with tune=candidates, and "
                          "choose where one is, with motet tune")
    return found


def _chosen(built: Built, artifact: Artifact, verdicts: list[Verdict]) -> Built:
    manifest, members, parameters = pruned(
        artifact, {(v.kernel.family, v.kernel.target, v.kernel.kernel): v.chosen for v in verdicts}
    )
    schedules: dict[str, Candidates] = {}
    for target, functions in built.candidates.items():
        grids = {
            v.kernel.kernel: Grid(v.kernel.candidates[v.taken].tasks, tuple(v.kernel.symbols))
            for v in verdicts if v.kernel.target == target
        }
        schedules[target] = {
            function: {label: with_grids(schedule, grids) for label, schedule in each.items()}
            for function, each in functions.items()
        }
    return Built(manifest, {name: bytes(data) for name, data in members.items()}, parameters, schedules)
