"""Motet's own passes by name, for pipelines in text: `motet opt --pipeline assign-devices{cpu=host},…`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from motet.compiler.frontends.gpu.gpu_concurrency import GpuConcurrency
from motet.compiler.frontends.gpu.map_loops_to_gpu import MapLoopsToGpu
from motet.compiler.frontends.resolve_flow import ResolveFlow
from motet.compiler.placement.anchor_operations import AnchorOperations
from motet.compiler.placement.annotate_affinities import AnnotateAffinities
from motet.compiler.placement.assign_devices import AssignDevices
from motet.compiler.placement.erase_devices import EraseDevices
from motet.compiler.placement.fold_transfers import FoldTransfers
from motet.compiler.placement.foreign_passes import Pass
from motet.compiler.placement.inline_calls import InlineCalls
from motet.compiler.placement.insert_transfers import InsertTransfers
from motet.compiler.placement.materialize_devices import MaterializeDevices
from motet.compiler.placement.outline_regions import OutlineRegions
from motet.compiler.placement.place_automatically import PlaceAutomatically
from motet.compiler.placement.place_operations import PlaceOperations
from motet.compiler.placement.resolve_aliases import ResolveAliases
from motet.compiler.placement.resolve_globals import ResolveGlobals
from motet.compiler.placement.resolve_promises import ResolvePromises
from motet.compiler.placement.resolve_states import ResolveStates
from motet.compiler.placement.select_branches import SelectBranches
from motet.compiler.placement.unroll_placed_loops import UnrollPlacedLoops
from motet.compiler.placement.verify_devices import VerifyDevices
from motet.errors import OptionError


def _plain(make: Callable[[], Pass], name: str) -> Callable[[str], Pass]:
    def factory(options: str) -> Pass:
        if options.strip():
            raise OptionError(f"pass {name}: it takes no options; there is {{{options}}}")
        return make()

    return factory


def _assign(options: str) -> Pass:
    """The texts of `--device`, with spaces between them."""
    return AssignDevices(tuple(_split(options)))


def _split(text: str) -> list[str]:
    """The words of a text; spaces in brackets and quotes do not part them."""
    words, word, depth, quote = list[str](), "", 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += (character in "{[<(") - (character in "}]>)") if not quote else 0
        if character.isspace() and not depth and not quote:
            words.append(word)
            word = ""
        else:
            word += character
    return [found for found in (*words, word) if found]


# Each takes the text of its options.
PASSES: Mapping[str, Callable[[str], Pass]] = MappingProxyType({
    "assign-devices": _assign,
    **{
        make.name: _plain(make, make.name)
        for make in (
            ResolveFlow, MaterializeDevices, ResolvePromises, ResolveStates, ResolveGlobals, InlineCalls,
            AnchorOperations, ResolveAliases, VerifyDevices, UnrollPlacedLoops, SelectBranches, AnnotateAffinities,
            PlaceAutomatically, PlaceOperations, InsertTransfers, FoldTransfers, OutlineRegions, EraseDevices,
            MapLoopsToGpu, GpuConcurrency,
        )
    },
})
