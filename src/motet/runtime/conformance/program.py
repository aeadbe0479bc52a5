"""Area `program`: whole programs, compiled by Motet for the device's family and run on the device."""

from __future__ import annotations

from motet.runtime.conformance.check import Skip
from motet.runtime.conformance.trial import Trial


def whole_program(trial: Trial) -> None:
    """A compiled program with a dynamic extent gives on the device what numpy gives."""
    trial.code  # noqa: B018 - skips where the family has no code
    raise Skip("sessions cannot be bound to devices yet")


CHECKS = (whole_program,)
