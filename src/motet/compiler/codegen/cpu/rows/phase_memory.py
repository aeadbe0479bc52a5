"""The buffers that each phase of a kernel takes: those that its stages access.

    phase 0: v2 = f(v0)    takes buffers 0, 2        Phases of different buffers need not wait for each other, and the
    phase 1: v3 = f(v1)    takes buffers 1, 3        commands of a kernel with many phases are not quadratic in number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from motet.compiler.kernels.kernel import Access, Kernel, Stage


class PhaseMemory:
    """The memory of the phases of `kernel`, whose workspaces are the values `temporaries`."""

    def __init__(self, kernel: Kernel, temporaries: Sequence[int]) -> None:
        self._kernel = kernel
        self._places = {value: place for place, value in enumerate((*kernel.externals, *temporaries))}
        self._temporaries = {value: number for number, value in enumerate(temporaries)}
        self._hidden = [
            value if value.role == "temporary" else replace(value, role="temporary") for value in kernel.values
        ]

    def of(self, stages: Sequence[Stage] | None) -> tuple[Kernel, dict[int, int], tuple[int, ...] | None]:
        """The kernel whose only external values are those that `stages` access, the numbers of the workspaces that they
        access, and the indices of all these among the buffers of the whole kernel. With None, or if the kernel has a
        status, which follows all its buffers: the whole kernel and None."""
        if stages is None or self._kernel.checks:
            return self._kernel, self._temporaries, None
        accessed = {
            access.value for stage in stages for access in (*stage.inputs, *stage.outputs, *stage.inits)
            if isinstance(access, Access)
        }
        taken = sorted(accessed & self._places.keys(), key=self._places.__getitem__)
        values = self._hidden.copy()
        for value in taken:
            values[value] = self._kernel.values[value]
        workspaces = [value for value in taken if value in self._temporaries]
        return (
            replace(self._kernel, values=tuple(values)), {value: number for number, value in enumerate(workspaces)},
            tuple(self._places[value] for value in taken),
        )
