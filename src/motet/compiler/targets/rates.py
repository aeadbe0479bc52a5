"""The rates of devices, for the cost model: how fast each family computes, reads memory, and is reached.

Every family has defaults; `--option rates=FILE.json` overrides them, in the format that
`motet devices --measure -o FILE.json` writes:

    {"host": {"contraction": 1.1e11, "memory": 2.4e10}, "gpu": {"upload": 1.2e10}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

import msgspec

from motet.decoding import decode_json
from motet.errors import OptionError


class Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rates of one family: operations per second on 32-bit floats for each class of kernel, bytes per second,
    seconds.

    A kernel takes `launch` plus the longer of its arithmetic and its memory traffic; each step of a plan adds `submit`.
    A `shared` device works in the host's memory, and a plan that needs no other device is called, not submitted. Bytes
    are sent to other devices at `upload`, and returned at `download`, both after `latency`. Between two devices of the
    family bytes are transferred at `peer`, or through the host if that is 0.
    """

    contraction: float
    convolution: float
    elementwise: float
    reduction: float
    generic: float
    memory: float
    launch: float
    submit: float
    shared: bool = False
    upload: float = inf
    download: float = inf
    latency: float = 0.0
    peer: float = 0.0


# Measured with `motet devices --measure` on four cores of an x86-64 server with AVX-512.
HOST = Rates(
    contraction=6e11, convolution=5e11, elementwise=2.5e11, reduction=3e11, generic=8e9, memory=1e11,
    launch=5e-7, submit=3e-5, shared=True,
)
# Measured: `null` devices run their code on one thread of the host; the bus is that of their model.
NULL = Rates(
    contraction=1.1e11, convolution=1.1e11, elementwise=9e10, reduction=1e11, generic=2e9, memory=2.6e10,
    launch=2e-6, submit=5e-5, upload=1.5e10, download=1.5e10, latency=1.5e-5,
)
# Measured: four cores emulated by QEMU on such a server.
RISCV = Rates(
    contraction=6.5e8, convolution=6.5e8, elementwise=8e8, reduction=3.7e7, generic=4e8, memory=1e9,
    launch=4e-5, submit=1.3e-4, upload=1.4e10, download=1.4e10, latency=1.1e-5,
)
# A device behind a bus of which no measurements exist.
UNKNOWN = Rates(
    contraction=1e12, convolution=1e12, elementwise=1e11, reduction=1e11, generic=1e10, memory=2e11,
    launch=5e-6, submit=3e-5, upload=1.2e10, download=1.2e10, latency=1e-5,
)
DEFAULTS: Mapping[str, Rates] = {"host": HOST, "null": NULL, "riscv": RISCV}


@dataclass(frozen=True)
class RateTable:
    """The rates of families by name, and the families with a code generator; None if that does not matter."""

    known: Mapping[str, Rates] = field(default_factory=lambda: DEFAULTS)
    coded: frozenset[str] | None = None

    def of(self, family: str) -> Rates:
        return self.known.get(family, UNKNOWN)

    def has_code(self, family: str) -> bool:
        return self.coded is None or family in self.coded


def read_rates(text: str, where: str) -> Mapping[str, Mapping[str, float | bool]]:
    """The content of a file of rates, validated. Raises OptionError whose text begins with `where`."""
    try:
        given = decode_json(text, dict[str, dict[str, float | bool]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{where}: is no file of rates: {error}; expected one such as "
                          "motet devices --measure -o FILE writes") from None
    fields = Rates.__struct_fields__
    for family, values in given.items():
        for name, value in values.items():
            if name not in fields:
                raise OptionError(f"{where}: {family}: no rate {name}; there are: {', '.join(fields)}")
            least = name in ("launch", "submit", "latency", "peer")
            fits = isinstance(value, bool) if name == "shared" else not isinstance(value, bool) and (
                value >= 0 if least else value > 0)
            if not fits:
                kind = "true or false" if name == "shared" else "a number, at least 0" if least else "a number above 0"
                raise OptionError(f"{where}: {family}: {name} is {value}; expected {kind}")
    return given


def rate_table(
    families: Mapping[str, Rates], given: Mapping[str, Mapping[str, float | bool]] | None = None,
    coded: frozenset[str] | None = None,
) -> RateTable:
    """The default rates, with those of the drivers in `families`, overridden by the rates of a file."""
    known = {**DEFAULTS, **families}
    for family, values in (given or {}).items():
        known[family] = msgspec.structs.replace(known.get(family, UNKNOWN), **values)
    return RateTable(known, coded)
