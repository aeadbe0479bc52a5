"""Opens the devices of one rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from motet.artifact.places import split_place
from motet.artifact.reader import Artifact
from motet.errors import DeviceError, MotetError
from motet.runtime.device import find_device, open_device, probe
from motet.runtime.device_program import LoadedDevice
from motet.runtime.selection import HOST, DeviceChoice, no_code, regions_of


def open_local(
    artifact: Artifact, choices: Sequence[DeviceChoice], threads: int
) -> tuple[list[LoadedDevice], str]:
    """The opened devices of `choices`, each once, in order, then, if none is the host, that for values in transit. On
    failure: none, and why: other ranks have to know, too."""
    opened: dict[str, LoadedDevice] = {}
    try:
        for choice in choices:
            if choice.info.uri not in opened:
                opened[choice.info.uri] = _open(artifact, choice, threads)
        regions = regions_of(artifact.manifest)
        for uri, loaded in opened.items():
            own = set[str]().union(*(regions.get(c.device.name, set()) for c in choices if c.info.uri == uri))
            loaded.place_parameters(sorted(own) if artifact.manifest.plans else [*loaded.variant.schedules])
        if not any(loaded.device.info.family == HOST for loaded in opened.values()):
            host = open_device(replace(probe(HOST)[0], threads=1))
            opened[HOST] = LoadedDevice(host, no_code(HOST), artifact)
        return [*opened.values()], ""
    except MotetError as error:
        for loaded in opened.values():
            loaded.close()
        return [], str(error)


def _open(artifact: Artifact, choice: DeviceChoice, threads: int) -> LoadedDevice:
    """A device with the code of its choice. Raises DeviceError."""
    info = find_device(split_place(choice.info.uri)[1])
    if info.family == HOST and "?" not in info.uri:
        info = replace(info, threads=threads)
    device = open_device(info)
    reason = device.obstacle(choice.variant) if choice.variant.objects else None
    if reason is not None:
        device.close()
        raise DeviceError(f"device {info.uri}: {choice.variant.target}: {reason}")
    return LoadedDevice(device, choice.variant, artifact)
