"""The executor as LLVM IR, for each architecture.

`pool.py`, `commands.py`, `statuses.py` and `calls.py` have its parts; `build.py` compiles it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from string import Template

from motet.artifact.schema import STATUS_BYTES
from motet.runtime.drivers.host import layout
from motet.runtime.drivers.host.executor.calls import CALL
from motet.runtime.drivers.host.executor.commands import executor
from motet.runtime.drivers.host.executor.pool import POOL
from motet.runtime.drivers.host.executor.statuses import STATUS

_WAIT, _WAKE = 128, 129  # FUTEX_WAIT and FUTEX_WAKE of <linux/futex.h>, private to the process


@dataclass(frozen=True)
class ExecutorTarget:
    """A machine for which the executor is built. `pause` is the intrinsic for spin loops, with its arguments."""

    name: str
    triple: str
    cpu: str
    features: str
    futex: int  # the number of the system call
    pause: str
    pause_type: str
    gettid: int  # the number of the system call
    abi: str = ""


TARGETS = (
    ExecutorTarget("x86_64", "x86_64-unknown-linux-gnu", "x86-64", "", 202,
            "llvm.x86.sse2.pause()", "llvm.x86.sse2.pause()", 186),
    ExecutorTarget("aarch64", "aarch64-unknown-linux-gnu", "generic", "+neon,+fp-armv8", 98,
            "llvm.aarch64.isb(i32 15)", "llvm.aarch64.isb(i32)", 178),
    ExecutorTarget("riscv64", "riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c,+zihintpause", 98,
            "llvm.riscv.pause()", "llvm.riscv.pause()", 178, "lp64d"),
)


def executor_ir(target: ExecutorTarget) -> str:
    """The executor for a machine as LLVM IR."""
    constants = {"FUTEX": target.futex, "GETTID": target.gettid, "WAIT": _WAIT, "WAKE": _WAKE}
    words: dict[str, object] = {
        **constants, "PAUSE": target.pause, "PAUSE_TYPE": target.pause_type, "SHARES": layout.SHARES,
        "STATUS_BYTES": STATUS_BYTES,
    }
    tables: tuple[type[IntEnum], ...] = (
        layout.PoolLayout, layout.LaneLayout, layout.ProgramLayout, layout.CommandLayout, layout.CallLayout,
        layout.SpecLayout, layout.ArrayLayout,
    )
    for table in tables:
        name = table.__name__.removesuffix("Layout").upper()
        words.update({f"{name}_{field.name}": int(field) for field in table.__members__.values()})
    return Template(POOL + executor() + STATUS + CALL).substitute(words)
