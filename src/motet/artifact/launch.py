"""What a driver needs to know of a GPU kernel to launch it: the member `S.json` next to the binary `S.cubin`, `S.ptx`
or `S.hsaco`."""

from __future__ import annotations

import msgspec

from motet.artifact.library import LibraryCall


class Launch(msgspec.Struct, frozen=True, omit_defaults=True):
    """`entry` is the function in the binary; a program of the grid has `warps` warps and `shared` bytes of shared
    memory, and `scratch` bytes of the scratch whose address is the argument before the last. The arguments are
    `buffers` pointers, each aligned to 16 bytes, then `sizes`, then two pointers (scratch, profile). `waits` says that
    it may be launched while what it depends on still runs; `library` is what may run in its place
    (`artifact/library.py`). `threads` is the exact number of threads of a block where that is no number of warps."""

    kernel: str
    entry: str
    warps: int
    ctas: int
    shared: int
    scratch: int
    registers: int
    spills: int
    buffers: int
    sizes: list[str]
    waits: bool
    library: LibraryCall | None = None
    threads: int = 0
