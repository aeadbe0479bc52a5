"""Compiles Triton programs to machine code, in a process that loads Triton, whose LLVM differs from MLIR's, but not
MLIR (`serving.py`). Needs neither a GPU nor its driver.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from motet.artifact.launch import Native, PassedOver
from motet.compiler.codegen.gpu import cubin
from motet.compiler.codegen.gpu.cubin import Resources
from motet.compiler.codegen.triton.compile import clusters, hsaco, ocloc, xpu
from motet.compiler.codegen.triton.compile import programmatic_launch as dependent
from motet.compiler.codegen.triton.compile.compiling import Stages, compile_source
from motet.compiler.codegen.triton.compile.fences import fences_itself
from motet.compiler.codegen.triton.compile.native_code import FLAGS, SPILL_THRESHOLD, OutOfResources, make_native
from motet.compiler.targets.gpu import GpuTarget

# Functions of libdevice that are inaccurate if subnormal numbers are flushed to 0, which speeds up the others.
_CAREFUL = re.compile(r"\blibdevice\.(?:pow|atan2|fmod)\(")
_WARM = """
import triton
import triton.language as tl

@triton.jit
def warm(v0, v1):
    o = tl.program_id(0) * 128 + tl.arange(0, 128)
    tl.store(v1 + o, tl.exp(tl.load(v0 + o)) / tl.max(tl.load(v0 + o), 0), mask=o < 1000)
"""


class ProgramUnit(msgspec.Struct, frozen=True):
    """One form of a program: see `program.TritonProgram` and `program.Form`."""

    symbol: str
    source: str
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]
    warps: int
    stages: int
    blocks: int = 1
    early: bool = True


class Request(msgspec.Struct, frozen=True):
    """The forms of every program, in order of preference, and how many of them are requested: `most`."""

    target: GpuTarget
    programs: list[list[ProgramUnit]]
    jobs: int
    most: int = 1


class Made(msgspec.Struct, frozen=True):
    """The result for a program: the form, its binary and the launch metadata; or `error`. `warps` is the number of
    warps of a launch, which may be more than the form requests. `waits` means that the kernel itself waits for its
    predecessors (`programmatic_launch.py`). For Intel's GPUs, `code` is a zebin and `spirv` what it was made from, in
    sub-groups of `sub_group` work-items."""

    form: int = 0
    warps: int = 0
    code: bytes = b""
    assembly: str = ""
    entry: str = ""
    shared: int = 0
    scratch: int = 0
    registers: int = 0
    spills: int = 0
    waits: bool = False
    error: str = ""
    died: bool = False  # of the process that compiled it
    spirv: bytes = b""
    sub_group: int = 0
    native: Native | None = None
    reproduce: str = ""  # the command that repeats a failure of Intel's offline compiler with the file `spirv`

    @property
    def spilling(self) -> int:
        """The bytes spilled, 0 if so few that another form is not worth trying."""
        few = self.native is not None and self.native.spilled_registers <= SPILL_THRESHOLD
        return 0 if few else self.spills


def prepare(target: GpuTarget) -> None:
    """Load Triton, and compile a first program, so that all modules that this needs are loaded."""
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
    os.environ["MLIR_DISABLE_MULTITHREADING"] = "1"  # for one function, threads cost a third more work and save no time
    os.environ.pop("TRITON_INTERPRET", None)
    if target.xpu is not None:
        xpu.use_table_of_devices()
        if target.xpu.block_loads:
            ocloc.has_block_loads(target.xpu.device)  # forks of this process know it then
    with tempfile.TemporaryDirectory(prefix="motet-triton-") as folder:
        compile_form(ProgramUnit("warm", _WARM, ("fp32", "fp32"), (), 1, 1), target, Path(folder), 0)


def _can_wait(target: GpuTarget) -> bool:
    architecture = target.architecture
    new = isinstance(architecture, int) and architecture >= dependent.OLDEST
    return new and target.is_cuda and target.binary == "cubin"


def _change_stages(blocks: int, *given: Any) -> tuple[str, str] | None:
    """Change Triton's compiler to make machine code from PTX in which kernels wait, in clusters of `blocks`. Triton
    calls this first for a cache key, then with its stages by name."""
    if not given:
        return "waiting", "waiting"
    stages: dict[str, Any] = given[1]
    make = stages["ptx"]

    def changed(source: Any, metadata: dict[str, Any]) -> str:
        text = str(make(source, metadata))
        text = dependent.waiting(text) or text
        return clusters.clustered(text, blocks) if blocks > 1 else text

    stages["ptx"] = changed
    return None


def compile_form(unit: ProgramUnit, target: GpuTarget, folder: Path, number: int) -> Made:
    """Compile `unit`, form `number` of its program; `folder` is for its source."""
    if target.xpu is not None:
        return _compile_for_xpu(unit, target, folder, number)
    from triton import knobs
    from triton.backends.compiler import GPUTarget

    hook: Any = functools.partial(_change_stages, unit.blocks) if unit.early and _can_wait(target) else None
    if unit.blocks > 1 and hook is None:
        return Made(error=f"clusters of blocks are for kernels that may begin early, as {target.binary} files")
    knobs.runtime.add_stages_inspection_hook = hook
    options: dict[str, Any] = {"num_warps": unit.warps, "num_stages": unit.stages, "enable_fp_fusion": True}
    if target.ptx:
        options["ptx_version"] = target.ptx
    if target.is_cuda and _CAREFUL.search(unit.source):
        options["enable_reflect_ftz"] = False
    try:
        function = load(unit.source, unit.symbol, folder / f"{unit.symbol}_{number}.py")
        names = list(function.arg_names)
        kinds = [f"*{dtype}" for dtype in unit.buffers] + list(unit.sizes)
        aligned = {(position,): [["tt.divisibility", 16]] for position in range(len(unit.buffers))}
        source: Any = _source_class(function)(function, dict(zip(names, kinds, strict=True)), {}, aligned)
        fenced = target.is_cuda and fences_itself(unit.source)
        stages = compile_source(source, GPUTarget(target.family, target.architecture, target.warp), options, fenced)
    except _refusals() as error:
        return _refused(error)
    return _described(stages, target, number)


def _compile_for_xpu(unit: ProgramUnit, target: GpuTarget, folder: Path, number: int) -> Made:
    """The same for Intel's GPUs."""
    device = target.xpu
    assert device is not None
    if "tl.make_block_ptr(" in unit.source and not ocloc.has_block_loads(device.device):
        return Made(error=f"{ocloc.version()} does not know 2-D block loads")
    try:
        function = load(unit.source, unit.symbol, folder / f"{unit.symbol}_{number}.py")
        kinds = [f"*{dtype}" for dtype in unit.buffers] + list(unit.sizes)
        signature = dict(zip(function.arg_names, kinds, strict=True))
    except _refusals() as error:
        return _refused(error)
    first, *others = [
        functools.partial(_compile_with_sub_groups, unit, function, signature, target, number, size)
        for size in xpu.sub_group_sizes(unit.source, device)
    ]
    made = first()
    for other in others:
        if made.spilling:
            made = less_spilling(made, other())
    return made


def _compile_with_sub_groups(
    unit: ProgramUnit, function: Any, signature: dict[str, str], target: GpuTarget, number: int, size: int
) -> Made:
    """The program with sub-groups of `size` work-items."""
    device = target.xpu
    assert device is not None
    groups = xpu.sub_groups(unit.source, unit.warps, device, size)
    try:
        made = xpu.compile_to_spirv(function, signature, len(unit.buffers), target, groups, size, unit.stages)
    except _refusals() as error:
        return _refused(error)
    if made.shared > target.shared:
        return Made(error=f"out of resources: {made.shared} bytes of local memory; {target.name} has {target.shared}")
    result = Made(
        number, made.warps, made.code, made.text, made.entry, made.shared, sub_group=made.sub_group,
    )
    if not device.device:
        return result
    try:
        code, native = make_native(made.code, made.entry, device, made.warps * made.sub_group)
    except OutOfResources as error:
        return Made(error=f"out of resources: {error}")
    except ocloc.CompilerFailure as error:
        command = shlex.join(ocloc.command(device.device, FLAGS[device.registers]))
        return Made(error=f"the offline compiler failed: {error}", spirv=made.code, reproduce=command)
    return structs.replace(
        result, code=code, spirv=made.code, registers=native.registers, spills=native.spilled_bytes, native=native
    )


def less_spilling(first: Made, second: Made) -> Made:
    """That of the results of two sizes of sub-groups whose work-group spills fewer bytes, with what the other gave."""
    if second.error:
        chosen, other, reason = first, second, second.error
    else:
        spilled, wide = first.warps * first.spills, second.warps * second.spills
        less = wide < spilled
        chosen, other = (second, first) if less else (first, second)
        kept, left = (wide, spilled) if less else (spilled, wide)
        reason = f"its work-group spills {left} bytes, not fewer than {kept}"
    if chosen.native is None:
        return chosen
    size = other.sub_group or xpu.WIDE_SUB_GROUP
    passed = PassedOver(size, -1 if other.error else other.spills * other.warps, reason)
    return structs.replace(chosen, native=structs.replace(chosen.native, passed_over=passed))


def _refused(error: Exception) -> Made:
    return Made(error=f"Triton: {type(error).__name__}: {_first_line(str(error))}")


def _refusals() -> tuple[type[Exception], ...]:
    """The exceptions raised for a form that this version of Triton does not support; another form may work."""
    from triton.errors import TritonError

    # Gluon differs between versions: names or parameters may be missing.
    return (TritonError, RuntimeError, ValueError, AssertionError, ImportError, AttributeError, TypeError)


def _source_class(function: Any) -> Any:
    """The source class with which Triton compiles a function: Triton's or Gluon's."""
    from triton.compiler import ASTSource

    if "gluon" not in type(function).__module__:  # importing Gluon takes time
        return ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource


def load(source: str, symbol: str, file: Path) -> Any:
    """The function `symbol` of a module's source, which is written to `file`, from where Triton reads it."""
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file}: no Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, symbol)


def _described(stages: Stages, target: GpuTarget, number: int) -> Made:
    metadata = stages.metadata
    shared = int(metadata["shared"])
    if shared > target.shared:
        return Made(error=f"{shared} bytes of shared memory; {target.name} has {target.shared} for a block")
    entry = str(metadata["name"])
    content = stages.made[target.binary]
    code = content.encode() if isinstance(content, str) else bytes(content)
    resources = _resources(stages, entry)
    assembly = str(stages.made.get("ptx") or stages.made.get("amdgcn") or "")
    return Made(
        number, int(metadata["num_warps"]), code, assembly, entry, shared,
        int(metadata.get("global_scratch_size") or 0), resources.registers, resources.spills,
        "griddepcontrol.wait" in assembly,
    )


def _resources(stages: Stages, entry: str) -> Resources:
    """The resources of the machine code that PTX compiles to for its oldest architecture."""
    if binary := stages.made.get("cubin"):
        return cubin.read_resources(binary, entry)
    if binary := stages.made.get("hsaco"):
        return hsaco.read_resources(binary, entry)
    return Resources()


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
