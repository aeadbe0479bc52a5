"""The launch record of a GPU kernel, for drivers: the member `S.json` next to the binary `S.cubin`, `S.ptx` or
`S.hsaco`."""

from __future__ import annotations

from typing import Any

import msgspec


class Retry(msgspec.Struct, frozen=True):
    """What another compilation with more registers gave: its flags, the registers that it spilled (-1 if it was not
    made), whether it was taken, and why or why not."""

    flags: str
    spilled_registers: int
    taken: bool
    reason: str


class PassedOver(msgspec.Struct, frozen=True):
    """The other size of sub-groups that was tried, the bytes that a work-group then spilled (-1 if it has no code), and
    why it was not taken."""

    sub_group: int
    spilled_bytes: int
    reason: str


class Native(msgspec.Struct, frozen=True, omit_defaults=True):
    """What Intel's offline compiler made of a kernel for `device`, with its `flags`. A work-item's sub-group has
    `registers` registers of `register_bytes` bytes, of which `spilled_registers` were spilled to `spilled_bytes` bytes
    of memory. `max_work_group` is the largest work-group that the registers admit. `sources` tells where each figure
    comes from. `compiler` names the compiler and its version. `passed_over` is what another size of sub-groups gave, if
    it was tried."""

    device: str
    compiler: str
    flags: str
    registers: int
    register_bytes: int
    spilled_registers: int
    spilled_bytes: int
    max_work_group: int
    matrix_engine: bool
    sources: dict[str, str]
    retries: list[Retry] = []
    passed_over: PassedOver | None = None


class Launch(msgspec.Struct, frozen=True, omit_defaults=True):
    """`entry` is the function in the binary. A block has `warps` warps and `shared` bytes of shared memory, and
    `scratch` bytes of the scratch memory whose address is the argument before the last. The arguments are `buffers`
    pointers, each aligned to 16 bytes, then `sizes`, then two pointers (scratch, profile). `waits` means that the
    kernel waits for its dependences itself, before it accesses memory, so that it may be launched earlier. `library` is
    a library call that may replace it (`artifact/library.py`), of a version that a runtime may not know. `threads` is
    the exact number of threads of a block if that is not a multiple of the warp size.

    For OpenCL (`S.zebin`, `S.spv`) a warp is a sub-group of `sub_group` work-items, the arguments are followed by local
    memory of `shared` bytes, if there are any, and by no pointers. `native` describes the machine code."""

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
    sub_group: int = 0
    native: Native | None = None
