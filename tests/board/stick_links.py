"""Looks at sticks of which some have links: `stick_links.py FOLDER...`; what the board says."""

import sys

from boards.stick import Socket
from drupelet_transports.stick import Stick


class Device:
    """What a visit without peers needs of one."""

    def __init__(self) -> None:
        self.frame = bytearray(1024)
        self.clock = self.node = self
        self.said = []

    def now_ms(self) -> int:
        return 0

    def save(self, _now_ms: int) -> int:
        return 0

    def drain(self) -> None:
        pass

    def consume(self) -> None:
        pass

    def say(self, line: str) -> None:
        self.said.append(line)


for folder in sys.argv[1:]:
    device = Device()
    socket = Socket(Stick(folder, b"\xaa\0\0\1"), bytearray(1024))
    for _ in range(3):  # a stick is visited, or refused, once
        socket.look(device)
    print("\n".join(device.said))
