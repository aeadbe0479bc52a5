"""Operations placed by the names that the source gives them."""

from __future__ import annotations

import pytest

from motet.compiler.frontends.iree.tensor_spellings import AFFINITY
from motet.compiler.ir._mlir import ir
from motet.compiler.placement.place_by_name import PlaceByName
from motet.errors import OptionError

TEXT = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %x, %x : tensor<4xf32> loc("layer1.add")
  %1 = arith.mulf %0, %x : tensor<4xf32> loc(fused["layer2.mul", "model"])
  %2 = arith.mulf %1, %x {motet.affinity = "own"} : tensor<4xf32> loc("layer2.mul2"("model.py":3:1))
  %3 = arith.subf %2, %x : tensor<4xf32>
  return %3 : tensor<4xf32>
}
"""


def placed(*places: tuple[str, str]) -> list[str]:
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(TEXT)
        PlaceByName(places).run(module)
        operations = module.body.operations[0].regions[0].blocks[0].operations
        return [
            ir.StringAttr(entry.operation.attributes[AFFINITY]).value if AFFINITY in entry.operation.attributes else ""
            for entry in operations
        ][:4]


def test_patterns_match_any_name_of_a_location_and_the_first_holds() -> None:
    assert placed() == ["", "", "own", ""]
    assert placed(("layer1.*", "a")) == ["a", "", "own", ""]
    assert placed(("layer2.*", "b"), ("layer*", "a")) == ["a", "b", "own", ""]
    assert placed(("model", "m")) == ["", "m", "own", ""]


def test_a_pattern_that_matches_nothing_is_an_error_that_lists_names() -> None:
    with pytest.raises(OptionError, match=r"place layer3\*=a: no operation has such a name; there are: layer1.add"):
        placed(("layer*", "b"), ("layer3*", "a"))
