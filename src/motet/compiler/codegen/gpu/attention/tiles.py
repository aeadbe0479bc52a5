"""Tile sizes of warp-specialised attention on Hopper: `hopper.py` chooses them, `warp_specialized.py` and
`tile_schedule.py` write the program."""

from __future__ import annotations

from dataclasses import dataclass

OWN = 64  # queries of a group of four warps, the rows of one of its products
MOVING = 32  # registers of each thread of the producer warps
_REGISTERS, _MOST = 65536, 240  # registers of an SM, and the most of a consumer thread


@dataclass(frozen=True)
class Groups:
    """`count` groups of warps with tiles of `keys` keys, and buffers for `stages` tiles of keys and values. A group
    has 64 queries. All groups together have one tile of queries and share its keys, or, if they are `apart`, each has a
    tile and keys. With `stay`, programs are persistent: while one tile of queries is finished, the keys of the next are
    loaded. With a causal mask, tiles of `heads` heads are processed together. A program occupies an SM alone."""

    count: int
    keys: int
    stages: int
    stay: bool = False
    apart: bool = False
    heads: int = 8

    @property
    def at_once(self) -> int:
        """Tiles of queries that a program processes at a time."""
        return self.count if self.apart else 1

    @property
    def rows(self) -> int:
        """Queries of a tile."""
        return self.count // self.at_once * OWN

    @property
    def places(self) -> int:
        """Buffers for tiles of keys; as many for tiles of values."""
        return self.stages * self.at_once

    @property
    def label(self) -> str:
        apart = f" apart={self.count}" if self.apart else ""
        return f"groups {self.rows}x{self.keys} stages={self.stages}{apart}{' stay' if self.stay else ''}"

    def attending(self, movers: int) -> int:
        """Registers of each consumer thread next to `movers` producer warps. Registers are allocated to four warps at a
        time."""
        moving = -(-movers // 4)
        share = _REGISTERS // (128 * (self.count + moving)) // 8 * 8
        return min(_MOST, (share * (self.count + moving) - MOVING * moving) // self.count // 8 * 8)
