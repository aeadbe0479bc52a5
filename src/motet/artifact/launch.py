"""What a driver needs to know of a GPU kernel to launch it: the member `S.json` next to the binary `S.cubin`, `S.ptx`
or `S.hsaco`."""

from __future__ import annotations

from typing import Any

import msgspec


class Launch(msgspec.Struct, frozen=True, omit_defaults=True):
    """`entry` is the function in the binary; a program of the grid has `warps` warps and `shared` bytes of shared
    memory, and `scratch` bytes of the scratch whose address is the argument before the last. The arguments are
    `buffers` pointers, each aligned to 16 bytes, then `sizes`, then two pointers (scratch, profile). `waits` says that
    it waits for what it depends on by itself, before it touches memory, so that it may be launched earlier. `library`
    is the record of what may run in its place (`artifact/library.py`), of a version that a runtime need not know.
    `threads` is the exact number of threads of a block where that is no number of warps."""

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
    library: dict[str, Any] | None = None
    threads: int = 0
