"""Adds to the LLVM IR of phases the function that a work-item runs: its share of a phase's tasks.

The parameters of such a function are those that OpenCL can set (`runtime/drivers/opencl/program.py` describes them):

    void @NAME__2b1s(ptr %b0, ptr %b1, i64 %s0, i64 %tasks, ptr %scratch, i64 %stride)

It puts buffers and sizes into the arrays that the phase reads. The arrays disappear when the phase is inlined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

Entries = Sequence[tuple[str, int, int]]  # each phase's symbol, its buffers and its sizes

WORK_ITEM = ("get_global_id", "get_global_size")  # functions that entries call


def entry_name(symbol: str, buffers: int, sizes: int) -> str:
    """The name of the kernel that runs a phase."""
    return f"{symbol}__{buffers}b{sizes}s"


def entry_parameters(buffers: int, sizes: int, pointer: str = "ptr") -> list[str]:
    """The parameters of a kernel."""
    own = [*(f"{pointer} %b{i}" for i in range(buffers)), *(f"i64 %s{i}" for i in range(sizes))]
    return [*own, "i64 %tasks", f"{pointer} %scratch", "i64 %stride"]


def with_entries(text: str, entries: Entries, suffix: str = "") -> str:
    """The IR `text` with a function for each of `entries`, whose name ends in `suffix`. The phases become internal."""
    for symbol, _, _ in entries:
        text = re.sub(rf'define void @"?{re.escape(symbol)}"?\(', f'define internal void @"{symbol}"(', text)
    declared = [f"declare i64 @{name}(i32)" for name in WORK_ITEM]
    return "\n".join([text, *declared, *(_entry(*entry, suffix) for entry in entries), ""])


def inlined(lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    """The `lines` of a module whose functions are all inlined where they are called."""
    for line in lines:
        if line.startswith("define "):
            line = re.sub(r"\bnoinline\b", "", line)
            line = re.sub(r"\)([^()]*)$", r") alwaysinline\1", line, count=1)
        yield line


def _entry(symbol: str, buffers: int, sizes: int, suffix: str) -> str:
    parameters = ", ".join(entry_parameters(buffers, sizes))
    lines = [
        f'define void @"{entry_name(symbol, buffers, sizes)}{suffix}"({parameters}) {{',
        f"  %buffers = alloca [{max(buffers, 1)} x ptr], align 8",
        f"  %sizes = alloca [{max(sizes, 1)} x i64], align 8",
    ]
    for kind, letter, count, array in (("ptr", "b", buffers, "buffers"), ("i64", "s", sizes, "sizes")):
        for i in range(count):
            lines += [
                f"  %{letter}p{i} = getelementptr {kind}, ptr %{array}, i64 {i}",
                f"  store {kind} %{letter}{i}, ptr %{letter}p{i}, align 8",
            ]
    return "\n".join([*lines, *_SHARE, f'  call void @"{symbol}"({_ARGUMENTS})', "  ret void", "}"])


_SHARE = (
    "  %item = call i64 @get_global_id(i32 0)",
    "  %items = call i64 @get_global_size(i32 0)",
    "  %next = add i64 %item, 1",
    "  %first = mul i64 %item, %tasks",
    "  %last = mul i64 %next, %tasks",
    "  %begin = udiv i64 %first, %items",
    "  %end = udiv i64 %last, %items",
    "  %offset = mul i64 %item, %stride",
    "  %own = getelementptr i8, ptr %scratch, i64 %offset",
)
_ARGUMENTS = "ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %own"
