"""The limits of a device: operations and bytes per second, measured once on each machine and kept.

On the host, generated loops of independent multiply-adds, and of sums over arrays larger than the caches. On devices
whose clock counts instructions, what one instruction can do. On others the rates of `motet devices --measure`, which
are no strict limits.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass, replace

import msgspec

from motet.cache import Cache
from motet.compiler.targets.cpu import CpuTarget
from motet.compiler.targets.families import families
from motet.decoding import decode_json
from motet.errors import DeviceError
from motet.lab.host_loops import HostLoops
from motet.measuring.disturbance import Watch
from motet.records.machine import fingerprint
from motet.runtime.device import DeviceInfo, open_device
from motet.version import VERSION

MARGIN = 1.10  # by which a figure may exceed a measured limit
_WIDTHS = {"f32": 1.0, "f64": 0.5}  # operations per second relative to f32


@dataclass(frozen=True)
class DeviceLimits:
    """Operations per second in f32, and bytes per second to memory. `strict`: no kernel in f32 can be faster."""

    flops: float
    bandwidth: float
    strict: bool
    disturbed: bool = False  # measured next to other work: measured again by the next one who asks

    def seconds(self, flops: float, moved: float, dtype: str) -> float:
        """The least seconds of `flops` operations in `dtype` that move `moved` bytes from and to memory."""
        return max(flops / self.rate(dtype), moved / self.bandwidth)

    def rate(self, dtype: str) -> float:
        """Operations per second; that of f32 for dtypes with more instructions than were measured."""
        return self.flops * _WIDTHS.get(dtype, 1.0)

    def is_strict(self, dtype: str) -> bool:
        return self.strict and dtype in _WIDTHS


def limits_of(info: DeviceInfo, threads: int, again: bool = False) -> DeviceLimits:
    """The limits of a device with `threads` threads, measured once and kept; those measured next to other work are
    measured again the next time. `again` measures even if they are known. The higher ones are kept, since other work
    on the machine makes them lower. Raises DeviceError if nothing can be measured."""
    cache = Cache()
    key = hashlib.sha256(f"limits {VERSION} {fingerprint(info)} {threads}".encode()).hexdigest()
    kept = cache.get(key)
    earlier = None if kept is None else decode_json(kept, DeviceLimits)
    if earlier is not None and not again and not earlier.disturbed:
        return earlier
    watch = Watch()
    found = replace(_measured(info, threads), disturbed=bool(watch.reasons()))
    if earlier is not None:
        found = replace(found, flops=max(found.flops, earlier.flops), bandwidth=max(found.bandwidth, earlier.bandwidth))
    cache.put(key, msgspec.json.encode(found))
    return found


def _measured(info: DeviceInfo, threads: int) -> DeviceLimits:
    if info.family == "host":
        loops = HostLoops()
        return DeviceLimits(threads * loops.core_peak(), loops.bandwidth(threads), strict=True)
    with contextlib.closing(open_device(info)) as device:
        opened = device.info
    target = families()[info.family].targets.get(opened.level)
    if opened.instruction and isinstance(target, CpuTarget):
        lanes, moved = target.widest_bits // 32, target.widest_bits // 8
        return DeviceLimits(2 * lanes / opened.instruction, moved / opened.instruction, strict=True)
    from motet.measuring.rates import measure_family

    rates = measure_family(info)
    flops, moved = rates.get("contraction", 0.0), rates.get("memory", 0.0)
    if not flops or not moved:
        raise DeviceError(f"device {info.uri}: its rates cannot be measured")
    return DeviceLimits(float(flops), float(moved), strict=False)
