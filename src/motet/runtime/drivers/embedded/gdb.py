"""A device behind a GDB stub: QEMU's, or that of a probe's server (OpenOCD, pyOCD, J-Link).

The processor is stopped at `motet_pause` while the host accesses its memory. Source: Debugging with GDB, appendix E
(Remote Serial Protocol).
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable

from motet.runtime.drivers.embedded.image import AgentImage
from motet.runtime.drivers.embedded.protocol import MAILBOX_TYPE, offset_of
from motet.runtime.drivers.embedded.transport import LinkLost

_INTERRUPT = b"\x03"
_PATIENCE = 10.0  # seconds for the answer to a packet
_LOOK = 0.05  # seconds between two looks at requests to abort
_THUMB_REGISTERS = {"sp": 13, "pc": 15, "xpsr": 25}
_THUMB_STATE = 1 << 24
_STOPS = (b"S", b"T")  # the first bytes of the reasons of a stop
_RISCV_REGISTERS = {"sp": 2, "pc": 32}


class GdbTransport:
    """See `Transport`. `connection` is a connected stream; `flash` writes the image first."""

    def __init__(self, connection: socket.socket, image: AgentImage, boot: float, flash: bool) -> None:
        self._socket = connection
        self._image = image
        self._received = bytearray()
        self._packet_bytes = 400
        self._breakpoint = b""
        self._begin()
        if flash:
            self._flash()
        self._place_breakpoint()
        self._send(b"c")
        if self._await_stop(time.monotonic() + boot) is None:
            raise LinkLost(f"the agent did not start within {boot:g} s (boot=SECONDS)")

    # -- memory ----------------------------------------------------------------------------------

    def read(self, address: int, size: int) -> bytes:
        most = (self._packet_bytes - 16) // 2
        content = bytearray()
        while len(content) < size:
            count = min(most, size - len(content))
            answer = self._ask(b"m%x,%x" % (address + len(content), count))
            if answer[:1] == b"E" or len(answer) % 2 or not answer:
                where = address + len(content)
                raise LinkLost(f"memory at {where:#x} cannot be read: {answer.decode(errors='replace')}")
            content += bytes.fromhex(answer.decode())
        return bytes(content)

    def write(self, address: int, data: bytes) -> None:
        most = (self._packet_bytes - 32) // 2
        for at in range(0, len(data), most):
            part = data[at : at + most]
            answer = self._ask(b"M%x,%x:%s" % (address + at, len(part), part.hex().encode()))
            if answer != b"OK":
                raise LinkLost(f"memory at {address + at:#x} cannot be written: {answer.decode(errors='replace')}")

    # -- work ------------------------------------------------------------------------------------

    def run(self, limit: float, aborted: Callable[[], bool]) -> bool:
        self.write(self._mailbox("request"), (1).to_bytes(4, "little"))
        self._leave_pause()
        end = time.monotonic() + limit
        while (now := time.monotonic()) < end:
            if self._await_stop(min(end, now + _LOOK)) is not None:
                if not self._requested():
                    return True
                self._leave_pause()  # it stopped at the breakpoint again: QEMU's step may have no effect
            elif aborted():
                return False
        return False

    def _leave_pause(self) -> None:
        """Let the processor run from the breakpoint on, where it is stopped."""
        self._send(b"s")
        if self._await_stop(time.monotonic() + _PATIENCE) is None:
            raise LinkLost("the stub does not step the processor")
        self._send(b"c")

    def _requested(self) -> bool:
        return int.from_bytes(self.read(self._mailbox("request"), 4), "little") != 0

    def finish(self, limit: float) -> bool:
        end = time.monotonic() + limit
        while (now := time.monotonic()) < end:
            self._socket.sendall(_INTERRUPT)
            if self._await_stop(end) is None:
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
            for packet in (self._breakpoint.replace(b"Z", b"z"), b"D"):
                self._send(packet)
        self._socket.close()

    def _to_pause(self, end: float) -> bool:
        self._send(b"c")
        return self._await_stop(end) is not None

    # -- start -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._ask(b"?")[:1] not in _STOPS:
            raise LinkLost("the stub does not say why the processor stopped")
        features = self._ask(b"qSupported:swbreak+;hwbreak+")
        if found := re.search(rb"PacketSize=([0-9a-fA-F]+)", features):
            self._packet_bytes = min(max(int(found[1], 16), 64), 1 << 16)
        if b"qXfer:features:read+" in features:  # QEMU writes registers for a client that has read their description
            self._ask(b"qXfer:features:read:target.xml:0,ff0")
        if b"QStartNoAckMode+" in features and self._ask(b"QStartNoAckMode") != b"OK":
            raise LinkLost("the stub refuses QStartNoAckMode")

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
            if self._ask(b"P%x=%s" % (number, written)) != b"OK":
                raise LinkLost(f"the stub cannot write the register {name}")

    def _place_breakpoint(self) -> None:
        thumb = self._image.machine == "thumb"
        where = self._image.symbols["motet_pause"] & ~int(thumb)
        for kind in (b"Z1", b"Z0"):
            self._breakpoint = b"%s,%x,2" % (kind, where)
            if self._ask(self._breakpoint) == b"OK":
                return
        raise LinkLost("the stub has no breakpoints")

    def _mailbox(self, field: str) -> int:
        return self._image.symbols["motet_mailbox"] + offset_of(MAILBOX_TYPE, field)

    # -- packets ---------------------------------------------------------------------------------

    def _ask(self, packet: bytes) -> bytes:
        self._send(packet)
        end = time.monotonic() + _PATIENCE
        answer = self._receive(end)
        while answer is not None and answer[:1] in _STOPS and packet != b"?":  # from before this connection
            answer = self._receive(end)
        if answer is None:
            raise LinkLost(f"the stub does not answer {packet[:20].decode(errors='replace')} within {_PATIENCE:g} s")
        return answer

    def _await_stop(self, end: float) -> bytes | None:
        """The reason of a stop; None if the processor still runs at `end`."""
        while (answer := self._receive(end)) is not None:
            if answer[:1] in _STOPS:
                return answer
            if answer[:1] in (b"W", b"X"):
                raise LinkLost("the stub says that the program ended")
        return None

    def _send(self, packet: bytes) -> None:
        try:
            self._socket.settimeout(_PATIENCE)
            self._socket.sendall(b"$%s#%02x" % (packet, sum(packet) & 0xFF))
        except OSError as error:
            raise LinkLost(f"the connection to the stub failed: {error}") from None

    def _receive(self, end: float) -> bytes | None:
        """The next packet, which is acknowledged; None at `end`."""
        while True:
            begin = self._received.find(b"$")
            stop = self._received.find(b"#", begin) if begin >= 0 else -1
            if stop >= 0 and len(self._received) >= stop + 3:
                packet = bytes(self._received[begin + 1 : stop])
                del self._received[: stop + 3]
                return _expanded(packet)
            if not self._more(end):
                return None

    def _more(self, end: float) -> bool:
        """Receive what there is; False at `end`."""
        left = end - time.monotonic()
        if left <= 0:
            return False
        try:
            self._socket.settimeout(left)
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            return False
        except OSError as error:
            raise LinkLost(f"the connection to the stub failed: {error}") from None
        if not data:
            raise LinkLost("the stub closed the connection")
        self._received += data
        return True


def _expanded(packet: bytes) -> bytes:
    """A packet without run-length encoding: `0* ` is four zeros."""
    return re.sub(rb"(.)\*([ -~])", lambda found: found[1] * (found[2][0] - 28), packet, flags=re.DOTALL)
