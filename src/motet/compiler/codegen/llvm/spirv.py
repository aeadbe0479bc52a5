"""Compiles the LLVM IR of kernels for processors to SPIR-V for OpenCL.

A phase stays a function over tasks; the kernel that calls it has parameters that OpenCL can set (the text of
`runtime/drivers/opencl/program.py` describes them):

    spir_kernel NAME__2b1s(ptr b0, ptr b1, i64 s0, i64 tasks, ptr scratch, i64 stride)

It puts its parameters into the arrays that the phase reads, which disappear when the phase is inlined. All pointers of
the IR become pointers of the generic address space, from which LLVM infers the specific ones.

The hint that the kernel computes with vectors keeps platforms from vectorising it across work-items: Intel's made code
16 times as long, for minutes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import llvmlite.binding as llvm

from motet.compiler.codegen.llvm.narrow import narrowed

TRIPLE = "spirv64-unknown-unknown"
Entries = Sequence[tuple[str, int, int]]  # each phase's symbol, its buffers and its sizes

_GENERIC, _GLOBAL = "ptr addrspace(4)", "ptr addrspace(1)"
_POINTER = re.compile(r'(?<![\w.%@"$-])ptr(?![\w."$-])(?! addrspace)')
_MANGLED = re.compile(r"(?<=llvm\.)[a-z][\w.]*?(?:\.p0)+")
_ALLOCA = re.compile(r'\s*%("[^"]+"|[\w.]+) = alloca (.*)')
_CONSTANT = re.compile(r'@("[^"]+"|[\w.$]+) = (.*?)\b(global|constant)\b(.*)')
_DECLARED = re.compile(r'declare [^@]*@"?([\w.]+)"?\(')
_HINT = re.compile(r'@"?llvm\.(?:prefetch|assume)\b')  # LLVM has no SPIR-V for these, which change no result
_ATTRIBUTES = re.compile(r" #\d+(?=$| \{$|, !)")
_FUNCTIONS = frozenset({
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh",
    "erf", "erfc", "exp", "exp10", "exp2", "expm1", "fabs", "floor", "fma", "fmax", "fmin", "fmod", "hypot",
    "log", "log10", "log1p", "log2", "pow", "remainder", "rint", "round", "sin", "sinh", "sqrt", "tan",
    "tanh", "tgamma", "lgamma", "trunc",
})
_OF_TWO = {"atan2", "copysign", "fmax", "fmin", "fmod", "hypot", "pow", "remainder"}
_REFUSED = b"OpenCL lacks: "
_IMPORT, _DECORATE, _LINKAGE = 1, 71, 41  # numbers of SPIR-V


def spirv_module(text: str, parts: Sequence[str], entries: Entries) -> tuple[Any, Any]:
    """A target machine for SPIR-V, and the module of `text` and `parts` with a kernel for each of `entries`. Raises
    RuntimeError for IR that LLVM rejects, NotImplementedError for an instruction that OpenCL lacks."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # Without optimisation: LLVM's loop passes make integers of two bits, which its code for SPIR-V takes for bytes.
    machine: Any = llvm.Target.from_triple(TRIPLE).create_target_machine(opt=0)
    module: Any = llvm.parse_assembly(with_kernels(_linked(text, parts), entries))
    module.triple = TRIPLE
    module.data_layout = str(machine.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    passes: Any = llvm.create_pass_builder(machine, tuning)
    manager = passes.getModulePassManager()
    manager.add_instruction_namer_pass()
    manager.run(module, passes)
    return machine, _narrowed(module)


def spirv_object(text: str, parts: Sequence[str], entries: Entries) -> bytes:
    """The SPIR-V of `spirv_module`; if OpenCL lacks an instruction, `spirv_refusal` tells which."""
    try:
        machine, module = spirv_module(text, parts, entries)
    except NotImplementedError as lacking:
        return _REFUSED + str(lacking).encode()
    return machine.emit_object(module)


def spirv_refusal(code: bytes) -> str:
    """What a kernel has that OpenCL lacks; empty for SPIR-V."""
    return code.removeprefix(_REFUSED).decode() if code.startswith(_REFUSED) else ""


def _linked(text: str, parts: Sequence[str]) -> str:
    """One module of `text` and `parts`, whose functions only `text` calls, as LLVM prints it."""
    module: Any = llvm.parse_assembly(text)
    for part in parts:
        module.link_in(llvm.parse_assembly(part))
    return str(module)


def _narrowed(module: Any) -> Any:
    """`module` with vectors of OpenCL's lanes."""
    text = str(module)
    made: Any = llvm.parse_assembly(narrowed(text))
    made.verify()
    return made


def with_kernels(text: str, entries: Entries) -> str:
    """The LLVM IR `text` over the generic address space, with a kernel for each of `entries`."""
    lines = ["declare spir_func i64 @_Z13get_global_idj(i32)", "declare spir_func i64 @_Z15get_global_sizej(i32)"]
    body = text
    for symbol, _, _ in entries:
        body = re.sub(rf'define void @"?{re.escape(symbol)}"?\(', f'define internal void @"{symbol}"(', body)
    variables = {match[1] for match in _CONSTANT.finditer(body)}
    return "\n".join([*_generic(_with_builtins(body), variables), *lines, *(_kernel(*entry) for entry in entries), ""])


def spirv_imports(code: bytes) -> list[str]:
    """The functions that a SPIR-V module imports; OpenCL's built-in variables are not among them."""
    words = struct.unpack(f"<{len(code) // 4}I", code)
    found: list[str] = []
    for place, opcode, count in _instructions(words):
        if opcode == _DECORATE and words[place + 2] == _LINKAGE and words[place + count - 1] == _IMPORT:
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
            yield f"@{match[1]} = {match[2]}addrspace(1) {match[3]}{match[4]}"
            continue
        if "@" in line and variables:
            line = re.sub(rf'{re.escape(_GENERIC)} @("[^"]+"|[\w.$]+)', lambda use: _cast(use, variables), line)
        if line.startswith("define internal"):
            line = re.sub(r"\bnoinline\b", "", line)
            line = re.sub(r"\)([^()]*)$", r") alwaysinline\1", line, count=1)
        yield line


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
            if base in _FUNCTIONS and base + suffix == name:
                parameters = letter * (3 if base == "fma" else 2 if base in _OF_TWO else 1)
                text = re.sub(rf'@"?{name}"?(?=\()', f"@_Z{len(base)}{base}{parameters}", text)
                break
    return text


def _kernel(symbol: str, buffers: int, sizes: int) -> str:
    """The kernel that runs the phase `symbol`."""
    parameters = [*(f"{_GLOBAL} %b{i}" for i in range(buffers)), *(f"i64 %s{i}" for i in range(sizes))]
    lines = [
        f'define spir_kernel void @"{symbol}__{buffers}b{sizes}s"('
        f'{", ".join([*parameters, "i64 %tasks", f"{_GLOBAL} %scratch", "i64 %stride"])}) '
        "!reqd_work_group_size !{i32 1, i32 1, i32 1} !vec_type_hint !{<16 x float> poison, i32 0} {",
        f"  %buffers = alloca [{max(buffers, 1)} x {_GENERIC}], align 8",
        f"  %sizes = alloca [{max(sizes, 1)} x i64], align 8",
    ]
    for i in range(buffers):
        lines += [
            f"  %g{i} = addrspacecast {_GLOBAL} %b{i} to {_GENERIC}",
            f"  %p{i} = getelementptr {_GENERIC}, ptr %buffers, i64 {i}",
            f"  store {_GENERIC} %g{i}, ptr %p{i}, align 8",
        ]
    for i in range(sizes):
        lines += [f"  %q{i} = getelementptr i64, ptr %sizes, i64 {i}", f"  store i64 %s{i}, ptr %q{i}, align 8"]
    return "\n".join([*lines, *_CALL, f'  call void @"{symbol}"({_ARGUMENTS})', "  ret void", "}"])


_CALL = (
    "  %item = call spir_func i64 @_Z13get_global_idj(i32 0)",
    "  %items = call spir_func i64 @_Z15get_global_sizej(i32 0)",
    "  %next = add i64 %item, 1",
    "  %first = mul i64 %item, %tasks",
    "  %last = mul i64 %next, %tasks",
    "  %begin = udiv i64 %first, %items",
    "  %end = udiv i64 %last, %items",
    "  %offset = mul i64 %item, %stride",
    f"  %own = getelementptr i8, {_GLOBAL} %scratch, i64 %offset",
    f"  %own.generic = addrspacecast {_GLOBAL} %own to {_GENERIC}",
    f"  %buffers.generic = addrspacecast ptr %buffers to {_GENERIC}",
    f"  %sizes.generic = addrspacecast ptr %sizes to {_GENERIC}",
)
_ARGUMENTS = (
    f"{_GENERIC} %buffers.generic, {_GENERIC} %sizes.generic, i64 %begin, i64 %end, {_GENERIC} %own.generic"
)
