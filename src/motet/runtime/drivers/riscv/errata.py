"""Patches code when it is loaded to avoid defects of old emulators.

QEMU before 8.0 aborts when it translates a vector conversion with a static rounding mode (`vfcvt.rtz.x.f.v` and
similar, which LLVM generates for fptosi), unless the translated block of code has used the dynamic rounding mode before
(https://gitlab.com/qemu-project/qemu/-/issues/1441). Each such instruction becomes a jump to a stub that uses it first,
with no effect except on flags that are not read:

    fcvt.w.s zero, ft0, dyn
    vfcvt.rtz.x.f.v …              the instruction itself
    j        back

Such a kernel retires three more instructions for each of them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from motet.errors import DeviceError
from motet.runtime.drivers.common.elf.relocations import JUMP

FIXED = (8, 0)  # the first version of QEMU without the defect
STUB = 16  # bytes; also the alignment, so that no stub spans two pages or two blocks

_DYNAMIC_CONVERSION = 0xC000_7053  # fcvt.w.s zero, ft0, dyn
_NOP, _JUMP = 0x0000_0013, 0x0000_006F
# VFUNARY0 of OP-V: vf[w,n]cvt.rtz.[x,xu].f and vfncvt.rod.f.f, by the field vs1 (RISC-V "V" 1.0, section 13.17).
_MASK, _CONVERSION = 0xFC00_707F, 0x4800_1057
_STATIC = frozenset({6, 7, 14, 15, 21, 22, 23})
_REACH = 1 << 20  # of a jump, in bytes


def find_conversions(code: bytes | memoryview) -> list[int]:
    """The offsets of the instructions in a section of code that QEMU cannot translate."""
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
    """Redirect the instructions at `places` of an image through stubs, from offset `stubs` on (a multiple of STUB).

    Raises DeviceError if a stub is out of reach.
    """
    for number, place in enumerate(places):
        stub = stubs + number * STUB
        if abs(stub - place) >= _REACH - STUB:
            raise DeviceError(
                f"device {device}: more than {_REACH:,} bytes of code with conversions that this QEMU cannot "
                f"translate; expected QEMU {FIXED[0]}.{FIXED[1]} or later"
            )
        word = struct.unpack_from("<I", image, place)[0]
        struct.pack_into("<4I", image, stub, _DYNAMIC_CONVERSION, word, _JUMP, _NOP)
        struct.pack_into("<I", image, place, _JUMP)
        for begin, end in ((stub + 8, place + 4), (place, stub)):
            JUMP.put(image, begin, end - begin)
