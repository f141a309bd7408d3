"""Lets a foreign MVDS node into a home's group, over TCP on this machine.

`python mvds_bridge.py HOME GROUP` makes the home if it is not there (family "mvds"), runs its
agent, and prints the port at which the foreign node calls. On that connection each payload, a
protobuf message of MVDS 0.6.0, has its length before it: 4 bytes, big-endian. Any number of homes
and boards may be behind the agent; this is only its cable to the foreign node.

The agent calls us as it calls a serial port that is served over TCP; its frames are COBS with a
CRC, and their first byte says which profile they are of. Both ends listen on 127.0.0.1 alone: the
cable is plain, so whoever may connect here is a member of the group.
"""

import asyncio
import sys
from pathlib import Path

from drupelet_host import create_home, open_home
from drupelet_transports.common.framing import Decoder, encode_into, wire_size_max

MVDS_1 = 0x41  # the first byte of a frame with records of profile mvds-1 (docs/SPEC.md 2)
FRAME_SIZE_MAX = 1024
FOREIGN_ID = bytes.fromhex("f0e1d2c3")


class Bridge:
    """The agent's connection and the foreign node's; who calls again takes the place."""

    def __init__(self) -> None:
        self.agent: asyncio.StreamWriter | None = None
        self.foreign: asyncio.StreamWriter | None = None

    async def on_agent(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand the agent's frames to the foreign node."""
        self.agent = writer
        decoder = Decoder(FRAME_SIZE_MAX)
        while data := await reader.read(4096):
            at, received = 0, bytearray(data)
            while at < len(received):
                at = decoder.feed(received, at, len(received))
                if decoder.size and decoder.frame[0] == MVDS_1 and self.foreign is not None:
                    payload = bytes(decoder.frame[1 : decoder.size])
                    self.foreign.write(len(payload).to_bytes(4) + payload)
        writer.close()

    async def on_foreign(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand the foreign node's payloads to the agent. What is lost, MVDS sends again."""
        self.foreign = writer
        try:
            while size := int.from_bytes(await reader.readexactly(4)):
                if size >= FRAME_SIZE_MAX:
                    print(f"a payload of {size} bytes: at most {FRAME_SIZE_MAX - 1} fit; cut it")
                    break
                frame = bytes([MVDS_1]) + await reader.readexactly(size)
                out = bytearray(wire_size_max(len(frame)))
                end = encode_into(out, frame, len(frame))
                if self.agent is not None:
                    self.agent.write(bytes(out[:end]))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # it calls again
        writer.close()


async def main(path: Path, group: str) -> None:
    """Bridge until Ctrl-C."""
    bridge = Bridge()
    foreign = await asyncio.start_server(bridge.on_foreign, "127.0.0.1", 0)
    known = path.exists()
    port = 0 if not known else int((path / "bridge.port").read_text())
    cable = await asyncio.start_server(bridge.on_agent, "127.0.0.1", port)
    if not known:
        port = cable.sockets[0].getsockname()[1]
        with create_home(path, "bridge", group, family="mvds") as home:
            home.add_peer("foreign", FOREIGN_ID, f"serial://127.0.0.1:{port}?plain=1", "mvds-1")
        (path / "bridge.port").write_text(f"{port}\n")
    with open_home(path) as home:
        async with home.agent():
            print(foreign.sockets[0].getsockname()[1], flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
    except KeyboardInterrupt:
        sys.exit(130)
