"""Compiles the LLVM IR of kernels for processors to programs in OpenCL C.

LLVM inlines each phase into a kernel with parameters that OpenCL can set (`runtime/drivers/opencl/program.py` describes
them), and simplifies it; what is left is printed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import llvmlite.binding as llvm

from motet.compiler.codegen.llvm.opencl_c.flow import print_kernel
from motet.compiler.codegen.llvm.opencl_c.model import (
    Aggregate,
    Array,
    Inexpressible,
    IrStruct,
    Number,
    Value,
    field_offset,
    size_of,
)
from motet.compiler.codegen.llvm.opencl_c.reader import read_module
from motet.compiler.codegen.llvm.opencl_c.support import Support

Entries = Sequence[tuple[str, int, int]]  # each phase's symbol, its buffers and its sizes

_TRIPLE = "spirv64-unknown-unknown"  # no vectors, intrinsics or costs of any processor
_REFUSED = "#error OpenCL C has no "
_HEAD = """\
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif
#pragma OPENCL FP_CONTRACT OFF
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#ifndef CONVERT
#ifdef __clang__
#define CONVERT(type, value) __builtin_convertvector(value, type)
#else
#define CONVERT(type, value) convert_##type(value)
#endif
#endif
"""


def opencl_c_program(text: str, entries: Entries, parts: Sequence[str] = ()) -> str:
    """The program of the LLVM IR `text`, linked with `parts`, with a kernel for each of `entries`; `refusal`
    tells whether OpenCL C lacks something in it. Programs may be joined. Raises RuntimeError for IR that LLVM
    rejects."""
    try:
        return _program(text, entries, parts)
    except Inexpressible as lacking:
        return f"{_REFUSED}{lacking}\n"


def refusal(program: bytes) -> str:
    """What OpenCL C lacks for a program; empty if nothing."""
    text = program.decode()
    return text.removeprefix(_REFUSED).strip() if text.startswith(_REFUSED) else ""


def _program(text: str, entries: Entries, parts: Sequence[str]) -> str:
    module = read_module(_simplified(text, entries, parts))
    support = Support()
    names = {name: f"motet_table_{entries[0][0]}_{number}" for number, name in enumerate(module.variables)}
    kernels: list[str] = []
    for symbol, buffers, sizes in entries:
        function = module.functions[_kernel_name(symbol, buffers, sizes)]
        kernels.append(print_kernel(function, names, support))
    used = "\n".join(kernels)
    tables = [_table(names[name], value) for name, value in module.variables.items() if names[name] in used]
    return "\n".join([_HEAD, *tables, support.text, *kernels, ""])


def _kernel_name(symbol: str, buffers: int, sizes: int) -> str:
    if not re.fullmatch(r"\w+", symbol):
        raise Inexpressible(f"a kernel of the name {symbol}")
    return f"{symbol}__{buffers}b{sizes}s"


def _simplified(text: str, entries: Entries, parts: Sequence[str]) -> str:
    """The text of the module after LLVM's passes, in which each kernel is one function."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine: Any = llvm.Target.from_triple(_TRIPLE).create_target_machine(opt=3)
    module: Any = llvm.parse_assembly(_with_kernels(text, entries))
    for part in parts:
        module.link_in(llvm.parse_assembly(_inlined(part, ())))
    module.triple = _TRIPLE
    module.data_layout = str(machine.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    passes: Any = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    return str(module)


def _with_kernels(text: str, entries: Entries) -> str:
    lines = [_inlined(text, [symbol for symbol, _, _ in entries]), "declare i64 @get_global_id(i32)"]
    return "\n".join([*lines, "declare i64 @get_global_size(i32)", *(_kernel(*entry) for entry in entries), ""])


def _inlined(text: str, phases: Sequence[str]) -> str:
    """`text` with all functions inlined."""
    for symbol in phases:
        text = re.sub(rf'define void @"?{re.escape(symbol)}"?\(', f'define internal void @"{symbol}"(', text)
    return "\n".join(_lines(text))


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith(("target ", "source_filename")):
            continue
        if line.startswith("define "):
            line = re.sub(r"\bnoinline\b", "", line)
            line = re.sub(r"\)([^()]*)$", r") alwaysinline\1", line, count=1)
        yield line


def _kernel(symbol: str, buffers: int, sizes: int) -> str:
    """A function that runs the phase `symbol` on a work-item's tasks."""
    parameters = [*(f"ptr %b{i}" for i in range(buffers)), *(f"i64 %s{i}" for i in range(sizes))]
    lines = [
        f'define void @"{_kernel_name(symbol, buffers, sizes)}"('
        f'{", ".join([*parameters, "i64 %tasks", "ptr %scratch", "i64 %stride"])}) {{',
        f"  %buffers = alloca [{max(buffers, 1)} x ptr], align 8",
        f"  %sizes = alloca [{max(sizes, 1)} x i64], align 8",
    ]
    for kind, letter, count, array in (("ptr", "b", buffers, "buffers"), ("i64", "s", sizes, "sizes")):
        for i in range(count):
            lines += [
                f"  %{letter}p{i} = getelementptr {kind}, ptr %{array}, i64 {i}",
                f"  store {kind} %{letter}{i}, ptr %{letter}p{i}, align 8",
            ]
    return "\n".join([*lines, *_CALL, f'  call void @"{symbol}"({_ARGUMENTS})', "  ret void", "}"])


_CALL = (
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


def _table(name: str, value: Value) -> str:
    """The definition of a constant variable."""
    data = _bytes(value)
    data += bytes(-len(data) % 8)
    words = ", ".join(f"{word:#x}ul" for word in struct.unpack(f"<{len(data) // 8}Q", data))
    return f"constant ulong {name}[] __attribute__((aligned(64))) = {{{words or '0'}}};"


def _bytes(value: Value) -> bytes:
    """A constant as it is in memory."""
    if isinstance(value, Number):
        return value.bits.to_bytes(size_of(value.type), "little")
    if not isinstance(value, Aggregate):
        raise Inexpressible("a table of addresses")
    if isinstance(value.type, IrStruct):
        data = bytearray(size_of(value.type))
        for number, each in enumerate(value.elements):
            own = _bytes(each)
            place = field_offset(value.type, number)
            data[place : place + len(own)] = own
        return bytes(data)
    assert isinstance(value.type, Array) or value.elements
    return b"".join(map(_bytes, value.elements))

