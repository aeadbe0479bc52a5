"""Programs generated for a GPU and run by Triton's interpreter, without a GPU."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - numpy learns the names of short floats
import numpy as np
from tests.prepared import load_mlir
from tests.unit.compiler.building import run_oracle_text

from motet.artifact.dtypes import DTYPES
from motet.artifact.expressions import evaluate
from motet.artifact.reader import Artifact
from motet.artifact.schema import STATUS_BYTES, Schedule
from motet.compiler import pipeline
from motet.compiler.build.parameters import pack_parameters
from motet.compiler.build.partitioning import fuse_program, partition
from motet.compiler.build.variant import compile_kernels
from motet.compiler.codegen.backends import backend_of
from motet.compiler.codegen.triton.text.program import Form, TritonCode, TritonProgram
from motet.compiler.codegen.triton.text.scalars import pointer_type
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.scheduling.schedule import ParameterStore, schedule_function
from motet.compiler.scheduling.signatures import function_shapes, read_signature
from motet.compiler.targets.families import resolve_target
from motet.compiler.targets.gpu import GpuTarget
from motet.errors import CallError
from motet.runtime.checks import Statuses

GUARD = 256  # bytes around every memory that nothing may touch
FILLING = 0xA5
SM_90A = resolve_target("cuda:sm_90a")


@dataclass
class Generated:
    """A function's schedule and programs for one target."""

    schedule: Schedule
    signature: Any
    programs: dict[str, TritonProgram]
    kinds: list[str]
    parameters: list[np.ndarray] = field(default_factory=list)


def generate(text: str, target: GpuTarget = SM_90A, function: str = "main") -> Generated:
    program = load_mlir(text, "test.mlir")
    with program.module.context, ir.Location.unknown():
        pipeline.normalise(program)
        fuse_program(program, [target])
        kernels = partition(program)
        functions = public_functions(program.module)
        compiled = compile_kernels(functions, kernels, backend_of(target))
        entry = next(one for one in functions if symbol_name(one) == function)
        shapes = function_shapes(entry, kernels.functions)
        store = ParameterStore(program.parameters)
        schedule = schedule_function(entry, shapes, compiled, store)
        arrays, entries = pack_parameters(store)
        signature = read_signature(entry, shapes)
    codes = [one.code for one in compiled.values() if isinstance(one.code, TritonCode)]
    programs = {program.symbol: program for code in codes for program in code.programs}
    return Generated(schedule, signature, programs, [code.kind for code in codes], [arrays[e.key] for e in entries])


@cache
def server() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("interpreting.py"))], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env={**os.environ, "TRITON_INTERPRET": "1"},
    )


def interpret(made: Generated, inputs: Sequence[np.ndarray], form: int = 0) -> list[np.ndarray]:
    """The function's results; fails where something outside its memories was written, and where a check did."""
    results, failure = interpret_checked(made, inputs, form)
    assert failure is None, failure
    return results


def interpret_checked(
    made: Generated, inputs: Sequence[np.ndarray], form: int = 0
) -> tuple[list[np.ndarray], CallError | None]:
    """The function's results, and the error of the call, if a check failed; fails where something outside its memories
    was written."""
    signature, schedule = made.signature, made.schedule
    symbols = {symbol.name: inputs[symbol.input].shape[symbol.axis] for symbol in signature.symbols}
    shapes = [tuple(evaluate(size, symbols) for size in spec.shape) for spec in signature.results]
    results = [np.empty(shape, DTYPES[spec.dtype]) for shape, spec in zip(shapes, signature.results, strict=True)]
    arena = evaluate(schedule.arena, symbols)
    contents = [*map(guarded, inputs), *map(guarded, results), *map(guarded, made.parameters),
                guarded(np.full(arena, FILLING, np.uint8))]
    statuses = Statuses("main", schedule.checks, 0)
    contents.append(guarded(np.zeros(statuses.bytes, np.uint8)))
    base = {"input": 0, "result": len(inputs), "parameter": len(inputs) + len(results)}
    base["arena"] = base["parameter"] + len(made.parameters)
    launches: list[Any] = []
    for command in schedule.commands:
        if command.op == "copy":
            places = [schedule.buffers[index] for index in command.buffers]
            ends = [(base[place.kind] + place.index, GUARD + evaluate(place.offset, symbols)) for place in places]
            launches.append((ends, evaluate(places[0].bytes, symbols)))
            continue
        program = made.programs[command.kernel]
        forms = program.forms if form else [each for each in program.forms if "gluon" not in each.source]
        chosen = forms[min(form, len(forms) - 1)]  # Gluon has no interpreter
        places = [schedule.buffers[index] for index in command.buffers]
        buffers = [
            (len(contents) - 1, GUARD + STATUS_BYTES * place.index, dtype) if place.kind == "status" else
            (base[place.kind] + place.index, GUARD + evaluate(place.offset, symbols), dtype)
            for place, dtype in zip(places, program.buffers, strict=True)
        ]
        sizes = [evaluate(size, symbols) for size in command.sizes]
        own = dict(zip(program.symbols, sizes, strict=True)) if form else symbols
        tasks = evaluate(chosen.tasks if form else command.tasks, own)
        launches.append((chosen.source, program.symbol, tasks, buffers, sizes))
    worker = server()
    assert worker.stdin is not None and worker.stdout is not None
    pickle.dump({"memories": contents, "launches": launches}, worker.stdin)
    worker.stdin.flush()
    answer = pickle.load(worker.stdout)
    assert not isinstance(answer, str), answer
    for before, after in zip(contents, answer, strict=True):
        assert np.array_equal(before[:GUARD], after[:GUARD]) and np.array_equal(before[-GUARD:], after[-GUARD:])
    for before, after in zip(contents[: len(inputs)], answer, strict=False):
        assert np.array_equal(before, after), "an input was written to"
    first = base["result"]
    made_results = [
        answer[first + k][GUARD:-GUARD].view(result.dtype).reshape(result.shape) for k, result in enumerate(results)
    ]
    return made_results, statuses.failure_of(answer[-1][GUARD:-GUARD].tobytes())


def guarded(array: np.ndarray) -> np.ndarray:
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    border = np.full(GUARD, FILLING, np.uint8)
    return np.concatenate([border, content, border])


def check(
    text: str, inputs: Sequence[np.ndarray], tolerance: float = 1e-5, form: int = 0, target: GpuTarget = SM_90A
) -> Generated:
    """Fails unless the interpreted programs agree with upstream's naive lowering."""
    made = generate(text, target)
    for got, wanted in zip(interpret(made, inputs, form), run_oracle_text(text, "main", list(inputs)), strict=True):
        if wanted.dtype.kind in "iub":
            np.testing.assert_array_equal(got, wanted)
        else:
            np.testing.assert_allclose(got.astype("f8"), wanted.astype("f8"), rtol=tolerance, atol=tolerance)
    return made


def random(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    generator = np.random.default_rng(seed + sum(shape))
    if np.dtype(dtype).kind in "iu":
        return generator.integers(-8, 8, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def of_artifact(artifact: Artifact, function: str = "main") -> Generated:
    """What an artifact for one GPU target holds of a function that is one region."""
    variant = artifact.manifest.variants[0]
    names = [name for name in variant.schedules if name.startswith(function)]
    assert len(names) == 1
    programs: dict[str, TritonProgram] = {}
    for name in variant.objects:
        if not name.endswith(".json"):
            continue
        launch = json.loads(bytes(artifact.member(name)))
        source = bytes(artifact.member(f"{name.removesuffix('.json')}.py")).decode()
        dtypes = re.findall(r"^v\d+: \w+ (?:[^ ,]*x)?(\w+)(?:,.*)?$", source, re.MULTILINE)
        buffers = tuple(map(pointer_type, dtypes))
        assert len(buffers) == launch["buffers"]
        forms = (Form(source, 0, launch["warps"]),)
        programs[launch["kernel"]] = TritonProgram(launch["kernel"], buffers, tuple(launch["sizes"]), forms)
    parameters = list(map(artifact.parameter, range(len(artifact.manifest.parameters))))
    signatures = artifact.manifest.regions or {one.name: one for one in artifact.manifest.functions}
    kinds = [kernel.kind for kernel in variant.kernels]
    return Generated(variant.schedules[names[0]], signatures[names[0]], programs, kinds, parameters)
