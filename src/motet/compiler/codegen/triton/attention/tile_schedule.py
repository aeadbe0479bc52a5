"""Assigns tiles of queries to programs, or to groups of warps, and counts the tiles of keys that each sees.

With a causal mask, the tiles that see the most keys come first, for `heads` heads at a time: few SMs are then busy at
the end, and heads whose keys fit in the second-level cache run together. Persistent programs take tiles in alternating
direction, so that a program that had a long tile gets a short one next.
"""

from __future__ import annotations

from motet.compiler.codegen.gpu.attention.space import AttentionSpace
from motet.compiler.codegen.gpu.attention.tiles import Groups
from motet.compiler.codegen.gpu.tasks import total
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer

_PROGRAM, _PROGRAMS = "gl.program_id(0)", "gl.num_programs(0)"


def one_tile(w: Writer, space: AttentionSpace, groups: Groups) -> dict[int, Coordinate]:
    """Write the lines that compute the only tile of a program: `begin`, its first query, and `count` and `whole`, the
    number of tiles of keys that it sees at all and entirely. Returns its batch."""
    number = w.program()
    blocks = w.define("t", f"tl.cdiv({w.extent(space.row_count)}, {groups.rows})")
    if groups.apart:  # a group in excess repeats its neighbour's tile
        count = f"{blocks} * {w.extent(total(space.batch))}"
        number = w.define("p", f"tl.minimum({number} * {groups.count} + WHICH, {count} - 1)")
    return _numbered(w, space, groups, number, blocks)


def every_tile(w: Writer, space: AttentionSpace, groups: Groups) -> dict[int, Coordinate]:
    """Like `one_tile`, in a loop over the tiles of a persistent program."""
    blocks = space.row_count.factor // groups.rows
    count = blocks * total(space.batch).factor
    slot = _PROGRAM
    if groups.apart:
        slot = f"WHICH * {_PROGRAMS} + ({_PROGRAM} if WHICH % 2 == 0 else {_PROGRAMS} - 1 - {_PROGRAM})"
    for line in (
        f"slot = {slot}",
        f"slots = {_PROGRAMS} * {groups.at_once}",
        f"turns = {count} // slots",
        "own = tl.where(turns % 2 == 0, slot, slots - 1 - slot)",
        f"turns += (turns * slots + own < {count}).to(tl.int32)",
        "for each in range(0, turns):",
    ):
        w.line(line)
    w.level += 1
    w.line("number = each * slots + tl.where(each % 2 == 0, slot, slots - 1 - slot)")
    return _numbered(w, space, groups, "number", str(blocks))


def _numbered(w: Writer, space: AttentionSpace, groups: Groups, number: str, blocks: str) -> dict[int, Coordinate]:
    if space.attention.causal is None:
        head, tile = w.define("p", f"{number} // {blocks}"), f"{number} % {blocks}"
    else:
        first = w.define("g", f"{number} // ({groups.heads} * {blocks}) * {groups.heads}")
        some = w.define("g", f"tl.minimum({w.extent(total(space.batch))} - {first}, {groups.heads})")
        rest = w.define("g", f"{number} % ({groups.heads} * {blocks})")
        head, tile = w.define("p", f"{first} + {rest} % {some}"), f"{blocks} - 1 - {rest} // {some}"
    w.line(f"begin = ({tile}) * {groups.rows}")
    if w.wide:
        w.line("begin = begin.to(tl.int32)")
    _count(w, space, groups)
    return w.decompose(Coordinate(head), space.batch) if space.batch else {}


def _count(w: Writer, space: AttentionSpace, groups: Groups) -> None:
    causal = space.attention.causal
    length = w.extent(space.keys)
    seen = last = length
    if causal is not None:
        seen = f"tl.maximum(tl.minimum(begin + {causal.offset + 1}, {length}), 0)"
        if causal.certain:
            last = f"tl.maximum(tl.minimum(begin + {groups.rows + causal.offset}, {length}), 1)"
    if space.keys.known is None:
        last = f"tl.maximum({last}, 1)"  # consumers always wait for a first tile
    for name, value in (("count", f"({last} + {groups.keys - 1})"), ("whole", f"({seen})")):
        text = f"{value} // {groups.keys}"
        w.line(f"{name} = tl.cast({text}, tl.int32)" if w.wide else f"{name} = {text}")


def is_one_careful(space: AttentionSpace, groups: Groups) -> bool:
    """Whether at most the last tile of keys needs a mask."""
    causal = space.attention.causal
    if causal is None:
        return True
    return not groups.keys % groups.rows and not causal.offset % groups.keys and causal.certain


def is_even(space: AttentionSpace, groups: Groups) -> bool:
    """Whether all queries see all keys of all tiles."""
    known = space.keys.known
    return space.attention.causal is None and known is not None and not known % groups.keys
