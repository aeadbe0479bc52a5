"""Tile programs: kernels whose work-groups compute a tile each, as GPUs' programs are, in SPIR-V or machine code.

A kernel K consists of `…/K.json`, a `Launch` (`artifact/launch.py`), `…/K.spv` and, for a certain GPU, `…/K.zebin`. Its
parameters are the buffers, the sizes with 32 or 64 bits each, and local memory, if it needs any. A task is a work-group
of `warps` sub-groups. Machine code that a driver refuses is replaced by the SPIR-V that it was made from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import msgspec

from motet.artifact.launch import Launch
from motet.decoding import decode_json
from motet.errors import DeviceError
from motet.runtime.drivers.opencl.api import Handle, OpenClApi, OpenClError
from motet.runtime.drivers.opencl.context import Context, Owned

_BITS = {"i32": 32, "i64": 64}
# Of buffers, which the programs rely on: of those for named GPUs, which may use block loads, and of others.
_NATIVE_ALIGNMENT, _ALIGNMENT = 64, 16


@dataclass(frozen=True)
class TileProgram:
    """The files of a kernel; `path` is that of its SPIR-V."""

    path: str
    launch: Launch
    spirv: bytes
    native: bytes


def split_tiles(
    device: str, objects: Sequence[bytes], names: Sequence[str]
) -> tuple[list[TileProgram], list[tuple[str, bytes]]]:
    """The tile programs among `objects`, and the others with their names. Raises DeviceError for incomplete ones."""
    by_name = dict(zip(names, objects, strict=True))
    described = [name for name in names if PurePosixPath(name).suffix == ".json"]
    tiles: list[TileProgram] = []
    taken: set[str] = set()
    for name in described:
        path = str(PurePosixPath(name).with_suffix(".spv"))
        native = str(PurePosixPath(name).with_suffix(".zebin"))
        if path not in by_name:
            raise DeviceError(f"device {device}: {name}: its SPIR-V {path} is not there")
        tiles.append(TileProgram(path, _launch(device, name, by_name[name]), by_name[path], by_name.get(native, b"")))
        taken |= {name, path, native}
    return tiles, [(name, code) for name, code in by_name.items() if name not in taken]


def _launch(device: str, name: str, content: bytes) -> Launch:
    try:
        launch = decode_json(content, Launch)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DeviceError(f"device {device}: {name}: {error}") from error
    if launch.warps < 1 or launch.sub_group < 1 or launch.buffers < 0 or launch.shared < 0:
        raise DeviceError(f"device {device}: {name}: a number below its least; expected sub-groups of work-items")
    if unknown := [size for size in launch.sizes if size not in _BITS]:
        raise DeviceError(f"device {device}: {name}: a size of type {unknown[0]}; expected {' or '.join(_BITS)}")
    return launch


def build_tile(context: Context, tile: TileProgram) -> Owned:
    """The program of a kernel: its machine code, else its SPIR-V. Raises OpenClError."""
    if tile.native:
        try:
            return context.native_program(tile.native)
        except OpenClError:  # made for another revision of the device, or by a compiler that the driver does not know
            pass
    return context.program(tile.spirv, "")


def set_fixed_arguments(api: OpenClApi, kernel: Handle, launch: Launch, sizes: Sequence[int]) -> None:
    """Set the sizes and the local memory of a kernel; its buffers are set for each launch."""
    for number, (value, kind) in enumerate(zip(sizes, launch.sizes, strict=True), launch.buffers):
        api.set_number(kernel, number, value, _BITS[kind])
    if launch.shared:
        api.set_local(kernel, launch.buffers + len(launch.sizes), launch.shared)


def check_alignment(device: str, launch: Launch, address: int) -> None:
    """Raises DeviceError for a buffer at an address that a program cannot take."""
    needed = _ALIGNMENT if launch.native is None else _NATIVE_ALIGNMENT
    if address % needed:
        raise DeviceError(
            f"device {device}: {launch.kernel}: a buffer at {address:#x}; expected an address divisible by {needed}"
        )
