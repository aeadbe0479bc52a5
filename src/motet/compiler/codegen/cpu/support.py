"""The runtime's native code as LLVM IR: the thread pool, the executor of schedules, the call from Python.

`python -m motet.compiler.codegen.cpu.support` compiles it for each machine to a relocatable object beside the
loader, so that the runtime needs neither a compiler nor a compiled extension.

`support_pool.py`, `support_executor.py`, `support_status.py` and `support_call.py` have its parts.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from string import Template

from llvmlite import binding

import motet.runtime.devices.host as host
from motet.artifact.schema import STATUS_BYTES
from motet.compiler.codegen.cpu.support_call import CALL
from motet.compiler.codegen.cpu.support_executor import executor
from motet.compiler.codegen.cpu.support_pool import POOL
from motet.compiler.codegen.cpu.support_status import STATUS
from motet.runtime.devices.host import layout

_WAIT, _WAKE = 128, 129  # FUTEX_WAIT and FUTEX_WAKE of <linux/futex.h>, private to the process


@dataclass(frozen=True)
class Machine:
    """`pause` is the intrinsic that eases a spinning processor, with its arguments."""

    name: str
    triple: str
    cpu: str
    features: str
    futex: int  # the number of the system call
    pause: str
    pause_type: str
    gettid: int  # the number of the system call
    abi: str = ""


MACHINES = (
    Machine("x86_64", "x86_64-unknown-linux-gnu", "x86-64", "", 202,
            "llvm.x86.sse2.pause()", "llvm.x86.sse2.pause()", 186),
    Machine("aarch64", "aarch64-unknown-linux-gnu", "generic", "+neon,+fp-armv8", 98,
            "llvm.aarch64.isb(i32 15)", "llvm.aarch64.isb(i32)", 178),
    Machine("riscv64", "riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c,+zihintpause", 98,
            "llvm.riscv.pause()", "llvm.riscv.pause()", 178, "lp64d"),
)


def support_ir(machine: Machine) -> str:
    """The support code of a machine as LLVM IR."""
    constants = {"FUTEX": machine.futex, "GETTID": machine.gettid, "WAIT": _WAIT, "WAKE": _WAKE}
    words: dict[str, object] = {
        **constants, "PAUSE": machine.pause, "PAUSE_TYPE": machine.pause_type, "SHARES": layout.SHARES,
        "STATUS_BYTES": STATUS_BYTES,
    }
    tables: tuple[type[IntEnum], ...] = (
        layout.Pool, layout.Lane, layout.Program, layout.Command, layout.Call, layout.Spec, layout.Array,
    )
    for table in tables:
        name = table.__name__.upper()
        words.update({f"{name}_{field.name}": int(field) for field in table.__members__.values()})
    return Template(POOL + executor() + STATUS + CALL).substitute(words)


def build(machine: Machine) -> bytes:
    """The support code of a machine as a relocatable object."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=2, reloc="pic", codemodel="small", abiname=machine.abi
    )
    module = binding.parse_assembly(support_ir(machine))
    module.triple = machine.triple
    module.data_layout = str(target.target_data)
    module.verify()
    return target.emit_object(module)


def path(machine: Machine) -> Path:
    """Where the runtime looks for the object."""
    return Path(str(host.__file__)).parent / f"support-{machine.name}.o"


def main() -> None:
    for machine in MACHINES:
        data = build(machine)
        path(machine).write_bytes(data)
        sys.stdout.write(f"{path(machine)}: {len(data):,} bytes\n")


if __name__ == "__main__":
    main()
