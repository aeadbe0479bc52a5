"""Exports a function as C: a source file that calls its kernels, their objects, and its constants.

    model.h              the interface
    model.c              the commands in order, and the memory plan as static arrays
    model.constants      included by model.c with .incbin, by the path of this folder
    model.0.o, …         the kernels, position-independent, for the target

`cc -c model.c && cc main.c model.o model.0.o … -lm` builds a program. The function uses static memory, so that only
one thread may call it at a time; it allocates no memory and keeps no state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.artifact.schema import STATUS_BYTES, TensorSpec
from motet.exporting.static import StaticFunction, shape_text
from motet.runtime.device import Reference, Work
from motet.runtime.drivers.common.recording import bytes_of
from motet.runtime.instantiate import ALIGNMENT

# Names that arguments must not have: the function's own names, and C's keywords.
_RESERVED = frozenset(re.findall(r"\w+", """
    arena scratch buffers sizes memmove memset auto break case char const continue default do double else enum extern
    float for goto if inline int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while
"""))
_C_TYPES = {  # other types have 8 bits or fewer, and each element takes a byte
    "f64": "double", "f32": "float", "i64": "int64_t", "i32": "int32_t", "i16": "int16_t", "i8": "int8_t",
    "ui64": "uint64_t", "ui32": "uint32_t", "ui16": "uint16_t", "ui8": "uint8_t", "i1": "uint8_t",
    "f16": "uint16_t", "bf16": "uint16_t", "index": "int64_t",
}


@dataclass(frozen=True)
class Sources:
    """Files by name."""

    files: dict[str, bytes]


def export_c(function: StaticFunction, name: str) -> Sources:
    """The files for `function`, named `name` in C."""
    writer = _CWriter(function, name)
    files = {f"{name}.h": writer.header().encode(), f"{name}.c": writer.source().encode()}
    if function.parameters:
        files[f"{name}.constants"] = writer.constants()
    files |= {f"{name}.{number}.o": data for number, data in enumerate(function.objects)}
    return Sources(files)


def identifier(text: str) -> str:
    """`text` as a valid C identifier."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return f"_{plain}" if not plain or plain[0].isdigit() else plain


def _role(what: str, spec: TensorSpec) -> str:
    """The description of an input or a result in the header."""
    if spec.state is None:
        return what
    return f"state @{spec.state} before the call" if what == "input" else f"state @{spec.state} after the call"


class _CWriter:
    def __init__(self, function: StaticFunction, name: str) -> None:
        self.function = function
        self.name = name
        concrete = function.concrete
        signature = function.signature
        self.inputs = unique_names([identifier(spec.name) for spec in signature.inputs])
        results = [identifier(spec.name + ("_after" if spec.state else "")) for spec in signature.results]
        self.results = unique_names([*self.inputs, *results])[len(self.inputs) :]
        # The C name of each external, in the order in which the work refers to them.
        self.bases: list[str] = list(self.inputs)
        for spec, own in zip(signature.results, self.results, strict=True):
            self.bases.append(own if spec.destination is None else self.inputs[spec.destination])
        self.bases.append("arena")
        self.offsets: list[int] = []
        end = 0
        for array in function.parameters:
            self.offsets.append(end)
            end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        self.bases += [f"{name}_constants + {offset}" for offset in self.offsets]
        self.concrete = concrete
        names = unique_names([identifier(each) for each in function.kernels])
        self.kernels = dict(zip(function.kernels, names, strict=True))
        statuses = concrete.statuses
        self.checks = [] if statuses is None else [text for texts in statuses.checks for text in texts]

    def header(self) -> str:
        guard = f"MOTET_{self.name.upper()}_H"
        signature, lines = self.function.signature, list[str]()
        for what, specs, shapes, names in (
            ("input", signature.inputs, self.concrete.inputs, self.inputs),
            ("result", signature.results, self.concrete.results, self.results),
        ):
            lines += [
                f" *   {own}: {_role(what, spec)}, {shape_text(shape.extents, spec.dtype)}, {shape.bytes} bytes"
                + (f"; written to {self.inputs[spec.destination]}" if spec.destination is not None else "")
                for spec, shape, own in zip(specs, shapes, names, strict=True)
            ]
        variant = self.function.variant
        about = "\n".join([f"/* {signature.name} for {variant.family}:{variant.target}, made by Motet.", *lines])
        failing = (
            f" * Returns 0, or the number of the check that failed: {self.name}_checks[number - 1] says what it is.\n"
            if self.checks else ""
        )
        return (
            f"{about}\n{failing} * Memory in C order, aligned as its elements are. Called by one thread at a time. */\n"
            f"#ifndef {guard}\n#define {guard}\n#include <stdint.h>\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n"
            + (f"extern const char *const {self.name}_checks[{len(self.checks)}];\n" if self.checks else "")
            + f"{self._prototype()};\n#ifdef __cplusplus\n}}\n#endif\n#endif\n"
        )

    def _prototype(self) -> str:
        signature = self.function.signature
        destinations = {spec.destination for spec in signature.results}
        arguments = [
            _argument(spec, own, written=index in destinations)
            for index, (spec, own) in enumerate(zip(signature.inputs, self.inputs, strict=True))
        ]
        arguments += [
            _argument(spec, own, written=True)
            for spec, own in zip(signature.results, self.results, strict=True) if spec.destination is None
        ]
        return f"{'int' if self.checks else 'void'} {self.name}({', '.join(arguments) or 'void'})"

    def source(self) -> str:
        concrete = self.concrete
        lines = [f'#include "{self.name}.h"', "#include <string.h>", ""]
        lines += [
            f"void {own}(void **buffers, const int64_t *sizes, int64_t begin, int64_t end, void *scratch)"
            + (";" if own == kernel else f' __asm__("{kernel}");')  # kernel names may not be valid in C
            for kernel, own in self.kernels.items()
        ]
        if self.function.parameters:
            lines += [
                "", '__asm__(".section .rodata\\n"', f'        ".balign {ALIGNMENT}\\n"',
                f'        "{self.name}_constants:\\n"', f'        ".incbin \\"{self.name}.constants\\"\\n"',
                '        ".previous\\n");', f"extern unsigned char {self.name}_constants[];",
            ]
        for what, size in (("arena", concrete.arena), ("scratch", concrete.scratch)):
            lines.append(f"static _Alignas({ALIGNMENT}) unsigned char {what}[{max(size, ALIGNMENT)}];")
        if self.checks:
            texts = "".join(f"    {json.dumps(text, ensure_ascii=False)},\n" for text in self.checks)
            lines.append(f"const char *const {self.name}_checks[{len(self.checks)}] = {{\n{texts}}};")
        before, after = self._statuses()
        body = [*before, *(line for work in concrete.work for line in self._command(work)), *after]
        return "\n".join([
            *lines, "", f"{self._prototype()} {{", "    (void)arena, (void)scratch;", *body, "}", "",
        ])

    def _statuses(self) -> tuple[list[str], list[str]]:
        """The code that clears the words that checks write to, and the code that returns the first one that is not
        zero."""
        statuses = self.concrete.statuses
        if statuses is None:
            return [], []
        lines: list[str] = []
        first = 0
        for number, texts in enumerate(statuses.checks):
            word = f"*(const int64_t *)(arena + {statuses.offset + STATUS_BYTES * number})"
            lines.append(f"    if ({word}) return (int)({word} + {first});")
            first += len(texts)
        return [f"    memset(arena + {statuses.offset}, 0, {statuses.bytes});"], [*lines, "    return 0;"]

    def _command(self, work: Work) -> Sequence[str]:
        places = [self._place(reference) for reference in work.references]
        if work.op == "copy":
            return [f"    memmove({places[1]}, {places[0]}, {work.references[0].bytes});"]
        sizes = ", ".join(map(str, work.sizes)) or "0"
        return [
            "    {", f"        void *buffers[] = {{{', '.join(places) or '0'}}};",
            f"        static const int64_t sizes[] = {{{sizes}}};",
            f"        {self.kernels[work.kernel]}(buffers, sizes, 0, {work.tasks}, scratch);", "    }",
        ] if work.tasks else []

    def _place(self, reference: Reference) -> str:
        base = self.bases[reference.external]
        return f"(unsigned char *){base} + {reference.offset}" if reference.offset else f"(void *)({base})"

    def constants(self) -> bytes:
        content = bytearray()
        for offset, array in zip(self.offsets, self.function.parameters, strict=True):
            content = content.ljust(offset, b"\0")
            content += bytes_of(np.ascontiguousarray(array)).tobytes()
        return bytes(content)


def _argument(spec: TensorSpec, name: str, *, written: bool) -> str:
    kind = _C_TYPES.get(spec.dtype, "uint8_t")
    return f"{'' if written else 'const '}{kind} *{name}"


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, with numbers appended to repeated ones."""
    seen: set[str] = set()
    result: list[str] = []
    for name in names:
        candidate, number = name, 1
        while candidate in seen or candidate in _RESERVED:
            number += 1
            candidate = f"{name}_{number}"
        seen.add(candidate)
        result.append(candidate)
    return result
