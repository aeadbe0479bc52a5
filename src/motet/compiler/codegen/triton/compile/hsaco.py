"""Reads the resources of kernels from the metadata note of code objects for AMD's GPUs.

Source of the layout: LLVM's user guide for the AMDGPU back end, "Code Object Metadata": a note named AMDGPU of type 32
holds MessagePack.
"""

from __future__ import annotations

import struct
from collections.abc import Generator

import msgspec

from motet.compiler.codegen.gpu.cubin import Resources
from motet.decoding import decode_msgpack
from motet.runtime.drivers.common.elf.structures import SHT_NOTE, ElfFile

_METADATA = 32


class _Kernel(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name=".name")
    vector: int = msgspec.field(name=".vgpr_count", default=0)
    accumulators: int = msgspec.field(name=".agpr_count", default=0)
    private: int = msgspec.field(name=".private_segment_fixed_size", default=0)


class _Metadata(msgspec.Struct, frozen=True):
    kernels: list[_Kernel] = msgspec.field(name="amdhsa.kernels", default_factory=list)


def read_resources(data: bytes, kernel: str) -> Resources:
    """The vector registers of `kernel`, including accumulation registers, and the bytes of memory to which it spills;
    zeros if the file does not state them. Raises ValueError unless `data` is an ELF file."""
    for content in _metadata(data):
        for found in decode_msgpack(content, _Metadata).kernels:
            if found.name == kernel:
                return Resources(found.vector + found.accumulators, found.private)
    return Resources()


def _metadata(data: bytes) -> Generator[bytes]:
    file = ElfFile(data)
    for number, header in enumerate(file.sections):
        notes = bytes(file.content(number, "the notes")) if header.kind == SHT_NOTE else b""
        start = 0
        while start + 12 <= len(notes):
            name, length, what = struct.unpack_from("<III", notes, start)
            content = start + 12 + (name + 3) // 4 * 4
            if what == _METADATA:
                yield notes[content : content + length]
            start = content + (length + 3) // 4 * 4
