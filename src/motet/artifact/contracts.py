"""What the code of an artifact requires of its launches: the member `contracts.json`, written by the compiler.

A manifest says how kernels are run; this member, which belongs to the code, says how they may be run: the bytes of each
buffer and the number of tasks, as expressions over the kernel's sizes. `agreement.py` compares the two. `seal` is the
hash of the manifest that the code was compiled with, to detect another one even if it agrees.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec import structs

from motet.artifact.expressions import evaluate, evaluate_all
from motet.artifact.schema import Expr, Manifest
from motet.decoding import decode_json
from motet.errors import ArtifactError, CallError

CONTRACTS = "contracts.json"

_Bytes = TypeVar("_Bytes", bound=bytes | bytearray | memoryview)


class KernelContract(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The requirements of one phase of a kernel. Expressions are over `symbols`, the launch's sizes in order.

    `buffers` are bytes; the first `reads` are only read. `equal` are pairs that must be equal. The phase runs after
    phase `follows` of the same kernel, with which it shares buffers: `positions` are their numbers among the kernel's.
    `updates` are pairs of a read and a written buffer that may share memory.
    """

    symbols: list[str]
    buffers: list[Expr]
    reads: int
    tasks: Expr
    scratch: int = 0
    equal: list[list[Expr]] = []
    follows: str = ""
    positions: list[int] = []
    updates: list[tuple[int, int]] = []

    def expects(self, sizes: tuple[int, ...]) -> Expected | str:
        """The requirements for a launch's sizes, or the reason why these sizes are invalid."""
        if len(sizes) != len(self.symbols):
            return f"{len(sizes)} sizes; its code expects {len(self.symbols)}"
        if any(size < 0 for size in sizes):
            return f"sizes {', '.join(map(str, sizes))}; expected extents of tensors"
        known = dict(zip(self.symbols, sizes, strict=True))
        try:
            if any(evaluate(left, known) != evaluate(right, known) for left, right in self.equal):
                return f"sizes {', '.join(map(str, sizes))}; its code expects some of them to be equal"
            return Expected(max(0, evaluate(self.tasks, known)), evaluate_all(self.buffers, known))
        except CallError as error:
            return str(error)


@dataclass(frozen=True, slots=True)
class Expected:
    """The tasks of a launch, and the minimum sizes of its buffers in bytes."""

    tasks: int
    buffers: tuple[int, ...]

    def obstacle(self, tasks: int, buffers: Sequence[int]) -> str | None:
        """The reason why a launch does not meet the requirements; None if it does."""
        if len(buffers) != len(self.buffers):
            return f"{len(buffers)} buffers; its code expects {len(self.buffers)}"
        if tasks != self.tasks:
            return f"{tasks} tasks; its code expects {self.tasks}"
        for number, (given, least) in enumerate(zip(buffers, self.buffers, strict=True)):
            if given < least:
                return f"buffer {number} has {given} bytes; its code expects {least}"
        return None


Kernels = Mapping[str, list[KernelContract]]


class TargetContract(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The code for one target: what it runs on, its objects, and its kernels by symbol. Kernels that share code may
    have several contracts."""

    family: str
    target: str
    triple: str
    features: list[str]
    objects: list[str]
    kernels: dict[str, list[KernelContract]]


class Contracts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The contracts of all targets."""

    targets: list[TargetContract]
    seal: str = ""

    def find(self, family: str, target: str) -> TargetContract | None:
        return next((each for each in self.targets if (each.family, each.target) == (family, target)), None)


def decode_contracts(data: bytes | memoryview, where: str) -> Contracts:
    """Decodes the member. Raises ArtifactError, prefixed with `where`, if it is invalid."""
    try:
        return decode_json(data, Contracts)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError(f"{where}: member {CONTRACTS!r}: {error}") from error


def seal_of(manifest: Manifest) -> str:
    """The hash of a manifest, without the positions and contents of its members."""
    bare = structs.replace(manifest, members={}, external_parameters=None)
    return hashlib.sha256(msgspec.json.encode(bare)).hexdigest()


def seal(manifest: Manifest, members: MutableMapping[str, _Bytes | bytes]) -> None:
    """Binds the code in `members` to `manifest`; does nothing if there are no contracts."""
    if CONTRACTS not in members:
        return
    written = decode_json(msgspec.json.encode(manifest), Manifest)  # as a reader decodes it
    contracts = decode_contracts(bytes(members[CONTRACTS]), "artifact")
    members[CONTRACTS] = msgspec.json.encode(structs.replace(contracts, seal=seal_of(written)))


def add_contract(members: MutableMapping[str, bytes], contract: TargetContract) -> None:
    """Adds the contract of one target."""
    earlier = decode_contracts(members[CONTRACTS], "artifact").targets if CONTRACTS in members else []
    members[CONTRACTS] = msgspec.json.encode(Contracts([*earlier, contract]))
