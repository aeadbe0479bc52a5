"""Lets a kernel begin while the one before it ends: programmatic dependent launch, from Hopper on.

    griddepcontrol.launch_dependents   from here on, what depends on this launch may be started
    griddepcontrol.wait                until all that the launch depends on has ended, and what it wrote is seen

Both stand before the kernel touches memory; where it makes descriptors for the copy engine, which takes about a
microsecond and needs nothing of others, it waits behind that. A kernel whose text says one of both is left to
that. Every block waits, so that a kernel that has ended means that all those before it have. Launched in any other way
a kernel finds nothing to wait for. Source: PTX ISA, "griddepcontrol".

Blocks that begin early take the places that are free then, several on one processor where others still work. Products
by tiles want all processors alike: they are not launched early, and begin nothing (`Form.early`).
"""

from __future__ import annotations

import re

OLDEST = 90  # compute capability
_WAIT = "\tgriddepcontrol.wait;\n"
_BEGIN = "\tgriddepcontrol.launch_dependents;\n"
_ENTRY = re.compile(r"^\.visible \.entry [^{]*\{\n", re.MULTILINE)
_DECLARATIONS = re.compile(r"(?:[ \t]*(?:\.reg|\.local|\.shared|//)[^\n]*\n|[ \t]*\n)*")
_BARRIERS = re.compile(r"^[^\n]*\bmbarrier\.init", re.MULTILINE)  # made behind descriptors
_DESCRIPTOR = re.compile(r"\btensormap\.cp_fenceproxy\.global\b")
_ACCESS = re.compile(  # of memory that others may see, but for a program's own descriptors
    r"\b(?:ld|st|red|atom|prefetch|prefetchu|call)\b(?!\.(?:volatile\.)?(?:param|shared|const|local)\b)"
    r"|\bcp\.(?!async\.bulk\.(?:commit_group|wait_group))"
)
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$?\w+)")
_LABEL = re.compile(r"^(\$?\w+):", re.MULTILINE)
_TOGETHER = re.compile(r"\b(?:bar|barrier)\.(?:cta\.)?sync\b")


def waiting(ptx: str) -> str | None:
    """The text of a module with one kernel, which then waits as said; None where there is not exactly one."""
    entries = list(_ENTRY.finditer(ptx))
    if len(entries) != 1:
        return None
    declared = _DECLARATIONS.match(ptx, entries[0].end())
    begin = declared.end() if declared else entries[0].end()
    if _WAIT.strip() in ptx:
        return ptx if _BEGIN.strip() in ptx else ptx[:begin] + _BEGIN + ptx[begin:]
    at = _behind_descriptors(ptx, begin)
    return ptx[:begin] + _BEGIN + ptx[begin:at] + _WAIT + ptx[at:]


def _behind_descriptors(ptx: str, begin: int) -> int:
    """Where a kernel that begins at `begin` has made its descriptors, and nothing else in memory; `begin` where that
    cannot be seen. Warps that wait for work from others may pass the place by."""
    barriers = _BARRIERS.search(ptx, begin)
    if barriers is None:
        return begin
    passed = ptx[begin : barriers.start()]
    if not _DESCRIPTOR.search(passed) or _ACCESS.search(passed):
        return begin
    aside = set(_BRANCH.findall(passed)) - set(_LABEL.findall(passed))
    if len(aside) > 1 or not all(_waits_for_others(ptx, label) for label in aside):
        return begin
    return barriers.start()


def _waits_for_others(ptx: str, label: str) -> bool:
    """Whether what is behind a label begins with a barrier."""
    start = ptx.find(f"\n{label}:")
    together = _TOGETHER.search(ptx, start) if start >= 0 else None
    return together is not None and not _ACCESS.search(ptx, start, together.start())
