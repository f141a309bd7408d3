"""Two members behind Debian's mosquitto, which is restarted all the time: nothing lost, nothing
twice.

One member uses the host's MQTT client, the other one the board's, both over real sockets; nodes
and stores are the firmware's. Clocks run faster than real ones, so that back-off and keepalives
come about. Every second restart is a kill.
"""

import os
import random
import shutil
import socket
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from drupelet import host_api
from drupelet.base.errors import OK, DrupeletError
from drupelet.node import BATCH, CARRIER_MQTT, PROFILE_BSP_1, SHARED, Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet_transports.board import mqtt_board
from drupelet_transports.common.transport import Transport
from drupelet_transports.host import mqtt_host

SPEED = 20  # milliseconds of the members' clocks per real one
EPOCH_MS = 1000
RESTART_S = 3.0
# A broker that was stopped is away for as long as this at most.
AWAY_S_MAX = 0.5
# After the last restart everything is everywhere within so many seconds.
SETTLE_S_MAX = 60.0
START_S_MAX = 10.0
MESSAGES_PER_S = 12
# Of each member, spread over the run: a store of this kind looks slowly through longer logs.
MESSAGES_MAX = 1000
NAMES = ("000000a1/000000b2", "000000b2/000000a1")


class BrokerMissing(DrupeletError):
    """There is no mosquitto on this machine."""


@dataclass
class Figures:
    """What a run came to."""

    seconds: float = 0.0
    restarts: int = 0
    connects: int = 0
    messages: int = 0
    deliveries: int = 0
    lost: int = 0
    duplicated: int = 0
    frames: int = 0

    def as_row(self) -> dict[str, float]:
        """All of it by name."""
        return asdict(self)


def find_mosquitto() -> str:
    """The program: the machine's own, or what tools/setup fetched. Raises BrokerMissing."""
    root = Path(__file__).parents[3]
    cache = Path(os.environ.get("DRUPELET_CACHE", root / ".cache"))
    for candidate in (
        shutil.which("mosquitto"),
        "/usr/sbin/mosquitto",
        cache / "bin" / "mosquitto",
    ):
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    raise BrokerMissing("mosquitto is missing: run tools/setup, or install it with apt")


class Mosquitto:
    """The broker's process on a free port of this machine.

    options: further lines of its configuration, such as who may come in; without, all may.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self._program = find_mosquitto()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self._conf = folder / "mosquitto.conf"
        lines = [f"listener {self.port} 127.0.0.1", *(options or ("allow_anonymous true",))]
        if not os.geteuid():
            lines.append("user root")  # else it could not read what lies in our folder
        self._conf.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it accepts."""
        self._process = subprocess.Popen(
            [self._program, "-c", str(self._conf)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + START_S_MAX
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            except OSError:
                if self._process.poll() is not None:
                    break
                time.sleep(0.02)
        self.stop(True)
        raise BrokerMissing("mosquitto does not start: run it by hand to see why")

    def stop(self, kill: bool) -> None:
        """End it, politely or not."""
        if self._process is None:
            return
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        self._process.wait()
        self._process = None


class Party:
    """A node and its connection to the broker."""

    def __init__(
        self, client: "mqtt_host.MqttClient | mqtt_board.MqttClient", inbox: str, outbox: str
    ) -> None:
        self.client = client
        self.transport: Transport = client.transport(inbox.encode(), outbox.encode())
        self.store = FlashStore(RamFiles(1 << 24), segments_max=2048, filter_size=8192)
        self.store.open()
        self.node = Node(self.store, lambda: random.randrange(256), 1, 1, 16, 16)
        self.group = self.node.join_id(b"behind a broker that comes and g", 0)
        peer = self.node.add_peer(b"peer")
        self.node.share(self.group, peer, SHARED)
        self.node.boot(now_ms())
        self.link = self.node.link(peer, PROFILE_BSP_1, CARRIER_MQTT, EPOCH_MS, BATCH, now_ms())
        self.peer = peer
        self.frame = bytearray(1024)
        self.given: list[int] = []
        self.published = self.frames = 0

    def publish(self, name: bytes) -> None:
        """Put one message into the log, if there is room."""
        body = b"\0" + name + b"%d" % self.published
        moment = (1_700_000_000_000 + self.published).to_bytes(8, "big")
        if self.node.publish(self.group, body, len(body), moment, now_ms()) > 0:
            self.published += 1

    def step(self) -> None:
        """Take in what came, send what is due."""
        now = now_ms()
        self.client.maintain(now)
        size = self.transport.receive_into(self.frame)
        while size > 0:
            self.frames += 1
            self.link.receive(self.frame, size, now)
            size = self.transport.receive_into(self.frame)
        if self.client.up:
            size = self.link.poll_into(self.frame, now)
            if size and self.transport.send(self.frame, size) != OK:
                return  # it is lost, as frames may be
        while self.node.next_event():
            self.given.append(self.node.event_handle)
            self.node.done(self.node.event_handle)

    def log(self) -> list[bytes]:
        """The ids of the log in order."""
        return [message.id for message in host_api.messages(self.store)]


def now_ms() -> int:
    """The members' clocks."""
    return int(time.monotonic() * 1000 * SPEED) & 0x3FFFFFFF


def soak(seconds: float, seed: int = 1) -> Figures:
    """Exchange for so long while the broker comes and goes; then let all arrive."""
    draw = random.Random(seed)
    figures = Figures()
    with TemporaryDirectory() as folder:
        broker = Mosquitto(Path(folder))
        broker.start()
        parties = [
            Party(mqtt_host.MqttClient("127.0.0.1", broker.port, "t"), *NAMES),
            Party(
                mqtt_board.MqttClient("127.0.0.1", broker.port, "t", lambda: draw.randrange(256)),
                *reversed(NAMES),
            ),
        ]
        began = time.monotonic()
        try:
            _restart_and_exchange(broker, parties, seconds, draw, figures)
            _until_quiet(parties)
        finally:
            for party in parties:
                party.client.close()
            broker.stop(True)
        figures.seconds = round(time.monotonic() - began, 1)
    _count(parties, figures)
    return figures


def _restart_and_exchange(
    broker: Mosquitto, parties: list[Party], seconds: float, draw: random.Random, figures: Figures
) -> None:
    end = time.monotonic() + seconds
    restart_at = time.monotonic() + RESTART_S
    back_at = 0.0
    while (now := time.monotonic()) < end:
        due = (1 - (end - now) / seconds) * min(seconds * MESSAGES_PER_S, MESSAGES_MAX)
        for party, name in zip(parties, (b"a", b"b"), strict=True):
            if party.published < due:
                party.publish(name)
            party.step()
        if now >= restart_at:
            broker.stop(figures.restarts % 2 == 0)
            figures.restarts += 1
            back_at = now + draw.random() * AWAY_S_MAX
            restart_at = now + RESTART_S * (0.5 + draw.random())
        if back_at and now >= back_at:
            broker.start()
            back_at = 0.0
        time.sleep(0.001)
    if back_at:
        broker.start()


def _until_quiet(parties: list[Party]) -> None:
    end = time.monotonic() + SETTLE_S_MAX
    while time.monotonic() < end:
        for party in parties:
            party.step()
        wanted = sum(party.published for party in parties)
        if all(len(party.given) >= wanted for party in parties) and not any(
            party.node.outstanding(party.peer) for party in parties
        ):
            return
        time.sleep(0.001)


def _count(parties: list[Party], figures: Figures) -> None:
    figures.messages = sum(party.published for party in parties)
    everything: set[bytes] = set()
    logs = [party.log() for party in parties]
    for log in logs:
        everything.update(log)
    for party, log in zip(parties, logs, strict=True):
        figures.connects += party.client.connects
        figures.frames += party.frames
        figures.deliveries += len(party.given)
        figures.lost += max(figures.messages, len(everything)) - len(set(log))
        figures.duplicated += len(log) - len(set(log))
        figures.duplicated += len(party.given) - len(set(party.given))
