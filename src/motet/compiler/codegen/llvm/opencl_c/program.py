"""Compiles the LLVM IR of kernels for processors to programs in OpenCL C.

LLVM inlines each phase into its kernel (`codegen/llvm/entries.py`) and simplifies it. What is left is printed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm

from motet.compiler.codegen.llvm.entries import Entries, entry_name, inlined, with_entries
from motet.compiler.codegen.llvm.ir import Inexpressible, IrValue, Module, bits_of, elements_of, field_offset, size_of
from motet.compiler.codegen.llvm.opencl_c.flow import print_kernel
from motet.compiler.codegen.llvm.opencl_c.support import Support
from motet.compiler.codegen.llvm.reader import read_module

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
#define IN_MEMORY __attribute__((may_alias))
#else
#define CONVERT(type, value) convert_##type(value)
#define IN_MEMORY
#endif
typedef uchar motet_uchar IN_MEMORY;
typedef ushort motet_ushort IN_MEMORY;
typedef uint motet_uint IN_MEMORY;
typedef ulong motet_ulong IN_MEMORY;
typedef float motet_float IN_MEMORY;
#ifdef cl_khr_fp64
typedef double motet_double IN_MEMORY;
#endif
#endif
"""


def opencl_c_program(text: str, entries: Entries, parts: Sequence[str] = (), widest: int = 16) -> str:
    """The program of the LLVM IR `text`, linked with `parts`, with a kernel for each of `entries`, and with vectors of
    at most `widest` lanes; `refusal` tells whether OpenCL C lacks something in it. Programs may be joined. Raises
    RuntimeError for IR that LLVM rejects."""
    try:
        return _program(read_module(_simplified(text, entries, parts)), entries, widest)
    except Inexpressible as lacking:
        return f"{_REFUSED}{lacking}\n"


def refusal(program: bytes) -> str:
    """What OpenCL C lacks for a program; empty if nothing."""
    text = program.decode()
    return text.removeprefix(_REFUSED).strip() if text.startswith(_REFUSED) else ""


def _program(module: Module, entries: Entries, widest: int) -> str:
    support = Support()
    names = {name: f"motet_table_{entries[0][0]}_{number}" for number, name in enumerate(module.variables)}
    kernels: list[str] = []
    for symbol, buffers, sizes in entries:
        function = module.functions[_kernel_name(symbol, buffers, sizes)]
        kernels.append(print_kernel(function, names, support, widest))
    used = "\n".join(kernels)
    tables = [_table(names[name], value) for name, value in module.variables.items() if names[name] in used]
    return "\n".join([_HEAD, *tables, support.text, *kernels, ""])


def _kernel_name(symbol: str, buffers: int, sizes: int) -> str:
    if not re.fullmatch(r"\w+", symbol):
        raise Inexpressible(f"a kernel of the name {symbol}")
    return entry_name(symbol, buffers, sizes)


def _simplified(text: str, entries: Entries, parts: Sequence[str]) -> str:
    """The text of the module after LLVM's passes, in which each kernel is one function."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine: Any = llvm.Target.from_triple(_TRIPLE).create_target_machine(opt=3)
    module: Any = llvm.parse_assembly(with_entries(_inlined(text), entries))
    for part in parts:
        module.link_in(llvm.parse_assembly(_inlined(part)))
    module.triple = _TRIPLE
    module.data_layout = str(machine.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    passes: Any = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    return str(module)


def _inlined(text: str) -> str:
    """`text` without the processor that it is for, with all functions inlined."""
    lines = (line for line in text.splitlines() if not line.startswith(("target ", "source_filename")))
    return "\n".join(inlined(lines))


def _table(name: str, value: IrValue) -> str:
    """The definition of a constant variable."""
    data = _bytes(value)
    data += bytes(-len(data) % 8)
    words = ", ".join(f"{word:#x}ul" for word in struct.unpack(f"<{len(data) // 8}Q", data))
    return f"constant ulong {name}[] __attribute__((aligned(64))) = {{{words or '0'}}};"


def _bytes(value: IrValue) -> bytes:
    """A constant as it is in memory."""
    kind = value.type
    if not kind.lanes and not kind.is_array and not kind.is_struct:
        return (bits_of(value) or 0).to_bytes(size_of(kind), "little")
    elements = [_bytes(element) for element in elements_of(value)]
    if not kind.is_struct:
        return b"".join(elements)
    data = bytearray(size_of(kind))
    for number, element in enumerate(elements):
        place = field_offset(kind, number)
        data[place : place + len(element)] = element
    return bytes(data)
