"""Compiles programs in this process, without workers and without the cache: what crashes takes this process along."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tests.prepared import load_source

from motet import cpu_features
from motet.artifact.reader import Artifact
from motet.artifact.writer import write_artifact
from motet.compiler import frontends, pipeline
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.shardings import parse_mesh
from motet.compiler.placement.place import Place
from motet.compiler.sharding.requests import parse_request
from motet.compiler.sharding.shard import Shard
from motet.compiler.targets.device_flags import parse_device_flags
from motet.compiler.targets.families import resolve_target
from motet.errors import CompileError
from motet.runtime import load
from motet.runtime.session import Session

OPENCL = "opencl:"  # before the name of a target of OpenCL devices


@dataclass(frozen=True)
class Options:
    """How a program is compiled and run: for one processor level, as a whole or, where `other` is a family of devices,
    with operators of odd numbers on a device of that."""

    target: str = "x86-64-v3"
    other: str = ""
    threads: int = 1


def compile_program(source: str | bytes, format: str, options: Options) -> Artifact:
    """The artifact of a program. Raises MotetError where it is refused."""
    devices = ("a=host", f"b={options.other}") if options.other else ()
    if options.target.startswith(OPENCL):
        devices = (f"cpu=opencl{{cpu={options.target.removeprefix(OPENCL)}}}",)
    has_odd = isinstance(source, bytes) and b"_node1" in source
    places = (("*_node[13579]", "b"),) if options.other and has_odd else ()
    targets = [options.target, *([f"null:{options.target}"] if options.other == "null" else [])]
    try:
        program = load_source(source, "fuzz", format, Place(parse_device_flags(devices), False, places))
        context = program.module.context
        context.enable_multithreading(False)
        context.allow_unregistered_dialects = True
        with context, ir.Location.unknown():
            built = pipeline.build(program, list(map(resolve_target, targets)), 1, lambda what, fraction: None)
    except ir.MLIRError as error:
        raise _said(error) from error
    return write_artifact(built.manifest, built.members, built.parameters)


def compile_placed(source: bytes, flags: Sequence[str], places: Sequence[tuple[str, str]]) -> Artifact:
    """The artifact of an ONNX model whose nodes run on devices by name, for this machine and for null devices. Raises
    MotetError."""
    target = available_targets()[-1]
    try:
        program = load_source(source, "fuzz", "onnx", Place(parse_device_flags(flags), False, tuple(places)))
        context = program.module.context
        context.enable_multithreading(False)
        with context, ir.Location.unknown():
            targets = [resolve_target(target), resolve_target(f"null:{target}")]
            built = pipeline.build(program, targets, 1, lambda what, fraction: None)
    except ir.MLIRError as error:
        raise _said(error) from error
    return write_artifact(built.manifest, built.members, built.parameters)


def compile_sharded(source: str | bytes, format: str, mesh: str, shards: Sequence[str]) -> Artifact:
    """The artifact of a program divided over a mesh by flags, for this machine. Raises MotetError."""
    try:
        program = frontends.load_source(source, "fuzz", format)
        context = program.module.context
        context.enable_multithreading(False)
        context.allow_unregistered_dialects = True
        with context, ir.Location.unknown():
            shard = Shard(parse_mesh(mesh), tuple(map(parse_request, shards)))
            pipeline.prepare(program, Place((), automatic=False), shard)
            built = pipeline.build(program, [resolve_target(available_targets()[-1])], 1, lambda what, fraction: None)
    except ir.MLIRError as error:
        raise _said(error) from error
    return write_artifact(built.manifest, built.members, built.parameters)


def _said(error: ir.MLIRError) -> CompileError:
    """As the compiler's own worker says it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return CompileError(next((line for line in lines if "error:" in line), lines[-1]))


def load_program(artifact: Artifact, options: Options) -> Session:
    bindings = {"a": "host", "b": "host/1" if options.other == "host" else "null"} if options.other else None
    if options.target.startswith(OPENCL):
        return load(artifact, devices={"cpu": os.environ.get("MOTET_FUZZ_OPENCL", "opencl:1")})
    return load(artifact, threads=options.threads, devices=bindings)


def available_targets() -> Sequence[str]:
    """The processor levels that this machine can run."""
    features = cpu_features.host_features()
    found = ["x86-64-v3"]
    return [*found, "x86-64-v4"] if "avx512vl" in features else found
