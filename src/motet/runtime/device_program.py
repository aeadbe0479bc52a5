"""An open device with the code and constants of an artifact."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from motet.artifact.agreement import Agreement
from motet.artifact.reader import Artifact
from motet.artifact.schema import Variant
from motet.errors import DeviceError
from motet.runtime.device import Buffer, Device, Executable
from motet.runtime.timeline import Point


@dataclass
class LoadedDevice:
    """`device` is open with its code loaded; constants are written to it when first needed."""

    device: Device
    variant: Variant
    artifact: Artifact
    _executable: Executable | None = None
    _parameters: dict[int, Buffer] = field(default_factory=dict[int, Buffer])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def uri(self) -> str:
        return self.device.info.uri

    @property
    def executable(self) -> Executable:
        with self._lock:
            if self._executable is None:
                if not self.device.info.host_memory:
                    self.artifact.begin_check()
                names = self.variant.objects
                self._executable = self.device.load([bytes(self.artifact.member(name)) for name in names], names)
            return self._executable

    def load_fault(self) -> str | None:
        """Why the device cannot load the code; None if it has loaded it."""
        try:
            _ = self.executable
        except DeviceError as error:
            return str(error)
        return None

    @property
    def notes(self) -> Sequence[str]:
        """Notes on how the code was loaded, for devices that may run it by a vendor library."""
        return tuple(getattr(self.executable, "notes", ())) if hasattr(self.device, "algorithms") else ()

    @cached_property
    def agreement(self) -> Agreement:
        """The requirements of the loaded code on schedules."""
        return Agreement(self.variant, self.artifact.contracts)

    def parameter_bytes(self, index: int) -> int:
        return self.artifact.parameter(index).nbytes

    def parameter(self, index: int) -> Buffer:
        """A constant tensor on the device: written there once, or in host memory if the device reads it in place."""
        buffer = self._parameters.get(index)
        if buffer is None:
            buffer = self._place(index)
            self.artifact.parameter(index)  # raises an error if it is damaged
        return buffer

    def _place(self, index: int) -> Buffer:
        """Like `parameter`, without the check for damage."""
        self._place_all([index])
        return self._parameters[index]

    def _place_all(self, indices: Iterable[int]) -> None:
        """Write the constants that are not on the device yet, all in flight together."""
        with self._lock:
            missing = [index for index in dict.fromkeys(indices) if index not in self._parameters]
            arrays = [np.ascontiguousarray(self.artifact.unchecked_parameter(index)) for index in missing]
            buffers, points = self._begin(arrays)
            for point in points:
                point.wait()
            self._parameters.update(zip(missing, buffers, strict=True))

    def _begin(self, arrays: Sequence[np.ndarray[Any, Any]]) -> tuple[Sequence[Buffer], Sequence[Point]]:
        """The buffers of constants on the device, and the points at which their content is written, if any."""
        device = self.device
        if arrays and (place := getattr(device, "place", None)) is not None:
            buffers, point = place(arrays)
            return buffers, [point]
        buffers: list[Buffer] = []
        points: list[Point] = []
        for array in arrays:
            buffer = device.adopt(array) if device.info.host_memory else None
            if buffer is None:
                buffer = device.allocate(array.nbytes)
                points.append(device.write(buffer, array))
            buffers.append(buffer)
        return buffers, points

    def place_parameters(self, regions: Sequence[str]) -> None:
        """Write the constants that `regions` use before the first call, while threads check them."""
        self.artifact.begin_check()
        schedules = [self.variant.schedules[region] for region in regions]
        buffers = [buffer for schedule in schedules for buffer in schedule.buffers]
        self._place_all(buffer.index for buffer in buffers if buffer.kind == "parameter")
        if self._parameters:
            self.artifact.parameter(next(iter(self._parameters)))

    @property
    def parameter_total(self) -> int:
        """Bytes of the constants on the device."""
        with self._lock:
            return sum(buffer.bytes for buffer in self._parameters.values())

    def close(self) -> None:
        with self._lock:
            self._parameters.clear()
            self._executable = None
        self.device.close()
