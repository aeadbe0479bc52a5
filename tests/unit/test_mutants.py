"""The faults that `checks.mutants` makes can be made: their texts are in the source."""

from __future__ import annotations

from checks.mutants import read_faults


def test_every_fault_can_be_made() -> None:
    assert not [(fault.file, fault.text) for fault in read_faults() if not fault.is_there()]
