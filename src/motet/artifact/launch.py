"""The launch record of a GPU kernel, for drivers: the member `S.json` next to the binary `S.cubin`, `S.ptx` or
`S.hsaco`."""

from __future__ import annotations

from typing import Any

import msgspec


class Launch(msgspec.Struct, frozen=True, omit_defaults=True):
    """`entry` is the function in the binary. A block has `warps` warps and `shared` bytes of shared memory, and
    `scratch` bytes of the scratch memory whose address is the argument before the last. The arguments are `buffers`
    pointers, each aligned to 16 bytes, then `sizes`, then two pointers (scratch, profile). `waits` means that the
    kernel waits for its dependences itself, before it accesses memory, so that it may be launched earlier. `library` is
    a library call that may replace it (`artifact/library.py`), of a version that a runtime may not know. `threads` is
    the exact number of threads of a block if that is not a multiple of the warp size."""

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
