"""A backlog for a peer that was away, over a real broker in real time.

A posts all messages while nobody is there; after AWAY_S B comes. Slowed to a tenth, B rests nine
times as long as each of its turns took.
"""

import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from drupelet.base.errors import OK
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.link.link import Link
from drupelet.node import CARRIER_MQTT
from drupelet_host.base import clock
from drupelet_host.broker import Broker
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.bench.pipe import End
from drupelet_tools.bench.profiles import Profile
from drupelet_transports.host.mqtt_host import MqttClient, MqttTransport

COUNTS = (1500, 5000)
AWAY_S = 20
# A tenth of the time is for B's turns.
SLOWED_TO = 10
# What is asked of each row: bytes of the loss-free transfer, and messages that come twice.
BYTES_RATIO_MAX = 1.1
DUPLICATES_SHARE_MAX = 0.01
_SECONDS_MAX = 900
_FRAMES_PER_TURN = 64
_PAUSE_S = 0.002


@dataclass(frozen=True)
class Cost:
    """What a backlog took. `away_bytes`: of the bytes, those that went while B was away."""

    total_bytes: int
    carrier_bytes: int
    away_bytes: int
    frames: int
    duplicates: int
    seconds: float


class _Side:
    """One end with its link and its connection to the broker."""

    def __init__(self, end: End, mode: int, port: int) -> None:
        self.end = end
        self.link: Link = end.connect(mode, CARRIER_MQTT, clock.now_ms())
        self.client = MqttClient("127.0.0.1", port, "t")
        self.carrier: MqttTransport = self.client.transport(end.id, end.other)
        self.total_bytes = self.carrier_bytes = self.frames = 0
        self._frame = bytearray(FRAME_SIZE_MAX)
        self._unsent = 0

    def turn(self) -> None:
        """What came in, then what is due."""
        now_ms = clock.now_ms()
        self.client.maintain(now_ms)
        if not self.client.up:
            return
        for _ in range(_FRAMES_PER_TURN):
            size = self.carrier.receive_into(self._frame)
            if size <= 0:
                break
            self.link.receive(self._frame, size, now_ms)
            self.end.consume()
        self._hand_out(now_ms)

    def _hand_out(self, now_ms: int) -> None:
        out = self._frame
        for _ in range(_FRAMES_PER_TURN):
            if self.carrier.pending_size:
                return
            size = self.link.poll_into(out, now_ms)
            if not size:
                return
            if self.carrier.send(out, size) != OK:
                raise BenchError("the embedded broker took no frame")
            self.total_bytes += size
            self.carrier_bytes += self.carrier.last_wire_size
            self.frames += 1


def over_broker(profile: Profile, mode: int, count: int, body_size: int, slowed: bool) -> Cost:
    """Post `count` messages, let B come after AWAY_S, wait until A knows that B has all.

    Raises BenchError when that takes more than 15 minutes.
    """
    draw = random.Random(1)
    broker = Broker()
    broker.start()
    sides: list[_Side] = []
    with tempfile.TemporaryDirectory(prefix="drupelet-bench-") as folder:
        ends = [
            End(Path(folder), profile, name, other, draw)
            for name, other in ((b"AAAA", b"BBBB"), (b"BBBB", b"AAAA"))
        ]
        try:
            for number in range(count):
                body = b"\0" + draw.randbytes(body_size - 1)
                ends[0].publish(body, number, clock.now_ms())
            ends[0].consume()
            sides.append(_Side(ends[0], mode, broker.port))
            return _run(sides, ends, mode, broker.port, count, slowed)
        finally:
            for side in sides:
                side.client.close()
            for end in ends:
                end.store.close()
            broker.stop()


def _run(
    sides: list[_Side], ends: list[End], mode: int, port: int, count: int, slowed: bool
) -> Cost:
    started_s = time.monotonic()
    rests_until_s = 0.0
    away_bytes = 0
    while True:
        now_s = time.monotonic() - started_s
        if now_s > AWAY_S + _SECONDS_MAX:
            raise BenchError(f"{ends[1].node.delivered} of {count} after {now_s:.0f} s")
        sides[0].turn()
        if len(sides) == 1 and now_s >= AWAY_S:
            away_bytes = sides[0].total_bytes
            sides.append(_Side(ends[1], mode, port))
        if len(sides) == 2 and now_s >= rests_until_s:
            sides[1].turn()
            if slowed:
                turn_s = time.monotonic() - started_s - now_s
                rests_until_s = now_s + SLOWED_TO * turn_s
        if ends[1].node.delivered == count and not ends[0].outstanding:
            return Cost(
                sum(side.total_bytes for side in sides),
                sum(side.carrier_bytes for side in sides), away_bytes,
                sum(side.frames for side in sides), ends[1].node.duplicates,
                round(now_s, 1),
            )  # fmt: skip
        time.sleep(_PAUSE_S)
