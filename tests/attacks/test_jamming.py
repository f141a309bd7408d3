"""Clients of the same broker, without keys, that want to stop a sealed link; a real Mosquitto.

Who cannot read the link's topics does not find them. Who can (`#`) copies headers and forges what
is behind them: a genuine frame is still tried, up to a rate that a host or a board sets itself.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from drupelet.base.errors import OK
from drupelet.base.limits import (
    FRAME_SIZE_MAX,
    SEAL_FORGED_PER_SLICE,
    SEAL_FORGED_PER_SLICE_HOST,
    SEAL_OLD_MAX,
    SEAL_STEPS_MAX,
)
from drupelet.seal.seal import CLASS_LIVE, Seal, SealContext
from drupelet_host.base.aead import Aead
from drupelet_tools.sim.broker import Mosquitto
from drupelet_transports.board import mqtt_board
from drupelet_transports.host import mqtt_host
from drupelet_transports.seal.sealed_carrier import Sealed
from seal_ends import A_ID, B_ID, KID, ROOT, Bytes, RamKeys, install

SECONDS = 4.0
GENUINE_PER_S = 25
# Half of them toward each end.
FORGED_PER_S = 160
MEET_S_MAX = 20.0


def now_ms() -> int:
    return int(time.monotonic() * 1000) & 0x3FFFFFFF


class Device:
    """One end of the link, on the client of a host or of a board."""

    def __init__(self, own: bytes, peer: bytes, port: int, board: bool) -> None:
        self.keys = RamKeys(own, peer)
        assert install(self.keys, ROOT, KID, 0, 0) == OK
        forged_max = SEAL_FORGED_PER_SLICE if board else SEAL_FORGED_PER_SLICE_HOST
        context = SealContext(
            Aead(), Bytes(own[3]), bytes(4), SEAL_STEPS_MAX, SEAL_OLD_MAX, forged_max
        )
        self.seal = Seal(context, self.keys, CLASS_LIVE)
        assert self.seal.load() == OK
        self.client = (
            mqtt_board.MqttClient("localhost", port, "t", Bytes(own[3]))
            if board
            else mqtt_host.MqttClient("localhost", port, "t")
        )
        self.sealed = Sealed(
            self.client.transport_of(self.seal), self.seal, now_ms, bytearray(FRAME_SIZE_MAX)
        )
        self.frame = bytearray(FRAME_SIZE_MAX)
        self.heard: list[bytes] = []

    def step(self) -> None:
        self.client.maintain(now_ms())
        for _ in range(64):
            size = self.sealed.receive_into(self.frame)
            if size <= 0:
                return
            self.heard.append(bytes(self.frame[:size]))

    def say(self, text: bytes) -> None:
        self.sealed.send(bytearray(text), len(text))


class Attacker:
    """A client that everybody may be. `listen`: it reads all topics."""

    def __init__(self, port: int, listen: bool) -> None:
        # The newest genuine frame of each topic: one topic per direction.
        self.newest: dict[str, bytes] = {}
        self.sent = 0
        self._paho = paho.Client(CallbackAPIVersion.VERSION2, client_id="nobody")
        self._paho.on_message = self._heard
        self._paho.connect("127.0.0.1", port)
        if listen:
            self._paho.on_connect = lambda client, *_: client.subscribe("#")

    def _heard(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        if message.payload and message.payload[-1:] != b"!":
            self.newest[message.topic] = message.payload

    def step(self) -> None:
        self._paho.loop(0.0)

    def forge(self) -> None:
        """With what it has heard of either direction in turn, else with what it may guess."""
        self.sent += 1
        kid = KID.to_bytes(2) if self.sent & 1 else (KID | 1).to_bytes(2)
        topic, head = f"t/{kid.hex()}", b"\x80" + kid + (self.sent % 8).to_bytes(3)
        head += bytes([self.sent & 255])
        if self.newest:
            topic, frame = sorted(self.newest.items())[self.sent % len(self.newest)]
            # Numbers that were not opened yet: those that come next.
            head = frame[:6] + bytes([frame[6] + 1 + self.sent % 7 & 255])
            if frame[0] & 0x20:
                head += frame[7:15]
        self._paho.publish(topic, head + bytes(40) + b"!")

    def close(self) -> None:
        self._paho.disconnect()
        self._paho.loop(0.1)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    broker = Mosquitto(tmp_path)
    broker.start()
    yield broker.port
    broker.stop(True)


def siege(port: int, listen: bool, board: bool) -> tuple[float, Device, Device, Attacker]:
    """The share of the genuine messages that arrived, both ways."""
    a, b = Device(A_ID, B_ID, port, False), Device(B_ID, A_ID, port, board)
    attacker = Attacker(port, listen)
    until = time.monotonic() + MEET_S_MAX
    while not (a.seal.confirmed and b.seal.confirmed):
        assert time.monotonic() < until, "the two do not meet"
        for end in (a, b):
            if end.client.up:
                end.say(b"hello")
            end.step()
        attacker.step()
        time.sleep(0.02)
    a.heard.clear()
    b.heard.clear()
    begun = time.monotonic()
    sent = 0
    while (passed := time.monotonic() - begun) < SECONDS + 1:
        if passed < SECONDS and sent < passed * GENUINE_PER_S:
            a.say(b"a%d" % sent)
            b.say(b"b%d" % sent)
            sent += 1
        while passed < SECONDS and attacker.sent < passed * FORGED_PER_S:
            attacker.forge()
            attacker.step()
        for end in (a, b):
            end.step()
        attacker.step()
        time.sleep(0.002)
    for end in (a, b):
        end.client.close()
    attacker.close()
    arrived = len({text for text in a.heard + b.heard if text != b"hello"})
    print(f"{sent} said by each, {arrived} arrived, {attacker.sent} forged frames,"
          f" {a.seal.forged} and {b.seal.forged} tried")  # fmt: skip
    assert attacker.sent > FORGED_PER_S // 2 * SECONDS
    return arrived / (2 * sent), a, b, attacker


def test_who_cannot_read_the_topics_does_not_find_them(port: int) -> None:
    share, a, b, _ = siege(port, listen=False, board=True)
    assert share == 1.0
    assert (a.seal.forged, b.seal.forged) == (0, 0)


def test_who_listens_to_all_does_not_stop_a_host(port: int) -> None:
    share, a, b, attacker = siege(port, listen=True, board=False)
    assert share >= 0.97
    assert a.seal.forged + b.seal.forged > attacker.sent // 4, "its frames were of the open epoch"


def test_who_listens_to_all_slows_a_board_and_does_not_stop_it(port: int) -> None:
    share, _, b, _ = siege(port, listen=True, board=True)
    # 80 forged frames a second at the board, which tries 62: it hears more than half of the
    # genuine ones; the host hears all.
    assert share >= 0.7
    assert b.seal.forged, "its frames were of the open epoch"
