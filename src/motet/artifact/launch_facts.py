"""The resources of launches on GPUs, as compilers reported them: registers, spills, shared memory, largest blocks."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import msgspec

from motet.artifact.gpu_limits import gpu_limits
from motet.artifact.launch import Launch, Native
from motet.artifact.reader import Artifact
from motet.artifact.schema import Variant
from motet.decoding import decode_json

INTEL = "intel"  # the family
INTEL_UNITS = {
    "registers": "registers of a sub-group", "register_bytes": "bytes of a register",
    "spilled_registers": "registers of a sub-group", "spilled_bytes": "bytes of a sub-group",
    "max_work_group": "work-items", "matrix_engine": "is used",
}
_BINARIES = (".cubin", ".ptx", ".hsaco")


def launch_facts(artifact: Artifact, variant: Variant) -> list[dict[str, Any]]:
    """The resources of each launch of a GPU's kernels; empty for other devices. `spills` are bytes per thread,
    `max_threads` is the largest block that the registers of an SM can hold;
    Intel's have others (`INTEL_UNITS`)."""
    if variant.family == INTEL:
        return _intel_facts(artifact, variant)
    limits = gpu_limits(variant.family, variant.target)
    facts: list[dict[str, Any]] = []
    for name in variant.objects:
        path = PurePosixPath(name)
        if path.suffix not in _BINARIES or limits is None:
            continue
        described: dict[str, Any] = msgspec.json.decode(artifact.member(str(path.with_suffix(".json"))))
        facts.append({
            "launch": path.stem,
            "binary": path.suffix[1:],
            "threads": described.get("threads") or described["warps"] * limits.warp,
            "max_threads": limits.most_threads(described["registers"]),
            **{key: described[key] for key in ("registers", "spills", "shared", "scratch")},
            **({"library": described["library"]} if described.get("library") else {}),
        })
    return facts


def _intel_facts(artifact: Artifact, variant: Variant) -> list[dict[str, Any]]:
    """The resources of each tile program of a variant for Intel's GPUs."""
    facts: list[dict[str, Any]] = []
    for name in variant.objects:
        path = PurePosixPath(name)
        if path.suffix != ".json":
            continue
        launch = decode_json(artifact.member(name), Launch)
        facts.append({
            "launch": launch.kernel,
            "binary": "spv" if launch.native is None else "zebin",
            "work_items": launch.warps * launch.sub_group,
            "sub_group": launch.sub_group,
            "local_bytes": launch.shared,
            **({} if launch.native is None else {"native": _native(launch.native)}),
        })
    return facts


def _native(native: Native) -> dict[str, Any]:
    return {
        "device": native.device, "compiler": native.compiler, "flags": native.flags,
        **{
            name: {"value": getattr(native, name), "unit": unit, "source": native.sources.get(name, "not stated")}
            for name, unit in INTEL_UNITS.items()
        },
        "retries": msgspec.to_builtins(native.retries),
        "passed_over": None if native.passed_over is None else msgspec.to_builtins(native.passed_over),
    }
