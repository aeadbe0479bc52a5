"""What the printing of all instructions of a kernel shares: the names of values, declarations, and lines of C."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.codegen.llvm.ir import POINTER, Instruction, IrFunction, IrValue, Type, bits_of, elements_of
from motet.compiler.codegen.llvm.opencl_c.spaces import Spaces
from motet.compiler.codegen.llvm.opencl_c.support import Support
from motet.compiler.codegen.llvm.opencl_c.types import LanePart, constant, parts_of
from motet.compiler.codegen.llvm.reader import global_address


class Printer:
    """The text of a function while it is made."""

    def __init__(self, function: IrFunction, variables: dict[str, str], support: Support, widest: int) -> None:
        self.function = function
        self.support = support
        self.spaces = Spaces(function)
        self.declarations: list[str] = []
        self.lines: list[str] = []
        self._variables = variables
        self._names: dict[str, list[str]] = {}
        self._temporaries = 0
        self._widest = widest

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append(f"  {text}")

    def temporary(self, kind: str, suffix: str = "") -> str:
        """Declare a variable of its own for one line or a few."""
        self._temporaries += 1
        name = f"t{self._temporaries}"
        self.declarations.append(f"  {kind} {name}{suffix};")
        return name

    def held(self, part: LanePart, text: str) -> str:
        """A variable that holds `text`, for a value that is read several times."""
        if text.replace("_", "").isalnum():
            return text
        name = self.temporary(part.name)
        self.line(f"{name} = {text};")
        return name

    def split(self, kind: Type) -> list[LanePart]:
        """The parts of values of a type."""
        return parts_of(kind, self._widest)

    # -- values ----------------------------------------------------------------------------------

    def name_parameter(self, parameter: IrValue, name: str) -> None:
        """Give a parameter its name in C."""
        self._names[parameter.text] = [name]

    def declare(self, value: IrValue) -> list[str]:
        """The variables of a value, which are declared when they are first asked for."""
        if value.text not in self._names:
            parts = self.split(value.type)
            own = f"v{len(self._names)}"
            names = [own] if len(parts) == 1 else [f"{own}_{number}" for number in range(len(parts))]
            for part, name in zip(parts, names, strict=True):
                self.declarations.append(f"  {self.declared(value, part)} {name};")
            self._names[value.text] = names
        return self._names[value.text]

    def declared(self, value: IrValue, part: LanePart) -> str:
        """The type of the variable of a part of a value."""
        if part.element == POINTER and not part.lane:
            return f"{self.spaces.of(value)} uchar *"
        return part.name

    def value(self, value: IrValue) -> list[str]:
        """The parts of a value as expressions."""
        kind = value.type
        if value.is_local:
            return self.declare(value)
        if kind == POINTER and not value.is_undefined and value.text != "null":
            name, offset = global_address(value)
            text = f"(constant uchar *){self._variables[name]}"
            return [f"({text} + {offset})" if offset else f"({text})"]
        if kind.is_struct or kind.is_array:
            return [text for element in elements_of(value) for text in self.value(element)]
        if kind == POINTER:
            return ["0"]
        bits = [bits_of(element) or 0 for element in (elements_of(value) if kind.lanes else [value])]
        return [constant(part, bits[part.first : part.first + part.width]) for part in self.split(kind)]

    def scalar(self, value: IrValue) -> str:
        """A value of one part."""
        [text] = self.value(value)
        return text

    def parts(self, value: IrValue) -> list[tuple[LanePart, str]]:
        """The parts of a value with their expressions."""
        return list(zip(self.split(value.type), self.value(value), strict=True))

    def assign(self, instruction: Instruction, texts: Sequence[str]) -> None:
        """Set the parts of an instruction's result."""
        for name, text in zip(self.declare(instruction.value), texts, strict=True):
            if name != text:
                self.line(f"{name} = {text};")

    def pointer(self, value: IrValue, kind: str, constant_too: bool = False, volatile: bool = False) -> str:
        """An address as a pointer to the C type `kind`."""
        return self.cast_pointer(self.spaces.of(value), kind, self.scalar(value), constant_too, volatile)

    def cast_pointer(
        self, space: str, kind: str, text: str, constant_too: bool = False, volatile: bool = False
    ) -> str:
        """The address `text` as a pointer to the C type `kind`."""
        qualifiers = f"{'volatile ' if volatile else ''}{'const ' if constant_too and space != 'constant' else ''}"
        return f"({qualifiers}{space} {kind} *){text}"

    def place(self, space: str, kind: str, text: str, constant_too: bool = False, volatile: bool = False) -> str:
        """What is at the address `text` as the scalar C type `kind`, also if it was written as another type."""
        return f"*{self.cast_pointer(space, f'motet_{kind}', text, constant_too, volatile)}"
