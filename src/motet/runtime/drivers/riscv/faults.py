"""Converts a device's report of a failed batch to the error that users see."""

from __future__ import annotations

from motet.errors import DeviceError, KernelFault
from motet.runtime.drivers.riscv.connection import BatchOutcome
from motet.runtime.drivers.riscv.program import RiscvCommandBuffer
from motet.runtime.drivers.riscv.protocol import Status

# RISC-V Privileged Architecture, table "Machine cause register values after trap".
_ILLEGAL = 2
_CAUSES = {
    0: "a jump to an address that is not even",
    1: "a jump to memory that holds no code",
    _ILLEGAL: "an illegal instruction",
    3: "a breakpoint",
    4: "a misaligned load",
    5: "a load from memory that it may not read",
    6: "a misaligned store",
    7: "a store to memory that it may not write",
    8: "a call of a system that there is not",
    12: "a jump to a page that is not there",
    13: "a load from a page that is not there",
    15: "a store to a page that is not there",
}
_WITHOUT_ADDRESS = (_ILLEGAL, 3, 8)


def error_of(device: str, work: RiscvCommandBuffer, outcome: BatchOutcome, timeout: float) -> DeviceError | None:
    """The error of a batch; None if it succeeded. The device stays usable after each of them."""
    if outcome.status == Status.OK:
        return None
    item = work.work[outcome.command] if outcome.command < len(work.work) else None
    kernel = "" if item is None else item.described
    late = outcome.status == Status.TIMEOUT or outcome.limited
    if outcome.status == Status.ABORTED and not late:
        return DeviceError(f"device {device}: aborted")
    symbol = work.executable.symbol_at(outcome.pc)
    if late:
        reason = f"it ran for longer than {timeout:g} s, the limit (timeout=SECONDS), and was stopped"
        return KernelFault(device, kernel, reason, core=outcome.hart, pc=outcome.pc or -1, symbol=symbol)
    reason = _CAUSES.get(outcome.cause, f"a trap of cause {outcome.cause:#x}")
    if outcome.cause == _ILLEGAL:
        reason = f"{reason} ({outcome.value:#010x})"
    address = -1 if outcome.cause in _WITHOUT_ADDRESS else outcome.value
    return KernelFault(device, kernel, reason, core=outcome.hart, pc=outcome.pc, symbol=symbol, address=address)
