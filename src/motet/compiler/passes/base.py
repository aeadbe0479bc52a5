"""What a pass is: a frozen dataclass with a name, its options as fields, and one method, `run`.

    @dataclass(frozen=True)
    class FoldTransfers(Pass):
        name = "fold-transfers"
        keep_pinned: bool = True

        def run(self, program: Program) -> bool: ...

runs in `motet opt` as `fold-transfers{keep-pinned=false}`. A pass keeps no state between runs, and the file that
defines it has the pass's name (`fold_transfers.py`). `registry.py` finds it there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar, Self

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.errors import OptionError

# The types of options that text can set, by their annotation, and what an error says is expected.
_TYPES = {"bool": "true or false", "int": "a number", "str": "a word"}


@dataclass(frozen=True)
class Named(ABC):
    """What all passes share: a name, and options that text can set."""

    name: ClassVar[str]

    @classmethod
    def parse(cls, options: str) -> Self:
        """The pass with its options as text, `key=value key=value`. Raises OptionError for a key that it does not
        have, and for a value of another type."""
        known = {each.name.replace("_", "-"): each for each in fields(cls) if each.type in _TYPES}
        given: dict[str, bool | int | str] = {}
        for word in options.split():
            key, _, value = word.partition("=")
            if key not in known:
                takes = ", ".join(f"{name} ({_TYPES[str(each.type)]})" for name, each in known.items())
                raise OptionError(
                    f"pass {cls.name}: option {key}: unknown; it takes {takes or 'no options'}"
                )
            given[known[key].name] = _value(f"pass {cls.name}: option {word}", known[key], value)
        return cls(**given)


def _value(where: str, field: Field[Any], text: str) -> bool | int | str:
    expected = OptionError(f"{where}: expected {_TYPES[str(field.type)]}")
    if field.type == "bool":
        if text not in ("true", "false"):
            raise expected
        return text == "true"
    if field.type == "int":
        if not text.removeprefix("-").isdigit():
            raise expected
        return int(text)
    if not text:
        raise expected
    return text


class Pass(Named):
    """Changes a program in place. Raises CompileError for what it cannot take."""

    @abstractmethod
    def run(self, program: Program) -> bool:
        """Whether anything changed."""


class FunctionPass(Pass):
    """A pass that changes each public function without looking at the others."""

    def run(self, program: Program) -> bool:
        changed = [self.run_on(function) for function in public_functions(program.module)]
        return any(changed)

    @abstractmethod
    def run_on(self, function: ir.Operation) -> bool:
        """Whether anything changed in `function`."""


class ModulePass(Named):
    """A pass over a module that is no program yet, as frontends and placement rewrite it: without parameters, and
    without telling whether anything changed."""

    @abstractmethod
    def run(self, module: ir.Module) -> None:
        """In place. Raises CompileError for what it cannot take."""


AnyPass = Pass | ModulePass
