"""Two agents at a real Mosquitto, and somebody there who listens to all and forges frames."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from drupelet_host.home.config import Peer
from drupelet_host.view.doctor import examine
from drupelet_tools.sim.broker import Mosquitto
from host.conftest import Home, share_keys, wait_for

MakeHome = Callable[..., Home]
A, B = 0xA0000001, 0xB0000002
FORGED_PER_S = 100


class Jammer:
    """Forges frames under the header that it heard last, on the topic where it heard it.

    deaf: from then on it only goes on with the topics that it knows.
    """

    def __init__(self, port: int) -> None:
        self.heard: dict[str, bytes] = {}
        self.deaf = False
        self.forged = 0
        self._ended = threading.Event()
        listens = threading.Event()
        self._paho = paho.Client(CallbackAPIVersion.VERSION2)
        self._paho.on_connect = lambda client, *_: client.subscribe("#")
        self._paho.on_subscribe = lambda *_: listens.set()
        self._paho.on_message = self._hear
        self._paho.connect("127.0.0.1", port)
        self._paho.loop_start()
        assert listens.wait(60)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _hear(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        if not self.deaf and message.payload[-1:] != b"!":
            self.heard[message.topic] = message.payload

    def _run(self) -> None:
        while not self._ended.wait(1 / FORGED_PER_S):
            for topic, frame in list(self.heard.items()):
                self.forged += 1
                head = frame[:6] + bytes([frame[6] + 1 + self.forged % 5 & 255])
                self._paho.publish(topic, head + frame[7:15] + bytes(40) + b"!")

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._paho.disconnect()
        self._paho.loop_stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path)
    broker.start()
    yield broker
    broker.stop(True)


def test_messages_arrive_the_jam_is_told_and_new_keys_move_the_link(
    make_home: MakeHome, broker: Mosquitto
) -> None:
    url = f"mqtt://127.0.0.1:{broker.port}/p"
    homes = [
        make_home("a", A, Peer("b", B.to_bytes(4), url, "batch", 50)),
        make_home("b", B, Peer("a", A.to_bytes(4), url, "batch", 50)),
    ]
    share_keys(*homes)
    # It must hear the first frames: later ones come when somebody has something to say.
    jammer = Jammer(broker.port)
    try:
        for home in homes:
            home.start()
        wait_for(lambda: jammer.forged > 200, "forged frames")
        for number in range(10):
            for home in homes:
                home.put(f"{home.name} {number}")
            time.sleep(0.1)
        for home in homes:
            wait_for(lambda home=home: len(home.log()) == 20, f"all messages at {home.name}")
        jammed = wait_for(
            lambda: [row for row in examine(homes[0].path) if row.name == "jammed"], "the jam"
        )
        assert "b, live: somebody jams" in jammed[0].text and "since 20" in jammed[0].text
        assert "drupelet rotate b" in jammed[0].remedy
        assert "somebody jams" in homes[0].run("status").stdout
        jammer.deaf = True
        known = set(jammer.heard)
        assert len(known) == 2 and not any(name.endswith(("1230", "1231")) for name in known)
        assert homes[0].run("rotate", "b").returncode == 0
        wait_for(
            lambda: all(
                home.status()["peers"][0]["seals"]["live"]["generation"] == 1 for home in homes
            ),
            "the new root at both",
        )
        for home in homes:
            home.put(f"{home.name} after")
        for home in homes:
            wait_for(lambda home=home: len(home.log()) == 22, f"what came after at {home.name}")

        # What the broker had before they left the old names may still arrive.
        def are_left_alone() -> bool:
            forged, counts = jammer.forged, [forged_at(home) for home in homes]
            time.sleep(1.0)
            return jammer.forged > forged and [forged_at(home) for home in homes] == counts

        wait_for(are_left_alone, "second in which nothing forged reaches them", 3.0)
    finally:
        jammer.end()
    for home in homes:
        home.stop()


def forged_at(home: Home) -> int:
    """As the agent counts them, from a status of after the call."""
    begun_ms = time.time_ns() // 1_000_000
    agent_status = wait_for(
        lambda: (status := home.status())["said_ms"] > begun_ms and status, "another status"
    )
    return int(agent_status["peers"][0]["seals"]["live"]["forged"])
