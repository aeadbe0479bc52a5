"""The tensors of a call over several devices, each with its copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from motet.runtime.device import Buffer
from motet.runtime.device_array import DeviceArray
from motet.runtime.instantiate import Shape
from motet.runtime.lifetimes import Use
from motet.runtime.timeline import Point

Array = np.ndarray[Any, Any]
Tensor = Array | DeviceArray


@dataclass
class PlacedCopy:
    """A value on one device; `points` must be reached before it is read, `queue` wrote it last. The buffer belongs to
    the call and may be reused if `use` records its users; otherwise it may be memory of `source`, a copy on another
    device."""

    buffer: Buffer
    points: list[Point]
    queue: int = 0
    use: Use | None = None
    source: PlacedCopy | None = None


@dataclass
class PlacedValue:
    """A value of one call: its copies by device, and the host's array if there is one."""

    shape: Shape
    copies: dict[int, PlacedCopy] = field(default_factory=dict[int, PlacedCopy])
    array: Array | None = None
    points: list[Point] = field(default_factory=list[Point])  # of the array
    outlives: bool = False  # is read after the loop iteration that computes it and the next one
