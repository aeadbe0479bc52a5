"""Exports a function as C that calls OpenCL: with the caller's context, queue, arguments, wait list and event.

    model.h              the interface: model_create, model_enqueue, model_release
    model.c              the commands as tables, and the calls of OpenCL
    model.constants      included by model.c with .incbin, by the path of this folder, as are the next
    model.0.spv, …       the programs, SPIR-V or OpenCL C

`cc main.c model.c -lOpenCL` builds a program. `model_create` builds the programs and places the constants in a context;
what it returns is used by one thread at a time. Nothing that the caller gives is copied.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from motet.artifact.schema import STATUS_BYTES
from motet.errors import OptionError
from motet.exporting.c_source import Sources, identifier, unique_names
from motet.exporting.opencl_runtime import BODY, DECLARATIONS, TYPES
from motet.exporting.static import StaticFunction, shape_text
from motet.runtime.drivers.common.recording import bytes_of
from motet.runtime.instantiate import ALIGNMENT

FAMILY = "opencl"
_SPIRV_MAGIC = b"\x03\x02\x23\x07"
_RESERVED = ("program", "queue", "waits", "wait_list", "event", "bases")


def export_opencl(function: StaticFunction, name: str) -> Sources:
    """The files for `function`, code of the family `opencl`, named `name` in C."""
    writer = _OpenClWriter(function, name)
    files = {f"{name}.h": writer.header().encode(), f"{name}.c": writer.source().encode()}
    if function.parameters:
        files[f"{name}.constants"] = writer.constants()
    for number, data in enumerate(function.objects):
        files[writer.code_file(number)] = data
    return Sources(files)


class _OpenClWriter:
    def __init__(self, function: StaticFunction, name: str) -> None:
        self.function = function
        self.name = name
        self.concrete = function.concrete
        signature = function.signature
        if any(spec.state is not None for spec in (*signature.inputs, *signature.results)):
            raise OptionError(f"{signature.name}: its state needs Motet's runtime; expected a function without state")
        inputs = [identifier(spec.name) for spec in signature.inputs]
        results = [identifier(spec.name) for spec in signature.results if spec.destination is None]
        self.arguments = unique_names([*_RESERVED, *inputs, *results])[len(_RESERVED) :]
        # The C expression of each external, in the order in which the work refers to them.
        own = iter(self.arguments[len(inputs) :])
        self.bases = list(self.arguments[: len(inputs)])
        for spec in signature.results:
            self.bases.append(next(own) if spec.destination is None else self.arguments[spec.destination])
        self.bases.append("{MOTET_SVM, program->arena}")
        self.offsets: list[int] = []
        end = 0
        for array in function.parameters:
            self.offsets.append(end)
            self.bases.append(f"{{MOTET_SVM, program->constants + {end}}}")
            end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        self.constant_bytes = end
        statuses = self.concrete.statuses
        self.checks = [] if statuses is None else [text for texts in statuses.checks for text in texts]

    def code_file(self, number: int) -> str:
        is_il = self.function.objects[number][:4] == _SPIRV_MAGIC
        return f"{self.name}.{number}.{'spv' if is_il else 'cl'}"

    def constants(self) -> bytes:
        content = bytearray()
        for offset, array in zip(self.offsets, self.function.parameters, strict=True):
            content = content.ljust(offset, b"\0")
            content += bytes_of(np.ascontiguousarray(array)).tobytes()
        return bytes(content.ljust(self.constant_bytes, b"\0"))

    # -- the header -------------------------------------------------------------------------------

    def header(self) -> str:
        name, signature, variant = self.name, self.function.signature, self.function.variant
        guard = f"MOTET_{name.upper()}_H"
        specs = [*signature.inputs, *(spec for spec in signature.results if spec.destination is None)]
        shapes = [*self.concrete.inputs, *(
            shape for spec, shape in zip(signature.results, self.concrete.results, strict=True)
            if spec.destination is None
        )]
        written = {spec.destination for spec in signature.results}
        lines = [
            f" *   {own}: {'input' if number < len(signature.inputs) else 'result'}, "
            f"{shape_text(shape.extents, spec.dtype)}, {shape.bytes} bytes"
            + (", written" if number in written else "")
            for number, (own, spec, shape) in enumerate(zip(self.arguments, specs, shapes, strict=True))
        ]
        failing = (
            f"/* Once a call's event has ended: 0, or the number of the check that failed;\n"
            f" * {name}_checks[number - 1] says what it is. */\nint {name}_failed(const {name}_program *program);\n"
            f"extern const char *const {name}_checks[{len(self.checks)}];\n" if self.checks else ""
        )
        return "\n".join([
            f"/* {signature.name} for {variant.family}:{variant.target}, made by Motet.", *lines,
            " * Memory in C order, in the context of the queue, in place. Functions return OpenCL's codes. */",
            f"#ifndef {guard}", f"#define {guard}", "#include <stddef.h>", "#include <stdint.h>", TYPES.strip(),
            "#ifdef __cplusplus", 'extern "C" {', "#endif", f"typedef struct {name}_program {name}_program;",
            "/* Build the function for a device of a context, which is retained. */",
            f"cl_int {name}_create(cl_context context, cl_device_id device, {name}_program **program);",
            "/* Put a call on a queue, in-order or not, after the events of the wait list, and return at once. *event",
            " * ends it, unless `event` is null; the caller releases it. One thread at a time for each program. */",
            f"{self._prototype()};",
            f"{failing}/* Wait for the last call that used memory of the program, and free it. */",
            f"void {name}_release({name}_program *program);", "#ifdef __cplusplus", "}", "#endif", "#endif", "",
        ])

    def _prototype(self) -> str:
        arguments = "".join(f"    motet_opencl_argument {own},\n" for own in self.arguments)
        return (
            f"cl_int {self.name}_enqueue({self.name}_program *program, cl_command_queue queue,\n{arguments}"
            "    cl_uint waits, const cl_event *wait_list, cl_event *event)"
        )

    # -- the source -------------------------------------------------------------------------------

    def source(self) -> str:
        name = self.name
        return "\n".join([
            f'#include "{name}.h"', "#include <stdlib.h>", *self._numbers(), DECLARATIONS.strip(), *self._tables(),
            *self._included(), BODY.replace("NAME", name).strip(), "", *self._failed(), f"{self._prototype()} {{",
            f"    motet_opencl_argument bases[] = {{{', '.join(self.bases)}}};",
            "    return enqueue_all(program, queue, bases, waits, wait_list, event);", "}", "",
        ])

    def _numbers(self) -> Sequence[str]:
        concrete = self.concrete
        statuses = concrete.statuses
        numbers = {
            "PROGRAMS": len(self.function.objects), "COMMANDS": len(concrete.work), "ARENA_BYTES": concrete.arena,
            "STATUS_BYTES": 0 if statuses is None else statuses.bytes,
            "STATUS_AT": 0 if statuses is None else statuses.offset, "CONSTANT_BYTES": self.constant_bytes,
            "STRIDE": -(-concrete.scratch // ALIGNMENT) * ALIGNMENT,
        }
        return [f"#define {self.name}_{what} {number}" for what, number in numbers.items()]

    def _tables(self) -> Sequence[str]:
        """The commands, and the parts, sizes and dependences that they refer to; each table has one entry more."""
        parts: list[str] = []
        sizes: list[str] = []
        after: list[str] = []
        commands: list[str] = []
        waited = {other for work in self.concrete.work for other in work.after}
        for number, work in enumerate(self.concrete.work):
            symbol = f"{work.kernel}__{len(work.references)}b{len(work.sizes)}s"
            kernel = json.dumps(symbol) if work.op == "launch" else "0"
            places = f"{len(parts)}, {len(work.references)}, {len(sizes)}, {len(work.sizes)}"
            last = int(number not in waited)
            commands.append(f"{{{kernel}, {places}, {len(after)}, {len(work.after)}, {work.tasks}, {last}}}")
            parts += [f"{{{part.external}, {part.offset}, {part.bytes}}}" for part in work.references]
            sizes += [str(size) for size in work.sizes]
            after += [str(other) for other in work.after]
        return [
            f"static const {kind} {table}[] = {{{', '.join([*rows, end])}}};"
            for kind, table, rows, end in (
                ("motet_part", "parts", parts, "{0, 0, 0}"), ("int64_t", "sizes", sizes, "0"),
                ("int", "after", after, "0"), ("motet_command", "commands", commands, "{0, 0, 0, 0, 0, 0, 0, 0, 0}"),
            )
        ]

    def _included(self) -> Sequence[str]:
        """The programs and constants, by the assembler."""
        files = [self.code_file(number) for number in range(len(self.function.objects))]
        symbols = [(f"{self.name}_code_{number}", file) for number, file in enumerate(files)]
        if self.function.parameters:
            symbols.append((f"{self.name}_constants", f"{self.name}.constants"))
        lines = [
            f'__asm__(".section .rodata\\n.balign {ALIGNMENT}\\n{symbol}:\\n.incbin \\"{file}\\"\\n'
            f'{symbol}_end:\\n.previous\\n");\nextern const unsigned char {symbol}[], {symbol}_end[];'
            for symbol, file in symbols
        ]
        rows = [
            f"{{{symbol}, {symbol}_end, {int(file.endswith('.spv'))}}}" for symbol, file in symbols[: len(files)]
        ]
        constants = f"{self.name}_constants" if self.function.parameters else "0"
        return [
            *lines, "static const struct { const unsigned char *begin, *end; int is_il; } codes[] = {"
            f"{', '.join([*rows, '{0, 0, 0}'])}}};", f"static const unsigned char *const constants = {constants};",
        ]

    def _failed(self) -> Sequence[str]:
        statuses = self.concrete.statuses
        if statuses is None:
            return []
        name = self.name
        texts = "".join(f"    {json.dumps(text, ensure_ascii=False)},\n" for text in self.checks)
        lines: list[str] = []
        first = 0
        for number, each in enumerate(statuses.checks):
            word = f"program->told[{STATUS_BYTES // 8 * number}]"
            lines.append(f"    if ({word}) return (int)({word} + {first});")
            first += len(each)
        return [
            f"const char *const {name}_checks[{len(self.checks)}] = {{\n{texts}}};",
            f"int {name}_failed(const {name}_program *program) {{", *lines, "    return 0;", "}", "",
        ]
