"""A process that compiles Triton programs: `python -m motet.compiler.codegen.triton.worker`, a request on its standard
input, the answer on its standard output.

It loads Triton, which has an LLVM of its own, once, and nothing of MLIR; programs are compiled by forked children.
Neither a GPU nor its driver is needed.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from motet.compiler.codegen.triton import cubin, dependent, hsaco
from motet.compiler.codegen.triton.cubin import Resources
from motet.compiler.orphans import die_with_parent
from motet.compiler.targets.gpu import GpuTarget


class Unit(msgspec.Struct, frozen=True):
    """A program in one form: see `program.Program` and `program.Form`."""

    symbol: str
    source: str
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]
    warps: int
    stages: int


class Request(msgspec.Struct, frozen=True):
    """For every program its forms, in order of preference, and how many of them are wanted: `most`."""

    target: GpuTarget
    programs: list[list[Unit]]
    jobs: int
    most: int = 1


class Made(msgspec.Struct, frozen=True):
    """What became of a program: the form that was taken, the binary and what a launch needs to know; or `error`.
    `warps` are those that a launch has, which may be more than the form asks for; `waits` says that the kernel itself
    waits for those before it (`dependent.py`)."""

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


def main() -> int:
    die_with_parent(int(sys.argv[1]))
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
    os.environ.pop("TRITON_INTERPRET", None)
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Request)
    with tempfile.TemporaryDirectory(prefix="motet-triton-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        made = _compile_all(request, Path(folder))
    sys.stdout.buffer.write(msgspec.msgpack.encode(made))
    sys.stdout.buffer.flush()
    return 0


def _compile_all(request: Request, folder: Path) -> list[list[Made]]:
    import triton  # pyright: ignore[reportUnusedImport]
    import triton.compiler  # pyright: ignore[reportUnusedImport] # noqa: F401

    if _can_wait(request.target):
        from triton import knobs

        knobs.runtime.add_stages_inspection_hook = _change_stages
    tasks = [(forms, request.target, folder, request.most) for forms in request.programs]
    jobs = min(request.jobs, len(tasks))
    if jobs < 2:
        return [_compile(*task) for task in tasks]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        return pool.starmap(_compile, tasks, chunksize=1)


def _can_wait(target: GpuTarget) -> bool:
    architecture = target.architecture
    new = isinstance(architecture, int) and architecture >= dependent.OLDEST
    return new and target.is_cuda and target.binary == "cubin"


def _change_stages(*given: Any) -> tuple[str, str] | None:
    """Has Triton's compiler make machine code of PTX in which kernels wait. It asks for a key first, then with its own
    stages by name."""
    if not given:
        return "waiting", "waiting"
    stages: dict[str, Any] = given[1]
    make = stages["ptx"]

    def changed(source: Any, metadata: dict[str, Any]) -> str:
        text = str(make(source, metadata))
        return dependent.waiting(text) or text

    stages["ptx"] = changed
    return None


def _compile(forms: list[Unit], target: GpuTarget, folder: Path, most: int) -> list[Made]:
    """The first forms that fit and do not spill, at most `most`; where there is none, the one that fits and spills
    least. An only one with `error` says that none fits."""
    found: list[Made] = []
    spilling: Made | None = None
    reasons: list[str] = []
    for number, unit in enumerate(forms):
        made = _compile_form(unit, target, folder, number)
        if made.error:
            reasons.append(made.error)
        elif not made.spills:
            found.append(made)
        elif spilling is None or made.spills < spilling.spills:
            spilling = made
        if len(found) == most:
            break
    return found or [spilling or Made(error=reasons[0])]


def _compile_form(unit: Unit, target: GpuTarget, folder: Path, number: int) -> Made:
    import triton
    from triton.backends.compiler import GPUTarget

    options: dict[str, Any] = {"num_warps": unit.warps, "num_stages": unit.stages, "enable_fp_fusion": True}
    if target.ptx:
        options["ptx_version"] = target.ptx
    try:
        function = load(unit.source, unit.symbol, folder / f"{unit.symbol}_{number}.py")
        names = list(function.arg_names)
        kinds = [f"*{dtype}" for dtype in unit.buffers] + list(unit.sizes)
        aligned = {(position,): [["tt.divisibility", 16]] for position in range(len(unit.buffers))}
        source: Any = _source_class(function)(function, dict(zip(names, kinds, strict=True)), {}, aligned)
        made: Any = triton.compile(
            source, target=GPUTarget(target.family, target.architecture, target.warp), options=options
        )
    except _refusals() as error:
        return Made(error=f"Triton: {type(error).__name__}: {_first_line(str(error))}")
    return _described(made, target, number)


def _refusals() -> tuple[type[Exception], ...]:
    """What is raised for a form that this version of Triton does not take; another form may do."""
    from triton.errors import TritonError

    # Gluon differs between versions: names that are not there yet, parameters that are not known.
    return (TritonError, RuntimeError, ValueError, AssertionError, ImportError, AttributeError, TypeError)


def _source_class(function: Any) -> Any:
    """What Triton compiles a function as: one of its own language, or of Gluon's."""
    from triton.compiler import ASTSource

    if "gluon" not in type(function).__module__:  # which takes its time to import
        return ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource


def load(source: str, symbol: str, file: Path) -> Any:
    """The function `symbol` of a module's source, which is written to `file`: Triton reads it from there."""
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file}: no Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, symbol)


def _described(made: Any, target: GpuTarget, number: int) -> Made:
    metadata = made.metadata
    if metadata.shared > target.shared:
        return Made(error=f"{metadata.shared} bytes of shared memory; {target.name} has {target.shared} for a block")
    entry = str(metadata.name)
    content = made.asm[target.binary]
    code = content.encode() if isinstance(content, str) else bytes(content)
    resources = _resources(made, entry)
    assembly = made.asm.get("ptx") or made.asm.get("amdgcn") or ""
    return Made(
        number, int(metadata.num_warps), code, assembly, entry, int(metadata.shared),
        int(getattr(metadata, "global_scratch_size", 0) or 0), resources.registers, resources.spills,
        "griddepcontrol.wait" in assembly,
    )


def _resources(made: Any, entry: str) -> Resources:
    """Of PTX what the machine code of its oldest architecture takes."""
    if binary := made.asm.get("cubin"):
        return cubin.read_resources(binary, entry)
    if binary := made.asm.get("hsaco"):
        return hsaco.read_resources(binary, entry)
    return Resources()


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


if __name__ == "__main__":
    sys.exit(main())
