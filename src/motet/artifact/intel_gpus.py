"""Intel's GPUs by the numbers under which they are known: the version of the architecture and the PCI device ids.

The compiler names devices by them, and the driver finds the device that code is for. Sources: `ocloc ids` and
`ocloc compile -device 0x…` of Intel's compute runtime 22.43, which every number here was given to; the split of the
ids of dg2 by chip: the list of Intel's graphics processing units in the documentation of Intel's compute runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

VENDOR = 0x8086


@dataclass(frozen=True)
class IntelGpu:
    """`version` is the version of the architecture without its last number, the revision; `ids` are PCI device ids;
    `ocloc` is the name for Intel's offline compiler."""

    name: str
    version: str
    ocloc: str
    ids: tuple[int, ...]

    @property
    def feature(self) -> str:
        """What a variant's features name a device by."""
        return f"intel-gpu-{self.version}"


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(part, 16) for part in text.split())


_GPUS = (
    IntelGpu("pvc", "12.60", "pvc", _ids("0bd0 0bd5 0bd6 0bd7 0bd8 0bd9 0bda 0bdb")),
    IntelGpu("dg2", "12.55", "acm-g10", _ids("56a0 56a1 56a2 5690 5691 5692 56c0")),
    IntelGpu("acm-g11", "12.56", "acm-g11", _ids("56a5 56a6 5693 5694 5695 56b0 56b1 56c1")),
    IntelGpu("acm-g12", "12.57", "acm-g12", _ids("56a3 56a4 5696 5697 56b2 56b3")),
    IntelGpu("dg1", "12.10", "dg1", _ids("4905 4906 4907 4908")),
    IntelGpu("tgllp", "12.0", "tgllp", _ids("ff20 9a40 9a49 9a59 9a60 9a68 9a70 9a78")),
    IntelGpu("rkl", "12.1", "rkl", _ids("4c80 4c8a 4c8b 4c8c 4c90 4c9a")),
    IntelGpu(
        "adl-s", "12.2", "adl-s",
        _ids("4680 4682 4688 468a 4690 4692 4693 a780 a781 a782 a783 a788 a789 a78b"),
    ),
    IntelGpu(
        "adl-p", "12.3", "adl-p",
        _ids("46a0 46a1 46a2 46a3 46a6 46a8 46aa 4626 4628 462a 46b0 46b1 46b2 46b3 46c0 46c1 46c2 46c3 a7a0 a7a1 a720 "
             "a721 a7a8 a7a9"),
    ),
    IntelGpu("adl-n", "12.4", "adl-n", _ids("46d0 46d1 46d2")),
)
INTEL_GPUS: Mapping[str, IntelGpu] = MappingProxyType({gpu.name: gpu for gpu in _GPUS})
_BY_VERSION = {gpu.version: gpu.name for gpu in _GPUS}
_BY_ID = {number: gpu.name for gpu in _GPUS for number in gpu.ids}
_BY_OCLOC = {gpu.ocloc: gpu.name for gpu in _GPUS}


def canonical(spelling: str) -> str:
    """The name of the device that is spelled as a PCI device id (`0x0bd5`), as a version (`12.60.7`, `12.60`) or by
    ocloc's name; other texts as they are."""
    text = spelling.lower()
    if text.startswith("0x"):
        try:
            return _BY_ID.get(int(text, 16), spelling)
        except ValueError:
            return spelling
    parts = text.split(".")
    if 2 <= len(parts) <= 3 and all(part.isdecimal() for part in parts):
        return _BY_VERSION.get(".".join(parts[:2]), spelling)
    return _BY_OCLOC.get(text, spelling)


def gpu_of_id(number: int) -> IntelGpu | None:
    """The device with a PCI device id; None for those that the table lacks."""
    name = _BY_ID.get(number)
    return INTEL_GPUS[name] if name is not None else None
