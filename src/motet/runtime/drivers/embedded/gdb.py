"""A device behind a GDB stub: QEMU's, or that of a probe's server (OpenOCD, pyOCD, J-Link).

The processor is stopped at `motet_pause` while the host accesses its memory.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from motet.runtime.drivers.common.gdb import GdbStub
from motet.runtime.drivers.common.link import DeviceLink, LinkLost
from motet.runtime.drivers.common.recording import offset_of
from motet.runtime.drivers.embedded.image import AgentImage
from motet.runtime.drivers.embedded.protocol import MAILBOX_TYPE

_PATIENCE = 10.0  # seconds for a step
_LOOK = 0.05  # seconds between two looks at requests to abort
_THUMB_REGISTERS = {"sp": 13, "pc": 15, "xpsr": 25}
_THUMB_STATE = 1 << 24
_RISCV_REGISTERS = {"sp": 2, "pc": 32}


class GdbTransport(GdbStub):
    """See `Transport`. `flash` writes the image first."""

    def __init__(self, connection: DeviceLink, image: AgentImage, boot: float, flash: bool) -> None:
        self._image = image
        self._breakpoint = b""
        super().__init__(connection)
        if flash:
            self._flash()
        self._place_breakpoint()
        self.send(b"c")
        if self.await_stop(time.monotonic() + boot) is None:
            raise LinkLost(f"the agent did not start within {boot:g} s (boot=SECONDS)")

    # -- work ------------------------------------------------------------------------------------

    def run(self, limit: float, aborted: Callable[[], bool]) -> bool:
        self.write(self._mailbox("request"), (1).to_bytes(4, "little"))
        self._leave_pause()
        end = time.monotonic() + limit
        while (now := time.monotonic()) < end:
            if self.await_stop(min(end, now + _LOOK)) is not None:
                if not self._requested():
                    return True
                self._leave_pause()  # it stopped at the breakpoint again: QEMU's step may have no effect
            elif aborted():
                return False
        return False

    def _leave_pause(self) -> None:
        """Let the processor run from the breakpoint on, where it is stopped."""
        self.send(b"s")
        if self.await_stop(time.monotonic() + _PATIENCE) is None:
            raise LinkLost("the stub does not step the processor")
        self.send(b"c")

    def _requested(self) -> bool:
        return int.from_bytes(self.read(self._mailbox("request"), 4), "little") != 0

    def finish(self, limit: float) -> bool:
        end = time.monotonic() + limit
        while (now := time.monotonic()) < end:
            if not self.interrupt(end):
                return False
            if not self._requested():  # it has ended
                return self._to_pause(end)
            # Written again after a while: the agent clears it where it begins the batch.
            self.write(self._mailbox("abort"), (1).to_bytes(4, "little"))
            if self._to_pause(min(end, now + 4 * _LOOK)):
                return True
        return False

    def close(self) -> None:
        with contextlib.suppress(LinkLost):
            self.send(self._breakpoint.replace(b"Z", b"z"))
            self.detach()
        super().close()

    def _to_pause(self, end: float) -> bool:
        self.send(b"c")
        return self.await_stop(end) is not None

    # -- start -----------------------------------------------------------------------------------

    def _flash(self) -> None:
        for segment in self._image.segments:
            self.write(segment.address, segment.data)
        registers = _THUMB_REGISTERS if self._image.machine == "thumb" else _RISCV_REGISTERS
        values = {
            "sp": self._image.symbols["motet_stack_end"], "pc": self._image.symbols["motet_entry"] & ~1,
            "xpsr": _THUMB_STATE,
        }
        for name, number in registers.items():
            value = values[name]
            written = value.to_bytes(self._image.pointer_bytes, "little").hex().encode()
            if self.ask(b"P%x=%s" % (number, written)) != b"OK":
                raise LinkLost(f"the stub cannot write the register {name}")

    def _place_breakpoint(self) -> None:
        thumb = self._image.machine == "thumb"
        where = self._image.symbols["motet_pause"] & ~int(thumb)
        for kind in (b"Z1", b"Z0"):
            self._breakpoint = b"%s,%x,2" % (kind, where)
            if self.ask(self._breakpoint) == b"OK":
                return
        raise LinkLost("the stub has no breakpoints")

    def _mailbox(self, field: str) -> int:
        return self._image.symbols["motet_mailbox"] + offset_of(MAILBOX_TYPE, field)
