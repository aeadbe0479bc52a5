"""Writes tensor-core instructions for tiles of several parts, one instruction for all parts.

The sides of Gluon's tensors are powers of two, with separate instructions for each tensor: with tiles 192 wide, the
left operand would be read from shared memory twice. The instruction supports any multiple of 8 columns up to 256. It is
written as inline assembly here, for 16-bit operands of which the left one is contiguous along K and the parts of the
right one are consecutive in shared memory. Its sums are those of the parts in order. Threads are numbered from the
first consumer warp on, so that the first four warps hold the tile's first 64 rows.
Source: PTX ISA, "wgmma.mma_async", "matrix descriptor".
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.gpu.gemm.persistent_tiles import PersistentParts, Ring

_LINE = 128  # bytes of an operand in shared memory
_STEP = 16  # steps of K of an instruction
_LINES = 8  # after which the swizzle pattern of an operand repeats
_GROUP = 64  # rows of a group of four warps
_ITEM = 2  # bytes of an operand's element
_UNIT = 4  # low bits that descriptors omit from addresses and strides
_PATTERN = 1  # the swizzle of lines of 128 bytes


@dataclass(frozen=True)
class _Described:
    """How an instruction addresses an operand in shared memory: the descriptor's bits next to the address, the distance
    to the next steps of K, and whether lines run across K."""

    bits: int
    step: int
    across: bool


def _described(ring: Ring, across: bool) -> _Described:
    """The descriptor of an operand whose lines of 128 bytes run along K, or `across` it, with its parts far apart."""
    bits = _PATTERN << 62 | (_LINES * _LINE >> _UNIT) << 32
    if not across:
        return _Described(bits | 1 << 16, _STEP * _ITEM >> _UNIT, False)
    return _Described(bits | (ring.k * _LINE >> _UNIT) << 16, _STEP * _LINE >> _UNIT, True)


def functions(ring: Ring, parts: PersistentParts) -> str:
    """The text of the instructions for one slot, with their operands and those of the wait for them."""
    sums = ring.m * ring.n // (32 * ring.warps)
    operands = f'["=f"] * {sums} + [str(i) for i in range({sums})]'
    left, right = _described(ring, False), _described(ring, not parts.right.across)
    group = (_GROUP * _LINE).bit_length() - 1
    instruction = f"wgmma.mma_async.sync.aligned.m{_GROUP}n{ring.n}k{_STEP}.f32.{parts.factor}.{parts.factor}"
    return f'''TURN = gl.constexpr(",".join({operands} + ["r", "r", "r", "~{{memory}}"]))
DONE = gl.constexpr(",".join({operands} + ["~{{memory}}"]))


@gluon.constexpr_function
def turn(outputs, inputs):
    sums = ", ".join(name for part in outputs for name in part)
    left, right, begun = (names[0] for names in inputs[-3:])
    lines = [
        ".reg .pred p;", ".reg .b32 x, y;", ".reg .b64 a, b;", f"setp.ne.b32 p, {{begun}}, 0;",
        "mov.u32 x, %tid.x;", "shr.u32 x, x, 7;", "shl.b32 x, x, {group};", f"add.u32 x, {{left}}, x;",
        "bfe.u32 x, x, {_UNIT}, 14;", "cvt.u64.u32 a, x;", "or.b64 a, a, {left.bits:#x};",
        f"bfe.u32 y, {{right}}, {_UNIT}, 14;", "cvt.u64.u32 b, y;", "or.b64 b, b, {right.bits:#x};",
        "wgmma.fence.sync.aligned;",
    ]
    for step in range({ring.k // _STEP}):
        if step > 0:
            lines += ["add.s64 a, a, {left.step};", "add.s64 b, b, {right.step};"]
        if step == 1:
            lines.append("setp.eq.b32 p, x, x;")
        lines.append(f"{instruction} {{{{{{sums}}}}}}, a, b, p, 1, 1, 0, {right.across:d};")
    lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 1;"]
    return "{{ " + " ".join(lines) + " }}"'''


def turn_lines(ring: Ring, begun: str) -> list[str]:
    """The lines that multiply one slot's tiles, after which those of the previous slot are done. `begun` tells whether
    there is a previous one."""
    sums, types = _listed("r{}", ring), _listed("r{}.type", ring)
    right = f"rights0.index({at(ring, 0)})"
    given = f"[{sums}, lefts.index(place), {right}, ({begun}).to(gl.int32)]"
    return [f"{sums} = gl.inline_asm(turn, TURN, {given}, [{types}])"]


def done_line(ring: Ring) -> str:
    """The line that waits for all products."""
    sums, types = _listed("r{}", ring), _listed("r{}.type", ring)
    text = "wgmma.wait_group.sync.aligned 0;"
    return f'{_listed("acc{}", ring)} = gl.inline_asm("{text}", DONE, [{sums}], [{types}])'


def at(ring: Ring, part: int) -> str:
    """The buffer of a part of the right operand; parts are consecutive."""
    return f"place * {len(ring.widths)}" + (f" + {part}" if part else "")


def _listed(name: str, ring: Ring) -> str:
    return ", ".join(name.format(i) for i in range(len(ring.widths)))
