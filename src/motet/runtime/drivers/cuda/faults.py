"""Converts the driver's errors: to a user's mistake, a kernel fault, or a lost device.

A kernel fault destroys the whole context: each later call fails with the same error until the process ends. A fault is
therefore reported once, to all work in flight, and the device is lost from then on.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.errors import DeviceError, DeviceLost, KernelFault, MotetError, OutOfMemoryError
from motet.runtime.drivers.common.streams import ApiError
from motet.runtime.drivers.cuda.api import OUT_OF_MEMORY

_MOST_NAMES = 4  # kernels that an error lists

_FAULTS = {
    700: "an access to memory that is not there",
    702: "it ran longer than the system allows",
    710: "an assertion failed",
    714: "its stack overflowed or is damaged",
    715: "an illegal instruction",
    716: "an access to a misaligned address",
    717: "an access to the wrong kind of memory",
    718: "a jump to where there is no code",
    719: "it failed",
}
_LOST = {
    4: "the driver is shutting down",
    46: "it is in use by another process, or not available",
    214: "an error of its memory that cannot be corrected",
    220: "an error of NVLink that cannot be corrected",
    226: "an error that was contained",
    709: "its context was destroyed",
    999: "an unknown error",
}


def is_final(error: ApiError) -> bool:
    """Whether the device is unusable after an error."""
    return error.code in _FAULTS or error.code in _LOST


def final_error(device: str, error: ApiError, kernels: Sequence[str]) -> KernelFault | DeviceLost:
    """The error of work that was in flight; `kernels` are those that may have been running."""
    reason = _FAULTS.get(error.code)
    if reason is None:
        return DeviceLost(device, f"{_LOST[error.code]} ({error.name})")
    names = list(dict.fromkeys(kernels))
    shown = " or ".join(names[:_MOST_NAMES]) + (
        f" or one of {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    )
    return KernelFault(device, shown or "unknown", f"{reason} ({error.name})", usable=False)


def lost_by(fault: KernelFault) -> DeviceLost:
    """The error of all work after a fault."""
    return DeviceLost(fault.device, f"kernel {fault.kernel}: {fault.reason}; start the process anew")


def passing_error(device: str, error: ApiError, size: int = 0) -> MotetError:
    """The exception for a failure that leaves the device unchanged. `size` is the requested memory, if any."""
    if error.code == OUT_OF_MEMORY and size:
        return OutOfMemoryError(size, device)
    return DeviceError(f"device {device}: {error}")
