"""Lets a kernel begin while the one before it ends: programmatic dependent launch, from Hopper on.

    griddepcontrol.wait                until all that the launch depends on has ended, and what it wrote is seen
    griddepcontrol.launch_dependents   from here on, what depends on this launch may be started

Both stand at the kernel's very beginning, before it touches memory: what can then run beside the kernel before it is
that blocks are placed and their registers and shared memory handed out, which is a good part of what a short kernel
takes. Every thread of every block waits, so that a kernel that has ended means that all those before it have. Launched
in any other way a kernel finds nothing to wait for. Source: PTX ISA, "griddepcontrol".
"""

from __future__ import annotations

import re

OLDEST = 90  # compute capability
_INSTRUCTIONS = "\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;\n"
_ENTRY = re.compile(r"^\.visible \.entry [^{]*\{\n", re.MULTILINE)
_DECLARATIONS = re.compile(r"(?:[ \t]*(?:\.reg|\.local|\.shared|//)[^\n]*\n|[ \t]*\n)*")


def waiting(ptx: str) -> str | None:
    """The text of a module with one kernel, which then waits as said; None where there is not exactly one."""
    entries = list(_ENTRY.finditer(ptx))
    if len(entries) != 1:
        return None
    declared = _DECLARATIONS.match(ptx, entries[0].end())
    at = declared.end() if declared else entries[0].end()
    return ptx[:at] + _INSTRUCTIONS + ptx[at:]
