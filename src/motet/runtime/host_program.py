"""An artifact's code and constants in this process, for functions that run on the host only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from motet.artifact.agreement import Agreement
from motet.artifact.reader import Artifact
from motet.artifact.schema import Schedule, Signature, Variant
from motet.errors import ArtifactError
from motet.runtime.drivers.host.loader import load_objects
from motet.runtime.drivers.host.memory import ALIGNMENT, Pool
from motet.runtime.drivers.host.threads import HostThreads
from motet.runtime.instance import Binding, Instance

Array = np.ndarray[Any, Any]


class OnHost:
    """`schedules` are those of the variant to run; their constants are loaded, aligned to 64 bytes, and memory-mapped
    if possible. `parameter_bytes` is the size of the constants, `copied_bytes` of those copied to the pool."""

    def __init__(
        self, artifact: Artifact, variant: Variant, schedules: Sequence[Schedule], pool: Pool, threads: HostThreads
    ) -> None:
        self.parameter_bytes = self.copied_bytes = 0
        objects = [artifact.member(name) for name in variant.objects]
        code = load_objects(objects, {}, [f"{artifact.name}: {name}" for name in variant.objects])
        for kernel in {command.kernel for schedule in schedules for command in schedule.commands} - {""}:
            if kernel not in code:
                raise ArtifactError(f"{artifact.name}: kernel {kernel!r}: no object of {variant.target} defines it")
        parameters = self._parameters(artifact, schedules, pool)
        self._binding = Binding(code, parameters, pool, threads, Agreement(variant, artifact.contracts))

    def instance(
        self, signature: Signature, schedule: Schedule, symbols: Mapping[str, int],
        parts: Sequence[tuple[HostThreads, int]] = (),
    ) -> Instance:
        """A function for one combination of extents; `parts` as in `Instance`."""
        return Instance(signature, schedule, symbols, self._binding, signature.name, parts)

    def _parameters(
        self, artifact: Artifact, schedules: Sequence[Schedule], pool: Pool
    ) -> list[Array | None]:
        used = {
            buffer.index for schedule in schedules for buffer in schedule.buffers if buffer.kind == "parameter"
        }
        loaded: list[Array | None] = [None] * len(artifact.manifest.parameters)
        for index in used:
            array = artifact.parameter(index)
            self.parameter_bytes += array.nbytes
            if array.ctypes.data % ALIGNMENT:
                aligned = pool.allocate(array.nbytes).array(array.dtype, array.shape)
                aligned[...] = array
                self.copied_bytes += array.nbytes
                array = aligned
            loaded[index] = array
        return loaded
