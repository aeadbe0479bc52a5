"""Writes the function that the driver launches: makes memrefs from pointers and sizes, and calls the kernel's body.

    define ptx_kernel void @K(ptr addrspace(1) %b0, …, i64 %s0, …, ptr addrspace(1) %scratch, ptr addrspace(1) %none)

A grid is one-dimensional, and so is a block:

- *plain*: block n of the grid is block n of the launch, with as many threads;
- *packed*: if the threads of a block do not interact by barriers or memory, `PACKED` threads of any blocks form one
  block, since a block of 1 or 27 threads would leave most of an SM unused;
- *turns*: if the grid is known only at run time, a fixed number of blocks loop over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from motet.compiler.codegen.nvvm.body import BODY

PACKED = 256
KEPT_THREADS = 256
KEPT_BYTES = KEPT_THREADS * 64  # copied by a block of `keep`
_IDS = (
    "  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()", "  %bid = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()",
)
_LLVM = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double", "index": "i64"}


@dataclass(frozen=True)
class Argument:
    """An argument of the body: `buffer` is its memory; `shape` are the extents of a memref, sizes as `%s0`, or None for
    a scalar of `dtype`. `alone` means that no other buffer of the body is the same memory."""

    buffer: int
    dtype: str
    shape: tuple[int | str, ...] | None
    writes: bool
    space: int = 0


def entry_text(
    symbol: str, buffers: Sequence[int], sizes: int, arguments: Sequence[Argument],
    mode: Literal["plain", "packed", "turns"], threads: int, blocks: int | str,
) -> str:
    """LLVM IR of the function `symbol`, whose arguments are the kernel's `buffers`. `blocks` is the number of blocks of
    the launch, or the name of a function that computes it from the body's arguments without the last two."""
    lines: list[str] = []
    operands: list[str] = []
    for number, argument in enumerate(arguments):
        operands += _operand(number, argument, lines)
    lines += _IDS
    if mode == "plain":
        lines += [f"  call void @{BODY}({', '.join([*operands, 'i32 %bid', 'i32 %tid'])})", "  ret void"]
    elif mode == "packed":
        known = blocks * threads if isinstance(blocks, int) else None
        total = "%total" if known is None else str(known)
        if known is None:
            lines += [
                f"  %blocks = call i64 @{blocks}({', '.join(operands)})", f"  %total = mul i64 %blocks, {threads}",
            ]
        lines += [
            "  %bid64 = zext i32 %bid to i64", "  %tid64 = zext i32 %tid to i64",
            f"  %first = mul nuw nsw i64 %bid64, {PACKED}", "  %number = add nuw nsw i64 %first, %tid64",
            f"  %there = icmp ult i64 %number, {total}", "  br i1 %there, label %work, label %done", "work:",
            *_packed_numbers(threads, known),
            f"  call void @{BODY}({', '.join([*operands, 'i32 %block', 'i32 %thread'])})",
            "  br label %done", "done:", "  ret void",
        ]
    else:
        lines += [
            f"  %total = call i64 @{blocks}({', '.join(operands)})",
            "  %count = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()", "  %step = zext i32 %count to i64",
            "  %begin = zext i32 %bid to i64", "  br label %check", "check:",
            "  %turn = phi i64 [ %begin, %entry ], [ %next, %work ]", "  %more = icmp slt i64 %turn, %total",
            "  br i1 %more, label %work, label %done", "work:", "  %block = trunc i64 %turn to i32",
            f"  call void @{BODY}({', '.join([*operands, 'i32 %block', 'i32 %tid'])})",
            "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
            "  %next = add nuw nsw i64 %turn, %step", "  br label %check", "done:", "  ret void",
        ]
    written = {argument.buffer for argument in arguments if argument.writes}
    parameters = [f"ptr addrspace(1) noalias {'' if n in written else 'readonly '}align 16 %b{n}" for n in buffers]
    block = PACKED if mode == "packed" else threads
    return "\n".join([_header(symbol, parameters, sizes), *lines, "}", *_footer(block)])


def keep_text(
    symbol: str, buffers: Sequence[int], sizes: int, pairs: Sequence[tuple[int, int, str, tuple[int | str, ...]]]
) -> str:
    """LLVM IR of a function that copies buffers to buffers unless they are the same: `pairs` are source, target, bytes
    per element, and the extents."""
    lines = [
        *_IDS, "  %bid64 = zext i32 %bid to i64", "  %tid64 = zext i32 %tid to i64",
        f"  %first = mul i64 %bid64, {KEPT_BYTES}", "  %within = mul i64 %tid64, 16",
        "  %start = add i64 %first, %within", "  br label %copy0",
    ]
    for number, (source, target, item, shape) in enumerate(pairs):
        after = f"copy{number + 1}" if number + 1 < len(pairs) else "done"
        lines.append(f"copy{number}:")
        bytes_ = item
        for axis, extent in enumerate(shape):
            lines.append(f"  %bytes{number}_{axis} = mul i64 {bytes_}, {extent}")
            bytes_ = f"%bytes{number}_{axis}"
        lines += [
            f"  %same{number} = icmp eq ptr addrspace(1) %b{source}, %b{target}",
            f"  br i1 %same{number}, label %{after}, label %begin{number}", f"begin{number}:",
        ]
        for step in range(KEPT_BYTES // KEPT_THREADS // 16):
            lines += _copied(f"{number}_{step}", source, target, step, bytes_)
        lines.append(f"  br label %{after}")
    lines += ["done:", "  ret void"]
    parameters = [f"ptr addrspace(1) align 16 %b{number}" for number in buffers]
    return "\n".join([_header(symbol, parameters, sizes), *lines, "}", *_footer(KEPT_THREADS)])


def _copied(name: str, source: int, target: int, step: int, bytes_: str) -> list[str]:
    """Copy 16 bytes at a time, and the rest byte by byte."""
    return [
        f"  %at{name} = add i64 %start, {step * KEPT_THREADS * 16}", f"  %end{name} = add i64 %at{name}, 16",
        f"  %whole{name} = icmp ule i64 %end{name}, {bytes_}",
        f"  br i1 %whole{name}, label %wide{name}, label %check{name}", f"wide{name}:",
        f"  %from{name} = getelementptr i8, ptr addrspace(1) %b{source}, i64 %at{name}",
        f"  %to{name} = getelementptr i8, ptr addrspace(1) %b{target}, i64 %at{name}",
        f"  %value{name} = load <4 x i32>, ptr addrspace(1) %from{name}, align 16",
        f"  store <4 x i32> %value{name}, ptr addrspace(1) %to{name}, align 16", f"  br label %next{name}",
        f"check{name}:",
        f"  %place{name} = phi i64 [ %at{name}, %{_before(name)} ], [ %further{name}, %byte{name} ]",
        f"  %left{name} = icmp ult i64 %place{name}, {bytes_}",
        f"  br i1 %left{name}, label %byte{name}, label %next{name}", f"byte{name}:",
        f"  %fromb{name} = getelementptr i8, ptr addrspace(1) %b{source}, i64 %place{name}",
        f"  %tob{name} = getelementptr i8, ptr addrspace(1) %b{target}, i64 %place{name}",
        f"  %valueb{name} = load i8, ptr addrspace(1) %fromb{name}",
        f"  store i8 %valueb{name}, ptr addrspace(1) %tob{name}", f"  %further{name} = add i64 %place{name}, 1",
        f"  br label %check{name}", f"next{name}:",
    ]


def _before(name: str) -> str:
    """The block in which the copy `name` begins."""
    number, step = map(int, name.split("_"))
    return f"next{number}_{step - 1}" if step else f"begin{number}"


def _packed_numbers(threads: int, total: int | None) -> list[str]:
    """Compute the block and thread of the launch from `%number`, below `total`."""
    if threads == 1:
        return ["  %block = trunc i64 %number to i32", "  %thread = add i32 0, 0"]
    if total is not None and total < 1 << 32:
        return [
            "  %short = trunc i64 %number to i32", f"  %block = udiv i32 %short, {threads}",
            f"  %thread = urem i32 %short, {threads}",
        ]
    return [
        f"  %block64 = udiv i64 %number, {threads}", f"  %thread64 = urem i64 %number, {threads}",
        "  %block = trunc i64 %block64 to i32", "  %thread = trunc i64 %thread64 to i32",
    ]


def _operand(number: int, argument: Argument, lines: list[str]) -> list[str]:
    """The body's arguments for `argument`: a scalar, or a pointer twice, the offset, extents and strides."""
    pointer = f"%b{argument.buffer}"
    if argument.shape is None:
        kind = _LLVM.get(argument.dtype, argument.dtype)
        if kind == "i1":
            lines.append(f"  %byte{number} = load i8, ptr addrspace(1) {pointer}")
            lines.append(f"  %v{number} = trunc i8 %byte{number} to i1")
        else:
            lines.append(f"  %v{number} = load {kind}, ptr addrspace(1) {pointer}")
        return [f"{kind} %v{number}"]
    shape = [str(extent) for extent in argument.shape]
    strides = ["1"] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = f"%stride{number}_{axis}"
        lines.append(f"  {strides[axis]} = mul nsw i64 {strides[axis + 1]}, {shape[axis + 1]}")
    if argument.space:
        pointers = [f"ptr addrspace({argument.space}) {pointer}"] * 2
    else:
        lines.append(f"  %p{number} = addrspacecast ptr addrspace(1) {pointer} to ptr")
        pointers = [f"ptr %p{number}"] * 2
    return [*pointers, "i64 0", *(f"i64 {word}" for word in (*shape, *strides))]


def _header(symbol: str, parameters: Sequence[str], sizes: int) -> str:
    words = [*parameters, *(f"i64 %s{number}" for number in range(sizes))]
    words += ["ptr addrspace(1) %scratch", "ptr addrspace(1) %none"]
    return f"define ptx_kernel void @{symbol}({', '.join(words)}) #7000 {{\nentry:"


def _footer(threads: int) -> list[str]:
    return [
        "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()", "declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()",
        "declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()",
        "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)",
        f'attributes #7000 = {{ "nvvm.reqntid"="{threads},1,1" "uniform-work-group-size"="true" }}', "",
    ]
