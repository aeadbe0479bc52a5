"""What the printing of all instructions of a kernel shares: the names of values, declarations, and lines of C."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.codegen.llvm.opencl_c.model import (
    POINTER,
    Aggregate,
    Global,
    IrFunction,
    IrInstruction,
    IrScalar,
    Local,
    Number,
    Offset,
    Type,
    Undefined,
    Value,
    Vector,
    zero,
)
from motet.compiler.codegen.llvm.opencl_c.spaces import Spaces
from motet.compiler.codegen.llvm.opencl_c.support import Support
from motet.compiler.codegen.llvm.opencl_c.types import LanePart, constant, parts_of


class Printer:
    """The text of a function while it is made."""

    def __init__(self, function: IrFunction, variables: dict[str, str], support: Support) -> None:
        self.function = function
        self.support = support
        self.spaces = Spaces(function)
        self.declarations: list[str] = []
        self.lines: list[str] = []
        self._variables = variables
        self._names: dict[str, list[str]] = {}
        self._temporaries = 0

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

    # -- values ----------------------------------------------------------------------------------

    def name_parameter(self, parameter: Local, name: str) -> None:
        """Give a parameter its name in C."""
        self._names[parameter.name] = [name]

    def declare(self, value: Local) -> list[str]:
        """The variables of a value, which are declared when they are first asked for."""
        if value.name not in self._names:
            parts = parts_of(value.type)
            own = f"v{len(self._names)}"
            names = [own] if len(parts) == 1 else [f"{own}_{number}" for number in range(len(parts))]
            for part, name in zip(parts, names, strict=True):
                self.declarations.append(f"  {self.declared(value, part)} {name};")
            self._names[value.name] = names
        return self._names[value.name]

    def declared(self, value: Value, part: LanePart) -> str:
        """The type of the variable of a part of a value."""
        if part.element == POINTER and not part.lane:
            return f"{self.spaces.of(value)} uchar *"
        return part.name

    def value(self, value: Value) -> list[str]:
        """The parts of a value as expressions."""
        if isinstance(value, Local):
            return self.declare(value)
        if isinstance(value, Global):
            return [f"((constant uchar *){self._variables[value.name]})"]
        if isinstance(value, Offset):
            return [f"((constant uchar *){self._variables[value.base.name]} + {value.bytes})"]
        if isinstance(value, Undefined):
            return self.value(zero(value.type))
        if isinstance(value, Number):
            return ["0"] if value.type == POINTER else [constant(LanePart(value.type), [value.bits])]
        return self._aggregate(value)

    def scalar(self, value: Value) -> str:
        """A value of one part."""
        [text] = self.value(value)
        return text

    def _aggregate(self, value: Aggregate) -> list[str]:
        if not isinstance(value.type, Vector):
            return [text for element in value.elements for text in self.value(element)]
        texts: list[str] = []
        for part in parts_of(value.type):
            own = value.elements[part.first : part.first + part.width]
            texts.append(constant(part, [each.bits if isinstance(each, Number) else 0 for each in own]))
        return texts

    def parts(self, value: Value) -> list[tuple[LanePart, str]]:
        """The parts of a value with their expressions."""
        return list(zip(parts_of(value.type), self.value(value), strict=True))

    def assign(self, instruction: IrInstruction, texts: Sequence[str]) -> None:
        """Set the parts of an instruction's result."""
        for name, text in zip(self.declare(result_of(instruction)), texts, strict=True):
            if name != text:
                self.line(f"{name} = {text};")

    def pointer(self, value: Value, kind: str, constant_too: bool = False, volatile: bool = False) -> str:
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


def result_of(instruction: IrInstruction) -> Local:
    """The value that an instruction makes."""
    return Local(instruction.type, instruction.name)


def element_of(kind: Type) -> IrScalar:
    """The element of a vector, or the scalar itself."""
    if isinstance(kind, Vector):
        return kind.element
    assert isinstance(kind, IrScalar)
    return kind
