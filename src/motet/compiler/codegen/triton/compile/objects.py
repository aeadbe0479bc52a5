"""Compiles Triton programs to machine code in another process, and makes the members of an artifact that hold it.

For every program `S` of a target: `executables/FAMILY/TARGET/S.cubin` (`.ptx`, `.hsaco`), the launch metadata in
`S.json`, and the source in `S.py`, which is not needed to run the program.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from motet.artifact.candidates import FormCandidate, Tunable
from motet.artifact.launch import Launch
from motet.compiler.codegen.triton.compile.compile_cache import find, keep
from motet.compiler.codegen.triton.compile.installation import require_intel
from motet.compiler.codegen.triton.compile.process import Pending, begin, keep_failed, worker_crash
from motet.compiler.codegen.triton.compile.worker import Made, ProgramUnit, Request
from motet.compiler.codegen.triton.text.program import TritonProgram
from motet.compiler.targets.gpu import GpuTarget
from motet.errors import CompileError, OptionError

SPIRV = "spv"
TRITON = "3.9"  # the version that programs are written for, as in `pyproject.toml`


def require_triton(target: GpuTarget) -> None:
    """Raises OptionError if Triton is not installed, or has another version than the programs are written for."""
    if target.xpu is not None:
        require_intel(target)
        return
    made_by = f"device {target.family}: code for {target.name} is made by Triton"
    if importlib.util.find_spec("triton") is None:
        raise OptionError(f"{made_by}, which is not installed; pip install 'motet[gpu]', or leave the device out")
    version = _triton_version()
    if not version.startswith(f"{TRITON}."):
        raise OptionError(
            f"{made_by} {TRITON}; {version or 'an unknown version'} is installed; pip install 'motet[gpu]', or compile "
            "where that is, with tune=candidates to choose on this machine with motet tune"
        )


def _triton_version() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""


@dataclass(frozen=True)
class Begun:
    """Programs that another process compiles: `pending`, and those `found` in the cache. With `keeps`, the results are
    cached."""

    programs: Sequence[TritonProgram]
    request: Request
    found: Mapping[int, list[Made]]
    pending: Pending | None
    keeps: bool

    def result(self) -> list[list[Made]]:
        """Each program in the first of its forms that fit the target. Raises CompileError and WorkerCrash."""
        request = self.request
        target = request.target
        missing = [number for number in range(len(self.programs)) if number not in self.found]
        fresh = dict(zip(missing, self.pending.result() if self.pending is not None else [], strict=True))
        if self.keeps:
            keep(request, fresh)
        made = [self.found[number] if number in self.found else fresh[number] for number in range(len(self.programs))]
        for number, (program, (first, *_)) in enumerate(zip(self.programs, made, strict=True)):
            if first.died:
                raise worker_crash(program.symbol, Request(target, [request.programs[number]], 1), first.error)
            if first.error:
                raise CompileError(
                    f"kernel {program.symbol}: no code for {target.family} {target.name}: {first.error}"
                    f"{keep_failed(first)}"
                )
        return made


def begin_programs(
    programs: Sequence[TritonProgram], target: GpuTarget, jobs: int, most: int = 1, keeps: bool = False
) -> Begun:
    """Start to compile each program in the first of its forms that fit the target, at least one and at most `most`;
    with `keeps`, use the cache (`compile_cache.py`). Raises OptionError if Triton is not installed."""
    require_triton(target)
    units = [
        [
            ProgramUnit(
                program.symbol, form.source, program.buffers, program.sizes, form.warps, form.stages, form.blocks,
                form.early,
            )
            for form in program.forms
        ]
        for program in programs
    ]
    request = Request(target, units, jobs, most)
    found = find(request) if keeps else {}
    missing = [forms for number, forms in enumerate(units) if number not in found]
    pending = begin(Request(target, missing, jobs, most)) if missing else None
    return Begun(programs, request, found, pending, keeps)


def compile_programs(
    programs: Sequence[TritonProgram], target: GpuTarget, jobs: int, most: int = 1
) -> list[list[Made]]:
    """Compile programs and wait for the result; see `begin_programs`."""
    return begin_programs(programs, target, jobs, most).result() if programs else []


def members_of(program: TritonProgram, made: Made, target: GpuTarget, name: str = "") -> dict[str, bytes]:
    """The binary, its description and the source, by their paths in the artifact; `name` names the kernel if not its
    symbol."""
    form = program.forms[made.form]
    name = name or program.symbol
    launch = Launch(
        name, made.entry, made.warps, form.blocks, made.shared, made.scratch, made.registers, made.spills,
        len(program.buffers), list(program.sizes), made.waits,
        None if program.call is None else msgspec.to_builtins(program.call), 0, made.sub_group, made.native,
    )
    path = f"executables/{target.family}/{target.name}/{name}"
    spirv = {f"{path}.{SPIRV}": made.spirv} if made.spirv else {}
    return {
        f"{path}.{target.binary}": made.code,
        f"{path}.json": msgspec.json.format(msgspec.json.encode(launch), indent=2),
        **spirv,
        f"{path}.py": form.source.encode(),
    }


def objects_of(members: Mapping[str, bytes]) -> list[str]:
    """Those of a program's `members` that a driver loads: all except the source."""
    return [name for name in members if not name.endswith(".py")]


def tunable_of(
    program: TritonProgram, made: Sequence[Made], members: Sequence[list[str]], target: GpuTarget
) -> Tunable:
    """The forms of a program in an artifact, whose members are `members`, from which a machine can choose."""
    names = [program.symbol, *(f"{program.symbol}.{number}" for number in range(1, len(made)))]
    forms = [program.forms[each.form] for each in made]
    return Tunable(
        target.family, target.name, program.symbol, program.key, program.about,
        [
            FormCandidate(form.label, name, form.tasks, own) for form, name,
            own in zip(forms, names, members, strict=True)
        ],
        list(program.symbols), program.library,
    )


def chosen(program: TritonProgram, made: Made) -> TritonProgram:
    """`program` with only the form that was chosen."""
    return replace(program, forms=(program.forms[made.form],))
