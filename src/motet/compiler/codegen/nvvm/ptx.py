"""Compiles LLVM IR to PTX by LLVM with NVIDIA's libdevice, and to machine code by NVIDIA's assembler, both from
Triton's package.

Needs neither a GPU nor its driver.
"""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from motet.compiler.codegen.gpu.cubin import read_resources
from motet.compiler.targets.gpu import GpuTarget
from motet.errors import CompileError, OptionError, WorkerCrash

_BLACKWELL = 100  # the first architecture that needs the newer assembler


@dataclass(frozen=True)
class Binary:
    """A kernel's code and resources; `frame` is the bytes of local memory of a thread."""

    code: bytes
    registers: int = 0
    frame: int = 0


def make_binary(source: str, symbol: str, target: GpuTarget) -> Binary:
    """Compile `source`, LLVM IR that defines the kernel `symbol`. Raises CompileError and WorkerCrash."""
    assembly = make_ptx(source, symbol, target)
    cubin = _assemble(assembly, symbol, target)
    resources = read_resources(cubin, symbol)
    code = assembly.encode() if target.binary == "ptx" else cubin
    return Binary(code, resources.registers, resources.spills)


def make_ptx(source: str, symbol: str, target: GpuTarget) -> str:
    """PTX of `source`. Raises CompileError for IR that LLVM rejects."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    features = f"+ptx{target.ptx}" if target.ptx else ""
    name = f"sm_{target.architecture}" if target.ptx else target.name
    machine: Any = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=name, features=features, opt=3, reloc="default", codemodel="default"
    )
    try:
        module: Any = llvm.parse_assembly(source)
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        reason = next(iter(str(error).strip().splitlines()[1:]), str(error))
        raise CompileError(f"kernel {symbol}: LLVM rejects its code for {target.name}: {reason}") from error
    _link_mathematics(module)
    for function in module.functions:
        if not function.is_declaration and function.name != symbol:
            function.linkage = "internal"
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = False
    tuning.slp_vectorization = True
    tuning.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module)


def _link_mathematics(module: Any) -> None:
    """Add the functions of libdevice, if `module` calls any."""
    if any(function.is_declaration and function.name.startswith("__nv_") for function in module.functions):
        library: Any = llvm.parse_bitcode(_tool("lib/libdevice.10.bc").read_bytes())
        library.triple, library.data_layout = module.triple, module.data_layout
        module.link_in(library)


def _assemble(assembly: str, symbol: str, target: GpuTarget) -> bytes:
    blackwell = isinstance(target.architecture, int) and target.architecture >= _BLACKWELL
    program = _tool("bin/ptxas-blackwell" if blackwell else "bin/ptxas")
    name = f"sm_{target.architecture}" if target.ptx else target.name
    with tempfile.TemporaryDirectory(prefix="motet-ptx-") as folder:
        source, binary = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(assembly)
        command = [str(program), f"--gpu-name={name}", str(source), "-o", str(binary)]
        answer = subprocess.run(command, capture_output=True, check=False)
        if answer.returncode:
            words = (answer.stderr + answer.stdout).decode(errors="replace").strip().splitlines()
            reason = next((line for line in words if "error" in line or "fatal" in line), "no reason given")
            if answer.returncode < 0:
                raise WorkerCrash(f"kernel {symbol}: NVIDIA's assembler died: {reason}", " ".join(command))
            raise CompileError(f"kernel {symbol}: no code for cuda {target.name}: NVIDIA's assembler: {reason}")
        return binary.read_bytes()


def _tool(path: str) -> Path:
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        raise OptionError(
            "device cuda: NVIDIA's assembler comes with Triton, which is not installed; pip install 'motet[gpu]'"
        )
    found = Path(spec.origin).parent / "backends" / "nvidia" / path
    if not found.exists():
        raise OptionError(f"device cuda: {found} is not there; expected the package triton with its NVIDIA backend")
    return found
