"""What code must be kept from on old emulators, by changes where it is loaded.

QEMU before 8.0 ends itself when it translates a vector conversion with a rounding mode of its own
(`vfcvt.rtz.x.f.v` and its like, which LLVM makes of fptosi), unless the block of code that it translates has used the
dynamic rounding mode before (https://gitlab.com/qemu-project/qemu/-/issues/1441). Each such instruction becomes a jump
to a stub that does so first, with nothing to show for it but flags that nobody reads:

    fcvt.w.s zero, ft0, dyn
    vfcvt.rtz.x.f.v …              the instruction itself
    j        back

A kernel is then counted to have retired three instructions more for each.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from motet.errors import DeviceError

FIXED = (8, 0)  # the first version of QEMU that does right
STUB = 16  # bytes; stubs are aligned to as much, so that none lies on two pages, nor in two blocks

_DYNAMIC_CONVERSION = 0xC000_7053  # fcvt.w.s zero, ft0, dyn
_NOP = 0x0000_0013
# VFUNARY0 of OP-V: vf[w,n]cvt.rtz.[x,xu].f and vfncvt.rod.f.f, by the field vs1 (RISC-V "V" 1.0, section 13.17).
_MASK, _CONVERSION = 0xFC00_707F, 0x4800_1057
_STATIC = frozenset({6, 7, 14, 15, 21, 22, 23})
_REACH = 1 << 20  # of a jump, in bytes


def find_conversions(code: bytes | memoryview) -> list[int]:
    """Places of the instructions in a section of code that QEMU cannot translate."""
    found: list[int] = []
    at, size = 0, len(code)
    while at + 2 <= size:
        if code[at] & 3 != 3:  # two bytes long
            at += 2
            continue
        if at + 4 <= size:
            word = struct.unpack_from("<I", code, at)[0]
            if word & _MASK == _CONVERSION and word >> 15 & 31 in _STATIC:
                found.append(at)
        at += 4
    return found


def divert(image: memoryview, places: Sequence[int], stubs: int, device: str) -> None:
    """Sends the instructions at `places` of an image by way of stubs, from offset `stubs` on (a multiple of STUB).

    Raises DeviceError where a stub is too far away.
    """
    for number, place in enumerate(places):
        stub = stubs + number * STUB
        if abs(stub - place) >= _REACH - STUB:
            raise DeviceError(
                f"device {device}: more than {_REACH:,} bytes of code with conversions that this QEMU cannot "
                f"translate; expected QEMU {FIXED[0]}.{FIXED[1]} or later"
            )
        word = struct.unpack_from("<I", image, place)[0]
        back = _jump(place + 4 - (stub + 8))
        struct.pack_into("<4I", image, stub, _DYNAMIC_CONVERSION, word, back, _NOP)
        struct.pack_into("<I", image, place, _jump(stub - place))


def _jump(distance: int) -> int:
    """`j` over a distance in bytes."""
    bits = (distance >> 20 & 1) << 31 | (distance >> 1 & 1023) << 21 | (distance >> 11 & 1) << 20
    return bits | (distance >> 12 & 255) << 12 | 0x6F
