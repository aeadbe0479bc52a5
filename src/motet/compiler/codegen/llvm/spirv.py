"""Compiles the LLVM IR of kernels for processors to SPIR-V for OpenCL.

A phase becomes a kernel by its entry (`entries.py`). All pointers of the IR become pointers of the generic address
space, from which LLVM infers the specific ones.

LLVM keeps the numbers of labels between the modules of a process, and they collide with other numbers in the next
module. A process therefore emits one module, of all kernels of a program.

The hint that the kernel computes with vectors keeps platforms from vectorising it across work-items: Intel's made code
16 times as long, for minutes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import llvmlite.binding as llvm

from motet.compiler.codegen.llvm.entries import (
    WORK_ITEM,
    Entries,
    entry_name,
    entry_parameters,
    inlined,
    with_entries,
)
from motet.compiler.codegen.llvm.legalise.narrow import narrowed
from motet.compiler.codegen.llvm.opencl_c.intrinsics import MATHEMATICS

TRIPLE = "spirv64-unknown-unknown"
_ENTRY = ".entry"  # the end of the names of functions that kernels call

_GENERIC, _GLOBAL = "ptr addrspace(4)", "ptr addrspace(1)"
_POINTER = re.compile(r'(?<![\w.%@"$-])ptr(?![\w."$-])(?! addrspace)')
_MANGLED = re.compile(r"(?<=llvm\.)[a-z][\w.]*?(?:\.p0)+")
_ALLOCA = re.compile(r'\s*%("[^"]+"|[\w.]+) = alloca (.*)')
_CONSTANT = re.compile(r'@("[^"]+"|[\w.$]+) = (.*?)\b(global|constant)\b(.*)')
_DECLARED = re.compile(r'declare [^@]*@"?([\w.]+)"?\(')
_HINT = re.compile(r'@"?llvm\.(?:prefetch|assume)\b')  # LLVM has no SPIR-V for these, which change no result
_LINKAGE = re.compile(r"^(?:(?:linkonce|linkonce_odr|weak|weak_odr|hidden|dso_local) )+")
_ATTRIBUTES = re.compile(r" #\d+(?=$| \{$|, !)")
_OF_TWO = {"atan2", "copysign", "fmax", "fmin", "fmod", "hypot", "pow", "remainder"}
_REFUSED = "OpenCL lacks: "
_IMPORT, _DECORATE, _LINKED = 1, 71, 41  # numbers of SPIR-V


def spirv_ir(text: str, parts: Sequence[str], entries: Entries) -> str:
    """LLVM IR that LLVM's code generator for SPIR-V takes: that of `text` and `parts`, with a kernel for each of
    `entries`, and with vectors of OpenCL's lanes. If OpenCL lacks an instruction, `spirv_refusal` tells which. Raises
    RuntimeError for IR that LLVM rejects."""
    machine = _machine()
    module: Any = llvm.parse_assembly(with_kernels(str(linked([text, *parts])), entries))
    module.triple = TRIPLE
    module.data_layout = str(machine.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    passes: Any = llvm.create_pass_builder(machine, tuning)
    manager = passes.getModulePassManager()
    manager.add_instruction_namer_pass()
    manager.run(module, passes)
    try:
        made = narrowed(str(module))
    except NotImplementedError as lacking:
        return f"{_REFUSED}{lacking}"
    llvm.parse_assembly(made).verify()
    return made


def spirv_module(modules: Sequence[str]) -> tuple[Any, Any]:
    """A target machine for SPIR-V, and the one module of all `modules` that `spirv_ir` has made."""
    return _machine(), linked(modules)


def spirv_refusal(code: bytes) -> str:
    """What a kernel has that OpenCL lacks; empty for LLVM IR."""
    return code.decode().removeprefix(_REFUSED) if code.startswith(_REFUSED.encode()) else ""


def _machine() -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # Without optimisation: LLVM's loop passes make integers of two bits, which its code for SPIR-V takes for bytes.
    return llvm.Target.from_triple(TRIPLE).create_target_machine(opt=0)


def linked(modules: Sequence[str]) -> Any:
    """One module of `modules`."""
    first, *others = map(llvm.parse_assembly, modules)
    for other in others:
        first.link_in(other)
    return first


def with_kernels(text: str, entries: Entries) -> str:
    """The LLVM IR `text` over the generic address space, with a kernel for each of `entries`."""
    body = with_entries(text, entries, _ENTRY)
    for name in WORK_ITEM:
        body = body.replace(f"i64 @{name}(", f"spir_func i64 @_Z{len(name)}{name}j(")
    variables = {match[1] for match in _CONSTANT.finditer(body)}
    lines = inlined(list(_generic(_with_builtins(body), variables)))
    return "\n".join([*lines, *(_kernel(*entry) for entry in entries), ""])


def spirv_imports(code: bytes) -> list[str]:
    """The functions that a SPIR-V module imports; OpenCL's built-in variables are not among them."""
    words = struct.unpack(f"<{len(code) // 4}I", code)
    found: list[str] = []
    for place, opcode, count in _instructions(words):
        if opcode == _DECORATE and words[place + 2] == _LINKED and words[place + count - 1] == _IMPORT:
            name = struct.pack(f"<{count - 4}I", *words[place + 3 : place + count - 1])
            found.append(name.split(b"\0")[0].decode())
    return [name for name in found if not name.startswith("__spirv_BuiltIn")]


def _instructions(words: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """The place, opcode and number of words of each instruction; the header has five words."""
    place = 5
    while place < len(words):
        count = words[place] >> 16
        yield place, words[place] & 0xFFFF, count
        place += max(count, 1)


def _generic(text: str, variables: set[str]) -> Iterator[str]:
    """The lines of `text` with pointers of the generic address space."""
    for line in text.splitlines():
        if line.startswith(("target ", "; ModuleID", "source_filename", "attributes #")) or _HINT.search(line):
            continue
        line = _ATTRIBUTES.sub("", line)
        line = _MANGLED.sub(lambda match: match[0].replace(".p0", ".p4"), _POINTER.sub(_GENERIC, line))
        if match := _ALLOCA.match(line):
            name = match[1].strip('"')
            yield f'  %"{name}.private" = alloca {match[2]}'
            yield f'  %{match[1]} = addrspacecast ptr %"{name}.private" to {_GENERIC}'
            continue
        if match := _CONSTANT.match(line):
            yield f"@{match[1]} = {_own(match[2])}addrspace(1) {match[3]}{match[4]}"
            continue
        if line.startswith("define "):
            line = "define " + _own(line.removeprefix("define "))
        if "@" in line and variables:
            line = re.sub(rf'{re.escape(_GENERIC)} @("[^"]+"|[\w.$]+)', lambda use: _cast(use, variables), line)
        yield line


def _own(declared: str) -> str:
    """A function or variable that other modules of the same name do not meet when they are linked."""
    declared = _LINKAGE.sub("", declared)
    return declared if declared.startswith(("internal ", "private ", "external ")) else f"internal {declared}"


def _cast(use: re.Match[str], variables: set[str]) -> str:
    """A use of the global variable `use[1]`, whose address space is not the generic one."""
    if use[1] not in variables:
        return use[0]
    return f"{_GENERIC} addrspacecast ({_GLOBAL} @{use[1]} to {_GENERIC})"


def _with_builtins(text: str) -> str:
    """`text` with functions of <math.h> replaced by OpenCL's, whose names tell their parameters."""
    for name in set(_DECLARED.findall(text)):
        for suffix, letter in (("f", "f"), ("", "d")):
            base = name.removesuffix(suffix) if suffix else name
            if base in MATHEMATICS and base + suffix == name:
                parameters = letter * (3 if base == "fma" else 2 if base in _OF_TWO else 1)
                text = re.sub(rf'@"?{name}"?(?=\()', f"@_Z{len(base)}{base}{parameters}", text)
                break
    return text


def _kernel(symbol: str, buffers: int, sizes: int) -> str:
    """The kernel of a phase: its entry with the pointers that OpenCL passes."""
    name, given = entry_name(symbol, buffers, sizes), entry_parameters(buffers, sizes, _GLOBAL)
    pointers = [each.removeprefix(f"{_GLOBAL} ") for each in given if each.startswith(_GLOBAL)]
    casts = [f"  {each}.generic = addrspacecast {_GLOBAL} {each} to {_GENERIC}" for each in pointers]
    arguments = ", ".join(
        f"{each.replace(_GLOBAL, _GENERIC)}.generic" if each.startswith(_GLOBAL) else each for each in given
    )
    return "\n".join([
        f'define spir_kernel void @"{name}"({", ".join(given)}) '
        "!reqd_work_group_size !{i32 1, i32 1, i32 1} !vec_type_hint !{<16 x float> poison, i32 0} {",
        *casts, f'  call void @"{name}{_ENTRY}"({arguments})', "  ret void", "}",
    ])
