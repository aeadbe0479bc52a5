"""What OpenVINO's IR needs: its package, and to be recognised."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from motet.compiler.frontends.kinds import kind_of
from motet.compiler.frontends.openvino.package import require_openvino
from motet.errors import CompileError


def test_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def absent(name: str, package: str | None = None) -> Any:
        return None if name == "openvino" else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", absent)
    with pytest.raises(CompileError, match=r'model.xml: .*pip install "motet\[openvino\]"'):
        require_openvino("model.xml")


IR = ['<?xml version="1.0"?>\n<net name="m">', "<!-- made --><net>", " <net/>", "<!DOCTYPE net>\n<net>",
      '<?xml version="1.0"?><!-- a --><!DOCTYPE net SYSTEM "net.dtd" [<!ELEMENT net ANY>]><?made by="hand"?>\n<net>']


@pytest.mark.parametrize("text", IR)
def test_ir_is_recognised(text: str) -> None:
    assert kind_of(text, "m") == "openvino"
    assert kind_of(text.encode(), "m.xml") == "openvino"


def test_other_xml_is_not_ir() -> None:
    assert kind_of("<network/>", "m") == "mlir"
