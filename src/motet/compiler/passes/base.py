"""The base classes of passes: frozen dataclasses with a name, their options as fields, and one method, `run`.

    @dataclass(frozen=True)
    class FoldTransfers(Pass):
        name = "fold-transfers"
        keep_pinned: bool = True

        def run(self, program: Program) -> bool: ...

runs in `motet opt` as `fold-transfers{keep-pinned=false}`. A pass keeps no state between runs. The module that defines
it has the pass's name (`fold_transfers.py`), by which `registry.py` finds it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar, Self

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.errors import OptionError

# The types of options that can be given as text, by annotation, with their description in errors.
_TYPES = {"bool": "true or false", "int": "a number", "str": "a word"}


@dataclass(frozen=True)
class Named(ABC):
    """The base of all passes: a name, and options that can be given as text."""

    name: ClassVar[str]

    @classmethod
    def parse(cls, options: str) -> Self:
        """The pass with its options given as text, `key=value key=value`. Raises OptionError for an unknown key, and
        for a value of the wrong type."""
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
    """A pass that rewrites a program in place. Raises CompileError for unsupported programs."""

    @abstractmethod
    def run(self, program: Program) -> bool:
        """Rewrites `program`; returns whether anything changed."""


class FunctionPass(Pass):
    """A pass that rewrites each public function independently."""

    def run(self, program: Program) -> bool:
        changed = [self.run_on(function) for function in public_functions(program.module)]
        return any(changed)

    @abstractmethod
    def run_on(self, function: ir.Operation) -> bool:
        """Rewrites `function`; returns whether anything changed."""


class OperationPass(FunctionPass):
    """A pass that rewrites the operations of a function's own blocks one by one: those whose names are in `takes`, or
    all of them."""

    takes: ClassVar[tuple[str, ...]] = ()

    def run_on(self, function: ir.Operation) -> bool:
        changed = [
            self.rewrite(each.operation)
            for block in function.regions[0].blocks for each in list(block.operations)
            if not self.takes or each.operation.name in self.takes
        ]
        return any(changed)

    @abstractmethod
    def rewrite(self, operation: ir.Operation) -> bool:
        """Rewrites `operation`; returns whether anything changed."""


class ModulePass(Named):
    """A pass over a module that is not yet a program, used by frontends and placement: it has no access to parameters,
    and does not report changes."""

    @abstractmethod
    def run(self, module: ir.Module) -> None:
        """Rewrites `module` in place. Raises CompileError for unsupported modules."""


AnyPass = Pass | ModulePass
