"""Converts the mailbox after a failed batch to the error that users see."""

from __future__ import annotations

from collections.abc import Mapping

from motet.errors import DeviceError, KernelFault
from motet.runtime.drivers.common.linked_code import LinkedCode
from motet.runtime.drivers.embedded.protocol import AgentStatus

# Configurable Fault Status Register, Armv8-M Architecture Reference Manual, D1.2.14; the first bit set is reported.
_ARM = {
    0: "an instruction fetch from memory that holds no code",
    1: "an access to memory that is protected",
    8: "an instruction fetch from an address without memory",
    9: "an access to an address without memory",
    10: "an access to an address without memory",
    12: "a stack that reaches an address without memory",
    16: "an undefined instruction",
    17: "a jump to an address that is not Thumb code",
    19: "an instruction of a coprocessor that is switched off",
    20: "a stack overflow",
    24: "an access to an address that is not aligned",
    25: "a division by zero",
}
_ARM_ADDRESSES = 1 << 7 | 1 << 15  # the address is valid
# RISC-V Privileged Architecture, table "EmbeddedMachine cause register values after trap".
_RISCV = {
    0: "a jump to an address that is not even",
    1: "a jump to an address without memory",
    2: "an illegal instruction",
    3: "a breakpoint",
    4: "a misaligned load",
    5: "a load from an address without memory",
    6: "a misaligned store",
    7: "a store to an address without memory",
}
_RISCV_ADDRESSES = (0, 1, 4, 5, 6, 7)


def error_of(
    device: str, machine: str, executable: LinkedCode, kernel: str, box: Mapping[str, int], timeout: float
) -> DeviceError | None:
    """The error that the fields `box` of the mailbox describe; None after success. `kernel` is the command that ran.
    The device stays usable after each of them."""
    status = AgentStatus(box["status"])
    if status == AgentStatus.OK:
        return None
    if status == AgentStatus.ABORTED:
        return DeviceError(f"device {device}: aborted")
    pc = box["pc"]
    symbol = executable.symbol_at(pc)
    if status == AgentStatus.TIMEOUT:
        reason = f"it ran for longer than {timeout:g} s, the limit (timeout=SECONDS), and was stopped"
        return KernelFault(device, kernel, reason, pc=pc or -1, symbol=symbol)
    reason, with_address = _reason(machine, box["cause"])
    address = box["value"] if with_address else -1
    return KernelFault(device, kernel, reason, pc=pc, symbol=symbol, address=address)


def _reason(machine: str, cause: int) -> tuple[str, bool]:
    """What happened, and whether an address is known."""
    if machine != "thumb":
        return _RISCV.get(cause, f"a trap of cause {cause:#x}"), cause in _RISCV_ADDRESSES
    found = next((words for bit, words in _ARM.items() if cause >> bit & 1), f"a hard fault of cause {cause:#x}")
    return found, bool(cause & _ARM_ADDRESSES)
