"""The device: runs compiled code in this process. `docs/devices.md` describes drivers."""

from __future__ import annotations

from collections.abc import Sequence

from motet.artifact.schema import Variant
from motet.artifact.uri import number_options
from motet.runtime.device import DeviceInfo
from motet.runtime.drivers.host.in_process import EXEMPT_IN_PROCESS, InProcessDevice
from motet.runtime.drivers.host.recorded import processor_obstacle

api = 1

conformance_exempt = EXEMPT_IN_PROCESS


def probe() -> Sequence[DeviceInfo]:
    return [DeviceInfo("this machine, for compiled C", "abacus", cores=1, threads=1, family="abacus")]


def open(info: DeviceInfo) -> AbacusDevice:
    """Raises DeviceError for options, of which it has none."""
    number_options(info.uri, {})
    return AbacusDevice(info)


class AbacusDevice(InProcessDevice):
    def obstacle(self, variant: Variant) -> str | None:
        return f"for {variant.family} devices" if variant.family != "abacus" else processor_obstacle(variant)
