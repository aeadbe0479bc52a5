"""Lets a kernel start while its predecessor ends: programmatic dependent launch, from Hopper on.

    griddepcontrol.launch_dependents   from here on, launches that depend on this one may start
    griddepcontrol.wait                wait until the launches that this one depends on have ended, with visible writes

Both are inserted before the kernel's first access to memory. If the kernel creates TMA descriptors, which takes about a
microsecond and depends on no other launch, the wait follows that. A kernel that contains one of the instructions
already is not changed. Every block waits, so that the end of a kernel implies the end of all kernels before it. In any
other kind of launch, the wait returns immediately. Source: PTX ISA, "griddepcontrol".

Blocks that start early are placed where there is room, several on one SM while others are busy. Tiled products need all
SMs evenly: they are neither launched early nor start their dependents early (`Form.early`). """

from __future__ import annotations

import re

OLDEST = 90  # compute capability
_WAIT = "\tgriddepcontrol.wait;\n"
_BEGIN = "\tgriddepcontrol.launch_dependents;\n"
_ENTRY = re.compile(r"^\.visible \.entry [^{]*\{\n", re.MULTILINE)
_DECLARATIONS = re.compile(r"(?:[ \t]*(?:\.reg|\.local|\.shared|//)[^\n]*\n|[ \t]*\n)*")
_BARRIERS = re.compile(r"^[^\n]*\bmbarrier\.init", re.MULTILINE)  # created after descriptors
_DESCRIPTOR = re.compile(r"\btensormap\.cp_fenceproxy\.global\b")
_ACCESS = re.compile(  # of memory visible to other blocks, except a program's own descriptors
    r"\b(?:ld|st|red|atom|prefetch|prefetchu|call)\b(?!\.(?:volatile\.)?(?:param|shared|const|local)\b)"
    r"|\bcp\.(?!async\.bulk\.(?:commit_group|wait_group))"
)
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$?\w+)")
_LABEL = re.compile(r"^(\$?\w+):", re.MULTILINE)
_TOGETHER = re.compile(r"\b(?:bar|barrier)\.(?:cta\.)?sync\b")


def waiting(ptx: str) -> str | None:
    """The PTX of a module, whose kernel waits as described; None unless it has exactly one kernel."""
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
    """The position after the creation of descriptors in a kernel that begins at `begin`, with no other access to memory
    before it; `begin` if there is none. Warps that wait for work from others may branch around it."""
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
    """Whether the code after a label begins with a barrier."""
    start = ptx.find(f"\n{label}:")
    together = _TOGETHER.search(ptx, start) if start >= 0 else None
    return together is not None and not _ACCESS.search(ptx, start, together.start())
