"""Clusters are said where an entry says how it is launched."""

from __future__ import annotations

import pytest

from motet.compiler.codegen.triton.compile.clusters import clustered

HEAD = ".version 8.7\n.visible .entry k(\n\t.param .u64 a\n)\n.reqntid 384\n.maxnreg 168\n"
BODY = "{\n\tret;\n}\n"


def test_entries_say_how_many_blocks_a_cluster_has() -> None:
    assert clustered(HEAD + BODY, 2) == f"{HEAD}.explicitcluster\n.reqnctapercluster 2\n{BODY}"


def test_what_says_no_registers_is_refused() -> None:
    with pytest.raises(ValueError, match="maxnreg"):
        clustered(HEAD.replace(".maxnreg 168\n", "") + BODY, 2)
