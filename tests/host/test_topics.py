"""Topics of agents, as processes: over a real broker and real multicast, sealed, revoked."""

import itertools
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drupelet.base.errors import E_PEER
from drupelet.base.hashes import group_id_into
from drupelet.channel.sender_keys import PLACE_SIZE, SenderKeys
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.seal.record import RECORD_SIZE
from drupelet_host.agent.topics import TOPIC_LABEL, topic_id
from drupelet_host.base import clock
from drupelet_host.base.aead import Aead
from drupelet_host.broker import Broker
from drupelet_host.cli import app
from drupelet_host.home import config
from drupelet_host.home.config import ConfigError, Peer, Shared, load
from drupelet_host.keys.sender_keys_file import ROWS, SenderFile
from drupelet_transports.host.mqtt_host import MqttClient
from host.conftest import Home, messages_sent, share_keys, wait_for

MakeHome = Callable[..., Home]
NAMES = "abc"
IDS = {name: 0xA0000001 + row for row, name in enumerate(NAMES)}


def trio(
    make_home: MakeHome, url: str, topic: str, name: str = "field", epoch_ms: int = 50
) -> list[Home]:
    """Three homes, each linked to the others over a broker, and a topic of all."""
    homes = []
    for own in NAMES:
        peers = [
            Peer(other, IDS[other].to_bytes(4), url, "interactive", epoch_ms)
            for other in NAMES
            if other != own
        ]
        homes.append(make_home(own, IDS[own], *peers))
    for one, other in itertools.combinations(homes, 2):
        share_keys(one, other)
    for home in homes:
        text = f'\n[[topics]]\nname = "{name}"\nurl = "{topic}"\nepoch_ms = {epoch_ms}\n'
        with (home.path / "drupelet.toml").open("a") as file:
            file.write(text)
    return homes


def told(homes: list[Home]) -> bool:
    """Whether everybody has everybody's sender key."""
    counts = [len(topic["told"]) for home in homes for topic in home.status()["topics"]]
    return counts == [len(homes) - 1] * len(homes)


def state_of(home: Home, peer: Home) -> str:
    """What a home says of the line to a peer."""
    rows = {row["id"]: row["state"] for row in home.status()["peers"]}
    return str(rows[peer.id.hex()])


def readings(home: Home) -> list[str]:
    return sorted(entry["text"] for entry in home.log())


@pytest.fixture
def multicast() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return f"udp://239.77.1.8:{found.getsockname()[1]}?interface=127.0.0.1"


class Tap:
    """Reads what goes over a topic of a broker; all the time, or the broker would drop it."""

    def __init__(self, url: str, name: str) -> None:
        port, _, prefix = url.partition("://")[2].partition(":")[2].partition("/")
        self._client = MqttClient("127.0.0.1", int(port), prefix)
        self._carrier = self._client.transport(name.encode(), name.encode())
        self._frames: list[bytes] = []
        self._taken = 0
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        wait_for(lambda: self._client.up, "the tap's connection")

    def _run(self) -> None:
        frame = bytearray(1024)
        while not self._over:
            self._client.maintain(clock.now_ms())
            while (size := self._carrier.receive_into(frame)) > 0:
                self._frames.append(bytes(frame[:size]))
            time.sleep(0.01)
        self._client.close()

    def take(self) -> list[bytes]:
        """What came since the last call."""
        found = self._frames[self._taken :]
        self._taken += len(found)
        return found

    def read(self, wanted: list[str], *rings: SenderKeys) -> list[bytes]:
        """What came since the last call, as soon as all that is wanted can be read in it."""
        frames: list[bytes] = []
        plain: list[bytes] = []

        def found() -> bool:
            new = self.take()
            frames.extend(new)
            for keys in rings:
                plain.extend(opened(keys, new))
            text = b"".join(plain)
            return all(one.encode() in text for one in wanted)

        wait_for(found, "what is wanted on the topic")
        return frames

    def close(self) -> None:
        self._over = True
        self._thread.join()


def id_of(name: str = "field") -> str:
    group = bytearray(32)
    group_id_into(group, READINGS_CLIENT_ID, b"orchard", 7)
    return topic_id(TOPIC_LABEL, bytes(group), name).hex()


def senders(home: Home) -> SenderKeys:
    """A copy of the sender keys of a home, as who took its disk would have them."""
    port = SenderFile(home.path / "keys" / f"{id_of()}.senders")
    port.open()
    port.path = Path("/nonexistent")
    keys = SenderKeys(Aead(), port, home.id, lambda: 0, ROWS - 1)
    keys.load()
    port.save = lambda *_: 0  # type: ignore[method-assign, assignment]
    return keys


def opened(keys: SenderKeys, frames: list[bytes]) -> list[bytes]:
    """What of the frames can be read with these keys."""
    found = []
    for row, frame in enumerate(frames):
        buf = bytearray(frame)
        size = keys.open(buf, len(buf), row * 20_000 % (1 << 30))
        assert size == E_PEER or size > 0
        if size > 0:
            found.append(bytes(buf[keys.at : keys.at + size]))
    return found


def chains_of(keys: SenderKeys) -> list[bytes]:
    """The chains that somebody knows, its own first (docs/SPEC.md, record of a sender key)."""
    record, place = bytearray(RECORD_SIZE), bytearray(PLACE_SIZE)
    assert keys.record_into(record, 0)
    chains = [bytes(record[4:8])]
    for id in IDS.values():
        if keys.place_into(place, 0, id.to_bytes(4), 0):
            chains.append(bytes(place[:4]))
    return chains


def revoke(a: Home, b: Home, c: Home) -> SenderKeys:
    """a revokes c; both others begin new keys. What c's keys were at that time."""
    chains = {home.name: chains_of(senders(home))[0] for home in (a, b)}
    done = a.run("revoke", "c", "--json")
    assert done.returncode == 0, done.stderr
    stolen = senders(c)
    wait_for(lambda: all(state_of(home, c) == "revoked" for home in (a, b)), "the revocation")
    for home, other in ((a, b), (b, a)):
        wait_for(
            lambda home=home, other=other: [
                topic["told"] for topic in home.status()["topics"]
            ] == [[other.id.hex()]],
            f"new keys of {home.name}",
        )  # fmt: skip
        assert chains_of(senders(home))[0] != chains[home.name]
    return stolen


def test_three_agents_on_a_topic_of_a_broker_and_one_is_revoked(
    make_home: MakeHome, broker: Broker
) -> None:
    url = broker.start() + "/t"
    homes = trio(make_home, url, url)
    a, b, c = homes
    tap = Tap(url, "t" + id_of())
    try:
        for home in homes:
            home.start()
        wait_for(lambda: told(homes), "keys at all members")
        texts = [f"secret {home.name} {row}" for home in homes for row in range(3)]
        for text in texts:
            homes[ord(text[7]) - ord("a")].put(text)
        for home in homes:
            wait_for(lambda home=home: readings(home) == texts, f"all at {home.name}")
        before = tap.read(["secret a", "secret b"], senders(c))
        assert not any(b"secret" in frame for frame in before)

        stolen = revoke(a, b, c)
        tap.take()
        for home in (a, b):
            for row in range(3):
                home.put(f"after {home.name} {row}")
        wait_for(lambda: len(readings(a)) == len(readings(b)) == 15, "six more")
        after = tap.read(["after a", "after b"], senders(a), senders(b))
        # Neither the keys that it had, nor those that it has now, open a single frame of theirs.
        old = chains_of(stolen)
        others = [frame for frame in after if frame[1:5] not in old]
        assert others and opened(stolen, others) == []
        assert opened(senders(c), others) == []
        assert b"after" not in b"".join(opened(stolen, after))
        assert readings(c) == texts
    finally:
        tap.close()


def test_what_a_topic_carries_is_not_sent_again_on_links(
    make_home: MakeHome, broker: Broker
) -> None:
    url = broker.start() + "/t"
    homes = trio(make_home, url, url, epoch_ms=1000)
    tap = Tap(url, "t" + id_of())
    try:
        for home in homes:
            home.start()
        wait_for(lambda: told(homes), "keys at all members")
        for row in range(20):
            homes[0].put(f"reading {row:02}")
        for home in homes:
            wait_for(lambda home=home: len(home.log()) == 20, f"all at {home.name}")
        a = homes[0]
        a.settle()
        # Links may carry some: a member not heard on the topic of late is served there too.
        tap.read(["reading"], senders(homes[1]))
    finally:
        tap.close()
    # Two listeners take 40 copies; what the topic itself repeats on a busy machine does not count.
    again = [peer["duplicates"] for home in homes for peer in home.status()["peers"]]
    assert sum(again) <= 12, again


def test_three_agents_on_multicast(make_home: MakeHome, broker: Broker, multicast: str) -> None:
    """The broker only hands the keys over: then it goes away."""
    homes = trio(make_home, broker.start() + "/t", multicast)
    for home in homes:
        home.start()
    wait_for(lambda: told(homes), "keys at all members")
    broker.stop()
    for home in homes:
        wait_for(
            lambda home=home: all(p["state"] == "down" for p in home.status()["peers"]),
            "loss of the broker",
        )
        for row in range(3):
            home.put(f"{home.name} {row}")
    texts = [f"{name} {row}" for name in NAMES for row in range(3)]
    for home in homes:
        wait_for(lambda home=home: readings(home) == texts, f"all at {home.name}")
        wait_for(lambda home=home: home.status()["topics"][0]["state"] == "up", "word of it")
    # Nobody may go before all have theirs: who is away acknowledges nothing.
    for home in homes:
        home.settle()
    for home in homes:
        assert home.check_alive() is False
        shown = CliRunner().invoke(app.app, ["status", "--home", str(home.path)]).output
        assert "2 of 2" in shown and "field" in shown
        home.stop()
        # The broker was gone before the first message: its carrier sent none of them.
        sent = messages_sent(home.path, home.id)
        assert sent.get("udp", 0) >= 3 and "mqtt" not in sent
    # A restart is a new epoch of the chains; nobody needs the broker for it.
    for home in homes:
        home.start("--wait")
    homes[1].put("once more")
    wait_for(lambda: len(homes[2].log()) == 10, "what was written after the restart")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[[topics]]\nname = "x"\n', "topics 1: url: missing"),
        ('[[topics]]\nurl = "udp://239.0.0.1:1"\n', "topics 1: name: missing"),
        ('[[topics]]\nname = "x"\nurl = "stick:///m"\n', "only udp: and mqtt: reach several"),
        ('[[topics]]\nname = "x"\nurl = "udp://239.0.0.1"\n', "give address and port"),
        ('[[topics]]\nname = "x"\nurl = "udp://239.0.0.1:1"\npeers = "b"\n', "names in brackets"),
        ('[[topics]]\nname = "x"\nurl = "udp://239.0.0.1:1"\npeers = ["z"]\n', "no peer 'z'"),
        ('[[topics]]\nname = "x"\nurl = "udp://239.0.0.1:1"\npeers = ["s"]\n', "needs a sealed"),
        ('[[topics]]\nname = "x"\nurl = "udp://239.0.0.1:1"\npeers = ["p"]\n', "needs a sealed"),
        ('[[topics]]\nname = "x"\nurl = "udp://239.0.0.1:1"\nspeed = 1\n', "speed: unknown key"),
        ('[[topics]]\nname = "x"\nurl = "udp://239.0.0.1:1"\nepoch_ms = 1\n', "whole number"),
        ("topics = 3\n", "must be tables that begin with [[topics]]"),
        ('[[topics]]\nname = "x"\nurl = "udp://239.0.0.1:1"\n' * 2, "a name is used twice"),
        ('[[channels]]\nname = "x"\nurl = "udp://239.0.0.1:1"\nepoch_ms = 50\n', "unknown key"),
    ],
)
def test_one_clear_line_for_what_is_wrong(make_home: MakeHome, text: str, why: str) -> None:
    home = make_home(
        "a", 1, Peer("b", b"bbbb", "mqtt://h/p"), Peer("s", b"ssss", "stick:"),
        Peer("p", b"pppp", "serial:///dev/ttyX?plain=1"),
    )  # fmt: skip
    path = home.path / "drupelet.toml"
    path.write_text(
        text + path.read_text() if text.startswith("topics =") else path.read_text() + text
    )
    with pytest.raises(ConfigError) as caught:
        load(home.path)
    assert why in str(caught.value) and "\n" not in str(caught.value)


def test_a_topic_is_written_as_it_is_read(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("a", 1, Peer("b", b"bbbb", "mqtt://h/p"), Peer("s", b"ssss", "stick:"))
    topic = Shared("field", "udp://239.0.0.1:7447", ("b",), 200)
    channel = Shared("chat", "mqtt://h/p", (), 5000, "small")
    made = replace(load(home.path), home=tmp_path / "other", topics=(topic,), channels=(channel,))
    config.create(made)
    assert load(made.home) == made
    assert [peer.name for peer in made.listeners(topic)] == ["b"]
    assert [peer.name for peer in made.listeners(channel)] == ["b"], "not who has only sticks"
    config.add_peer(made.home, Peer("c", b"cccc", "mqtt://h/p"))
    assert load(made.home).topics == (topic,)
