"""The device: runs compiled code in this process. `docs/devices.md` describes drivers."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from motet.artifact.schema import Variant
from motet.runtime.device import DeviceInfo
from motet.runtime.drivers.host.in_process import InProcessDevice

api = 1


def probe() -> Sequence[DeviceInfo]:
    return [DeviceInfo("this machine, for compiled C", "abacus", cores=1, threads=1, family="abacus")]


def open(info: DeviceInfo) -> AbacusDevice:
    return AbacusDevice(info)


class AbacusDevice(InProcessDevice):
    def obstacle(self, variant: Variant) -> str | None:
        own = variant.family == "abacus" and variant.triple.startswith(platform.machine())
        return None if own else f"for {variant.family} devices, {variant.triple}"
