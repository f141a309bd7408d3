"""A MicroPython board of this machine, as a device that mpremote can connect to.

`repl_board.py` runs on the real interpreter behind a terminal of its own; its bytes are passed on
to a second terminal or to a socket, which stand for the cable. So a cable can be pulled.
"""

import os
import select
import signal
import socket
import subprocess
import threading
from pathlib import Path

from drupelet_tools.flash.build import micropython_command
from drupelet_tools.terminal import Terminal

PROGRAM = Path(__file__).with_name("repl_board.py")
BLOCK = 4096
MODES = {10: "friendly", 11: "raw"}


class PtyBoard:
    """Use it as a context; `target` is what mpremote is told."""

    def __init__(
        self, folder: Path, blocks: int = 512, heap_kib: int = 320, rom_blocks: int = 0,
        over_socket: bool = False,
    ) -> None:  # fmt: skip
        self._flash = []
        for name, count in (("drive", blocks), ("rom", rom_blocks)):
            path = folder / name
            if count and not path.exists():
                path.write_bytes(b"\xff" * BLOCK * count)
            if count:
                self._flash.append(str(path))
        self._start = [*micropython_command("x86"), "-X", f"heapsize={heap_kib}K", str(PROGRAM)]
        self._stop_read, self._stop_write = os.pipe()
        self._console = Terminal()  # the board's own
        self._own = self._console.fd
        self.cut_after: int | None = None  # the cable is pulled after so many bytes to the board
        self.to_board = 0
        self.from_board = bytearray()
        self.exit_codes: list[int] = []
        self._server: socket.socket | None = None
        if over_socket:
            self._server = socket.create_server(("127.0.0.1", 0))
            self.target = f"socket://127.0.0.1:{self._server.getsockname()[1]}"
            self._cable = -1
        else:
            self._line = Terminal()
            self._cable, self.target = self._line.fd, self._line.path
        self.process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._threads = [threading.Thread(target=self._relay), threading.Thread(target=self._live)]
        self._closing = threading.Event()

    def __enter__(self) -> "PtyBoard":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        os.write(self._stop_write, b"x")
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        for thread in self._threads:
            thread.join(timeout=10)
        self.pull()
        self._console.close()
        for descriptor in (self._stop_read, self._stop_write):
            os.close(descriptor)
        if self._server is not None:
            self._server.close()

    def pull(self) -> None:
        """Pull the cable: the target is gone for good."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._cable >= 0 and self._server is None:
            self._line.close()
        self._cable = -1

    def _live(self) -> None:
        """Start the board again after each soft reset."""
        mode = "friendly"
        while not self._closing.is_set():
            board = self._console.device_fd
            self.process = subprocess.Popen(
                [*self._start, self._console.path, mode, *self._flash],
                stdin=board, stdout=board, stderr=board,
                start_new_session=True,
            )  # fmt: skip
            self.exit_codes.append(self.process.wait())
            mode = MODES.get(self.process.returncode, "friendly")

    def _relay(self) -> None:
        while not self._closing.is_set():
            readers = [self._own, self._stop_read]
            if self._cable >= 0:
                readers.append(self._cable)
            if self._server is not None:
                readers.append(self._server)
            ready = select.select(readers, [], [])[0]
            if self._server in ready:
                assert self._server is not None
                self._connection = self._server.accept()[0]
                self._cable = self._connection.fileno()
            if self._own in ready:
                self._pass(os.read(self._own, 4096))
            if self._cable in ready:
                try:
                    data = os.read(self._cable, 256)
                except OSError:
                    data = b""
                if not data:
                    if self._connection is not None:
                        self._connection.close()
                        self._connection, self._cable = None, -1
                    continue
                self.to_board += len(data)
                if self.cut_after is not None and self.to_board >= self.cut_after:
                    self.cut_after = None
                    self.pull()
                    continue
                os.write(self._own, data)

    def _pass(self, data: bytes) -> None:
        self.from_board += data
        while data and self._cable >= 0:
            try:
                data = data[os.write(self._cable, data) :]
            except OSError:
                return
