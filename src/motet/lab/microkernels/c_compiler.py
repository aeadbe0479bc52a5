"""Compiles a microkernel in C for a CPU level, by the compiler of the machine.

For the machine's own processors, clang or gcc makes assembly. For others, clang makes LLVM IR, since Motet's LLVM reads
the assembly of its own machine only.
"""

from __future__ import annotations

import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Literal

from motet.compiler.targets.cpu import CpuTarget
from motet.errors import OptionError

_SECONDS = 120
_COMMON = (
    "-O3", "-std=gnu11", "-S", "-fPIC", "-ffreestanding", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables",
    "-fno-stack-protector", "-fvisibility=hidden", "-w",
)


def compile_c(
    source: Path, target: CpuTarget, compiler: str = "", flags: tuple[str, ...] = ()
) -> tuple[Literal["llvm", "assembly"], str]:
    """The code of `source` for `target`, and its language, by `compiler` or the first one that the machine has. Raises
    OptionError with what the compiler says, or with the command that installs one."""
    own = target.triple.startswith(platform.machine())
    command = [compiler] if compiler else _compiler(target, own)
    is_clang = "clang" in Path(command[0]).name
    if not own and not is_clang:
        raise OptionError(f"microkernel {source}: {command[0]} makes no LLVM IR, which code for {target.family}:"
                          f"{target.name} on this machine needs; expected clang (apt install clang)")
    chosen = [f"--target={target.triple}"] if is_clang else []
    chosen += [] if own else ["-emit-llvm"]
    words = [*command, *_COMMON, *chosen, *_machine_flags(target), *flags]
    with tempfile.TemporaryDirectory(prefix="motet-microkernel-") as folder:
        output = Path(folder) / "code.s"
        try:
            done = subprocess.run(
                [*words, "-o", str(output), str(source)], capture_output=True, text=True, check=False, timeout=_SECONDS
            )
        except FileNotFoundError:
            raise OptionError(f"microkernel {source}: there is no compiler {command[0]}; expected a command") from None
        except subprocess.TimeoutExpired:
            raise OptionError(f"microkernel {source}: {command[0]} did not end within {_SECONDS} s") from None
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            raise OptionError(f"microkernel {source}: {shlex.join(words[:1])} for {target.name}: "
                              f"{said[0].strip() if said else f'ended with {done.returncode}'}")
        return "assembly" if own else "llvm", output.read_text()


def _compiler(target: CpuTarget, own: bool) -> list[str]:
    names = ("clang", "gcc", "cc") if own else ("clang",)
    for name in names:
        if found := shutil.which(name):
            return [found]
    missing = " and ".join(names[:2])
    raise OptionError(f"microkernel: no C compiler for {target.family}:{target.name}: {missing} "
                      f"{'are' if own else 'is'} not installed; apt install {'gcc' if own else 'clang'}, or give LLVM "
                      "IR (.ll)")


def _machine_flags(target: CpuTarget) -> list[str]:
    """The instructions of the level, in the notation of clang and gcc."""
    added = [name[1:] for name in target.features.split(",") if name.startswith("+")]
    if target.triple.startswith("x86_64"):
        return [f"-march={target.cpu}", *(f"-m{name}" for name in added)]
    if target.triple.startswith("aarch64"):
        return ["-march=armv8-a"]
    if target.triple.startswith("riscv"):
        bits = target.triple[5:7]
        single = "".join(name for name in "imafdcv" if name == "i" or name in added)
        return [f"-march=rv{bits}{single}", f"-mabi={target.abi}", "-mcmodel=medany"]
    return [f"-mcpu={target.cpu}", "-mthumb", "-mfloat-abi=softfp"]
