"""Accepts a microkernel: compiles its code, and compares its results with those of its meaning.

    meaning, sizes  →  programs of larger extents, which the microkernel computes by tiles
                    →  random inputs, run on the device, in another process
                    →  results compared with the oracle's, upstream's lowering of the meaning
"""

from __future__ import annotations

import random
import secrets
import tempfile
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import msgspec

from motet.compiler.kernels.microkernel import MicroMeaning, meaning_of
from motet.compiler.kernels.microkernel_code import Microkernel
from motet.compiler.kernels.schedule import Nest, NestCopy, NestLoop, NestSchedule, StageNest
from motet.compiler.targets.cpu import CpuTarget
from motet.errors import MotetError, OptionError
from motet.lab.evaluation import validated, what
from motet.lab.measuring import MeasurePlan, Measurer
from motet.lab.microkernels.c_compiler import compile_c
from motet.lab.microkernels.definition import MicrokernelFile
from motet.lab.microkernels.of_artifact import of_artifact
from motet.lab.microkernels.programs import program_of
from motet.lab.subject import KernelSubject, compile_with, open_program, subject_of

_PROGRAMS = 2  # of random extents
_MOST = 40  # elements of a dimension of any extent


def accepted(file: MicrokernelFile, subject: KernelSubject) -> Microkernel:
    """The microkernel for the target and device of `subject`. Raises OptionError for code that does not compile or
    cannot be called, and for results that differ from those of its meaning."""
    target = subject.program.target
    if not isinstance(target, CpuTarget):
        raise OptionError(f"microkernel {file.path}: {target.family} devices have no loop nests; expected the host, "
                          "riscv or embedded")
    own = _own_target(subject, target)
    kernel = _compiled(file, own)
    seed = secrets.randbelow(1 << 16)
    with Measurer() as measurer:
        for number in range(_PROGRAMS):
            _check(file, kernel, subject, random.Random(seed + number), measurer)
    return msgspec.structs.replace(kernel, checked=f"{own.family}:{own.name}")


def _own_target(subject: KernelSubject, target: CpuTarget) -> CpuTarget:
    from motet.compiler.codegen.cpu.select import own_target

    return own_target(subject.kernel, target)


def _compiled(file: MicrokernelFile, target: CpuTarget) -> Microkernel:
    from motet.compiler.codegen.cpu.nest.microkernels import code_module

    if file.code.suffix == ".motet":
        return of_artifact(file, target)
    if file.code.suffix == ".c":
        language, code = compile_c(file.code, target, file.compiler, file.flags)
        if language == "assembly" and f"\n{file.symbol}:" not in f"\n{code}":
            raise OptionError(f"microkernel {file.path}: {file.code.name} does not define {file.symbol}; expected "
                              f"{declaration(file)}")
    else:
        language, code = "llvm", file.code.read_text(encoding="utf-8", errors="replace")
    kernel = Microkernel(
        file.name, file.meaning, file.dtypes, file.sizes, language, code, file.symbol,
        f"{target.family}:{target.name}" if language == "assembly" else "",
    )
    code_module("accepted", kernel)  # raises OptionError for LLVM IR that is not valid
    return kernel


def declaration(file: MicrokernelFile) -> str:
    """The function in C that the file's meaning calls for."""
    meaning = file.parsed
    pointers = [f"{'' if name == meaning.operands[-1] else 'const '}{_C_TYPES.get(dtype, 'void')} *{name}"
                for name, dtype in zip(meaning.operands, meaning.dtypes, strict=True)]
    strides = [f"int64_t {name}_{axis}" for name, access in zip(meaning.operands, meaning.accesses, strict=True)
               for axis in range(len(access.map) - 1)]
    extents = [f"int64_t {dim}" for dim in meaning.dims if dim not in file.sizes]
    return f"void {file.symbol}({', '.join([*pointers, *strides, *extents])})"


_C_TYPES = {
    "f32": "float", "f64": "double", "f16": "_Float16", "bf16": "__bf16", "i1": "_Bool", "i8": "int8_t",
    "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
}


# -- the comparison --------------------------------------------------------------------------------


def _check(
    file: MicrokernelFile, kernel: Microkernel, given: KernelSubject, draw: random.Random, measurer: Measurer
) -> None:
    """Compare the results of a program of random extents. Raises OptionError if they differ, or there are none."""
    meaning = meaning_of(kernel)
    extents = {dim: _extent(kernel.sizes.get(dim), draw) for dim in meaning.dims}
    shown = ", ".join(f"{dim} = {extent}" for dim, extent in extents.items())
    with tempfile.TemporaryDirectory(prefix="motet-microkernel-") as folder:
        path = Path(folder) / "meaning.mlir"
        path.write_text(program_of(meaning, extents))
        try:
            subject = subject_of(open_program(str(path), given.program.asked))
            schedule = _tiled(meaning, kernel, subject)
            artifact = compile_with(subject, schedule)
            plan = MeasurePlan(1, 1, 0.0, 1, seed=draw.randrange(1 << 20), threads=1)
            samples = measurer.measure(bytes(artifact.data), what(subject, artifact), plan)
            validated(subject, artifact, samples)
        except OptionError:
            raise
        except MotetError as error:
            raise OptionError(f"microkernel {file.path}: it is not {kernel.meaning}, for {shown}: {error}; expected "
                              f"{declaration(file) if kernel.interface == 'strided' else 'equal results'}") from None


def _extent(size: int | None, draw: random.Random) -> int:
    """An extent of several whole tiles and a part of one."""
    if size is None:
        return draw.randint(2, _MOST)
    return size * draw.randint(1, 3) + draw.randrange(size)


def _tiled(meaning: MicroMeaning, kernel: Microkernel, subject: KernelSubject) -> NestSchedule:
    """A legal schedule of `subject`, a program of the meaning, by tiles that the microkernel computes."""
    why: list[str] = []
    for schedule in _schedules(meaning, kernel, subject):
        reasons = subject.reasons(schedule)
        if not reasons:
            return schedule
        why += map(str, reasons)
    raise OptionError(f"microkernel {kernel.name}: it cannot be called: {why[-1] if why else 'it has no loops'}")


def _schedules(meaning: MicroMeaning, kernel: Microkernel, subject: KernelSubject) -> Iterator[NestSchedule]:
    """Nests with the loops inside in every order, without copies, then with copies of all operands. The dimensions of
    the program are those of the meaning, with names of the lab."""
    from motet.compiler.kernels.loop_names import loop_names
    from motet.compiler.kernels.microkernel import match_part

    names = loop_names(subject.kernel)
    stage = subject.kernel.stages[0]
    whole = {d: size if isinstance(size, int) else None for d, size in enumerate(stage.sizes)}
    free = read_free(kernel)
    found = match_part(free, stage, names.dims[0], whole)
    if isinstance(found, str):
        raise OptionError(f"microkernel {kernel.name}: the program of its meaning is another one: {found}")
    dims = {dim: names.dims[0][d] for dim, d in zip(meaning.dims, found.dims, strict=True)}
    outer = [NestLoop(dims[dim]) for dim in meaning.dims if dim in kernel.sizes]
    operands = [names.values[access.value] for access in stage.inputs]
    for packed in (False, True):
        for order in permutations(meaning.dims):
            inner = [NestLoop(dims[dim], kernel.sizes.get(dim)) for dim in order]
            inner[0] = msgspec.structs.replace(inner[0], tensorize=kernel.name)
            packs = [NestCopy(name, outer[-1].label) for name in operands] if packed and outer else []
            yield NestSchedule([StageNest(0, Nest([*outer, *inner], packs=packs))], microkernels=[kernel])


def read_free(kernel: Microkernel) -> MicroMeaning:
    """The meaning of `kernel` without fixed extents."""
    return meaning_of(msgspec.structs.replace(kernel, sizes={}))
