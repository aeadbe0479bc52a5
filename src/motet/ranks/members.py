"""What ranks tell one another once: their machines, versions, artifacts and devices."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

import motet.cpu_features as cpu_features
from motet.artifact.hashes import PIECE, hexdigest
from motet.artifact.places import on_rank, rank_of, split_place
from motet.artifact.reader import Artifact
from motet.artifact.schema import Variant
from motet.decoding import decode_json
from motet.errors import ArtifactError, DeviceError
from motet.ranks.transport import RankTransport
from motet.runtime.device import DeviceInfo
from motet.runtime.launching import how_to_launch
from motet.runtime.selection import HOST, processor_lacks
from motet.version import VERSION

_CLOCK_ROUNDS = 5


class RankMember(msgspec.Struct, frozen=True):
    """A rank. `artifact` is the SHA-256 of its artifact, `machine` and `features` are its processor's, `devices` those
    of its machine, with local names."""

    host: str
    version: str
    artifact: str
    machine: str
    features: list[str]
    devices: list[DeviceInfo]


def gather_members(
    transport: RankTransport, artifact: Artifact, devices: Sequence[DeviceInfo], timeout: float
) -> list[RankMember]:
    """All ranks, by number. Raises ArtifactError if their artifacts or versions differ."""
    own = RankMember(
        platform.node(), VERSION, hexdigest(artifact.data, PIECE), cpu_features.machine(),
        sorted(cpu_features.host_features()), list(devices),
    )
    # Versions first: another version may say other things of itself.
    versions = [item.decode() for item in transport.gather(own.version.encode(), timeout)]
    _check_equal(versions, artifact.name, "Motet")
    items = transport.gather(msgspec.json.encode(own), timeout)
    members = [decode_json(item, RankMember) for item in items]
    _check_equal([member.artifact for member in members], artifact.name, "SHA-256")
    return members


def _check_equal(found: Sequence[str], name: str, what: str) -> None:
    for rank, text in enumerate(found):
        if text != found[0]:
            raise ArtifactError(f"{name}: ranks disagree: {what} {found[0][:16]} on rank 0, {text[:16]} on rank "
                                f"{rank}; expected the same on all: copy it to every machine")


def devices_of(members: Sequence[RankMember]) -> list[DeviceInfo]:
    """The devices of all ranks, named with their rank."""
    return [
        replace(info, uri=on_rank(rank, info.uri), rank=rank)
        for rank, member in enumerate(members) for info in member.devices
    ]


def with_ranks(bindings: Mapping[str, str], members: Sequence[RankMember]) -> dict[str, str]:
    """Bindings with the rank of each device: that of rank 0 unless it names another, or a machine, whose first rank
    counts. Raises DeviceError for ranks and machines that are not there."""
    return {name: _with_rank(uri, members) for name, uri in bindings.items()}


def _with_rank(uri: str, members: Sequence[RankMember]) -> str:
    place, local = split_place(uri)
    if not place:
        return on_rank(0, uri)
    rank = rank_of(place)
    hosts = [member.host for member in members]
    if rank is None:
        if place not in hosts:
            known = ", ".join(dict.fromkeys(hosts))
            raise DeviceError(f"device {uri}: no rank runs on machine {place!r}; ranks run on: {known}")
        rank = hosts.index(place)
    if rank >= len(members):
        there = "rank 0" if len(members) == 1 else f"ranks 0 to {len(members) - 1}"
        raise DeviceError(f"device {uri}: rank {rank} is not there; there {'is' if len(members) == 1 else 'are'} "
                          f"{there}; {how_to_launch(rank + 1)}")
    return on_rank(rank, local)


def obstacle_among(members: Sequence[RankMember], info: DeviceInfo, variant: Variant) -> str | None:
    """Why a device of a rank cannot run a variant; None for devices that only their driver can ask."""
    if info.family != HOST:
        return None
    member = members[info.rank]
    return processor_lacks(variant, member.machine, member.features)


def clock_offsets(transport: RankTransport, members: Sequence[RankMember], timeout: float) -> list[float]:
    """How far the clock of each rank (`time.perf_counter`) is ahead of this one's, in seconds: 0 on the same machine,
    which has one clock; else within the time of a message."""
    offsets = [0.0] * len(members)
    shortest = float("inf")
    for _ in range(_CLOCK_ROUNDS):
        before = time.perf_counter()
        clocks = [float(item) for item in transport.gather(repr(time.perf_counter()).encode(), timeout)]
        took = time.perf_counter() - before
        if took < shortest:
            shortest = took
            offsets = [clock - before - took / 2 for clock in clocks]
    own = members[transport.rank].host
    return [0.0 if member.host == own else offset for member, offset in zip(members, offsets, strict=True)]
