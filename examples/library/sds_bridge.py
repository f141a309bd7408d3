"""Lets a foreign SDS node of nim-sds's dialect into a channel of a group, over TCP on this host.

`python sds_bridge.py HOME GROUP URL` makes the home if it is not there, with two channels:
`field`, at URL, which the group's members are in, and `foreign`, a cable to us. A bridge joins the
two. The program runs the home's agent, and prints the port at which the foreign node calls. On
that connection each frame, an SdsMessage whose channel_id is `foreign`, has its length before it:
4 bytes, big-endian. Before members and this home hear each other on `field`, they need keys:
`drupelet invite`.

The agent calls us as it calls a serial port that is served over TCP; its frames are COBS with a
CRC. Both ends listen on 127.0.0.1 alone: the cable is plain, so whoever may connect here takes
part in the channel. It may be killed and started again: each message arrives once.
"""

import asyncio
import sys
from pathlib import Path

from drupelet_host import create_home, open_home
from drupelet_transports.common.framing import Decoder, encode_into, wire_size_max

FRAME_SIZE_MAX = 65_536
CHANNELS = """
[[channels]]
name = "field"
url = "{url}"
period_ms = 1000

[[channels]]
name = "foreign"
url = "serial://127.0.0.1:{port}?plain=1"
period_ms = 1000
dialect = "sds-nim"
bridge = "field"
"""


class Cable:
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
                if decoder.size and self.foreign is not None:
                    frame = bytes(decoder.frame[: decoder.size])
                    self.foreign.write(len(frame).to_bytes(4) + frame)
        writer.close()

    async def on_foreign(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand the foreign node's frames to the agent. What is lost, SDS sends again."""
        self.foreign = writer
        try:
            while size := int.from_bytes(await reader.readexactly(4)):
                if size > FRAME_SIZE_MAX:
                    print(f"a frame of {size} bytes: at most {FRAME_SIZE_MAX} fit; cut it")
                    break
                frame = await reader.readexactly(size)
                out = bytearray(wire_size_max(size))
                end = encode_into(out, frame, size)
                if self.agent is not None:
                    self.agent.write(bytes(out[:end]))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # it calls again
        writer.close()


async def main(path: Path, group: str, url: str) -> None:
    """Bridge until Ctrl-C."""
    cable = Cable()
    foreign = await asyncio.start_server(cable.on_foreign, "127.0.0.1", 0)
    known = (path / "cable.port").exists()
    port = int((path / "cable.port").read_text()) if known else 0
    server = await asyncio.start_server(cable.on_agent, "127.0.0.1", port)
    if not known:
        port = server.sockets[0].getsockname()[1]
        create_home(path, "bridge", group).close()
        with (path / "drupelet.toml").open("a") as file:
            file.write(CHANNELS.format(url=url, port=port))
        (path / "cable.port").write_text(f"{port}\n")
    with open_home(path) as home:
        async with home.agent():
            print(foreign.sockets[0].getsockname()[1], flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
    except KeyboardInterrupt:
        sys.exit(130)
