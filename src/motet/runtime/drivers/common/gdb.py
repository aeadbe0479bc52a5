"""The client of a GDB stub: QEMU's, or that of a probe's server (OpenOCD, pyOCD, J-Link).

Source: Debugging with GDB, appendix E (Remote Serial Protocol).
"""

from __future__ import annotations

import re
import time

from motet.runtime.drivers.common.link import DeviceLink, LinkLost

INTERRUPT = b"\x03"
STOPS = (b"S", b"T")  # the first bytes of the reasons of a stop


class GdbStub:
    """A stub on `connection`, which this object closes, whose processor is stopped. It is given `patience` seconds for
    each answer. Methods raise LinkLost; one thread uses it at a time. `description` is the stub's own of its processor,
    an XML document; empty if it has none."""

    def __init__(self, connection: DeviceLink, patience: float = 10.0) -> None:
        self._link = connection
        self._patience = patience
        self._received = bytearray()
        self._acknowledges = True  # and checks packets, as both ends do
        self._packet_bytes = 400
        self.description = b""
        try:
            self._begin()
        except LinkLost:
            self.close()
            raise

    def read(self, address: int, size: int) -> bytes:
        most = (self._packet_bytes - 16) // 2
        content = bytearray()
        while len(content) < size:
            count = min(most, size - len(content))
            answer = self.ask(b"m%x,%x" % (address + len(content), count))
            if answer[:1] == b"E" or len(answer) % 2 or not answer:
                where = address + len(content)
                raise LinkLost(f"memory at {where:#x} cannot be read: {answer.decode(errors='replace')}")
            content += bytes.fromhex(answer.decode())
        return bytes(content)

    def write(self, address: int, data: bytes) -> None:
        most = (self._packet_bytes - 32) // 2
        for at in range(0, len(data), most):
            part = data[at : at + most]
            answer = self.ask(b"M%x,%x:%s" % (address + at, len(part), part.hex().encode()))
            if answer != b"OK":
                raise LinkLost(f"memory at {address + at:#x} cannot be written: {answer.decode(errors='replace')}")

    def ask(self, packet: bytes) -> bytes:
        """The answer to a packet."""
        self.send(packet)
        end = time.monotonic() + self._patience
        answer = self._receive(end)
        while answer is not None and answer[:1] in STOPS and packet != b"?":  # from before this connection
            answer = self._receive(end)
        if answer is None:
            asked = packet[:20].decode(errors="replace")
            raise LinkLost(f"the stub does not answer {asked} within {self._patience:g} s over {self._link.name}")
        return answer

    def await_stop(self, end: float) -> bytes | None:
        """The reason of a stop; None if the processor still runs at `end`."""
        while (answer := self._receive(end)) is not None:
            if answer[:1] in STOPS:
                return answer
            if answer[:1] in (b"W", b"X"):
                raise LinkLost("the stub says that the program ended")
        return None

    def interrupt(self, end: float) -> bool:
        """Stop the processor; False if it still runs at `end`."""
        self._link.send(INTERRUPT, self._patience)
        return self.await_stop(end) is not None

    def send(self, packet: bytes) -> None:
        """Send a packet whose answer, if there is one, comes when the processor stops."""
        self._link.send(b"$%s#%02x" % (packet, sum(packet) & 0xFF), self._patience)

    def detach(self, patience: float = 0.0) -> None:
        """Let the stopped processor run on without this client, and wait `patience` seconds for the answer. On a serial
        line the stub cannot tell the next client from this one, and QEMU's may serve none after a `D`."""
        self.send(b"c" if self._link.serial else b"D")
        if not self._link.serial:
            self._receive(time.monotonic() + patience)

    def close(self) -> None:
        self._link.close()

    # -- packets ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._link.serial:  # nothing else tells the stub that there is a client, for which it stops the processor
            self._link.send(INTERRUPT, self._patience)
        answer = self.ask(b"?")
        if answer[:1] not in STOPS and self._link.serial:  # to what an earlier client asked
            answer = self.await_stop(time.monotonic() + self._patience) or b""
        if answer[:1] not in STOPS:
            raise LinkLost("the stub does not say why the processor stopped")
        features = self.ask(b"qSupported:swbreak+;hwbreak+")
        if found := re.search(rb"PacketSize=([0-9a-fA-F]+)", features):
            self._packet_bytes = min(max(int(found[1], 16), 64), 1 << 16)
        if b"qXfer:features:read+" in features:  # QEMU writes registers for a client that has read their description
            self.description = self.ask(b"qXfer:features:read:target.xml:0,ff0")
        if b"QStartNoAckMode+" in features and not self._link.serial:
            if self.ask(b"QStartNoAckMode") != b"OK":
                raise LinkLost("the stub refuses QStartNoAckMode")
            self._acknowledges = False

    def _receive(self, end: float) -> bytes | None:
        """The next packet, which is acknowledged; None at `end`. A damaged one is dropped."""
        while True:
            begin = self._received.find(b"$")
            del self._received[: begin if begin >= 0 else len(self._received)]
            stop = self._received.find(b"#")
            if stop >= 0 and len(self._received) >= stop + 3:
                packet, check = bytes(self._received[1:stop]), bytes(self._received[stop + 1 : stop + 3])
                if self._acknowledges and b"%02x" % (sum(packet) & 0xFF) != check.lower():
                    del self._received[:1]
                    continue
                del self._received[: stop + 3]
                if self._acknowledges:
                    self._link.send(b"+", self._patience)
                return _expanded(packet)
            if not (more := self._link.receive(end)):
                return None
            self._received += more


def _expanded(packet: bytes) -> bytes:
    """A packet without run-length encoding: `0* ` is four zeros."""
    return re.sub(rb"(.)\*([ -~])", lambda found: found[1] * (found[2][0] - 28), packet, flags=re.DOTALL)
