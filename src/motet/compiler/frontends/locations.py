"""Maps MLIR's locations to the user's: every parsed operation has file, line and column of the input."""

from __future__ import annotations

import re

from motet.compiler.frontends.normaliser import Edited
from motet.compiler.ir._mlir import ir
from motet.errors import CompileError, Location

PARSED = "-"  # MLIR's file name for text parsed from memory


def locate(location: ir.Location, edited: Edited | None = None) -> Location | None:
    """The first place in a file that `location` names, mapped through `edited` if it is in parsed text."""
    location = ir.Location.from_attr(
        location.attr, location.context
    )  # a diagnostic's location comes without its class
    if isinstance(location, ir.FileLineColLoc):
        if location.filename == PARSED:
            return edited.location(location.start_line, location.start_col) if edited is not None else None
        return Location(location.filename, location.start_line, location.start_col)
    if isinstance(location, ir.NameLoc):
        return locate(location.child_loc, edited)
    if isinstance(location, ir.CallSiteLoc):
        return locate(location.callee, edited)
    if isinstance(location, ir.FusedLoc):
        return next((found for part in location.locations if (found := locate(part, edited))), None)
    return None


def relocate(module: ir.Module, edited: Edited) -> None:
    """Gives every operation and argument parsed from `edited` its place in the user's text."""

    def mapped(place: ir.Location) -> ir.Location:
        if not (isinstance(place, ir.FileLineColLoc) and place.filename == PARSED):
            return place
        found = edited.location(place.start_line, place.start_col)
        return ir.Location.file(found.file, found.line, found.column, place.context)

    def visit(op: ir.Operation) -> ir.WalkResult:
        operation = op.operation
        operation.location = mapped(operation.location)
        if operation.name == "func.func":
            for block in operation.regions[0].blocks:
                for argument in list(block.arguments):  # the location of an argument is immutable: replace it
                    argument.replace_all_uses_with(
                        block.add_argument(argument.type, mapped(argument.location))
                    )
                    block.erase_argument(0)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)


def compile_error(error: ir.MLIRError, file: str, edited: Edited | None = None) -> CompileError:
    """MLIR's diagnostics as one error at the first place that they name."""
    for diagnostic in error.error_diagnostics:
        message = _sentence(diagnostic.message)
        if message:
            return CompileError(message, locate(diagnostic.location, edited) or Location(file))
    return CompileError(_sentence(error.message), Location(file))


_LONGEST = 1000  # characters of a message that are shown
_UNKNOWN = re.compile(r"custom op '([^']+)' is unknown|not found for custom op '([^']+)'")


def _sentence(message: str) -> str:
    """The first line, without the advice for users of MLIR's own tools."""
    if match := _UNKNOWN.search(message):
        return f"{_shortened(match[1] or match[2])}: unknown operation; expected one of upstream MLIR's dialects"
    text = message.strip().split("\n")[0].split(". If this is intended")[0].strip()
    text = text.replace("`", "'").removesuffix(".")
    return _shortened(text[:1].lower() + text[1:])


def _shortened(text: str) -> str:
    """A name, cut to a readable length: it may be as long as the file."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
