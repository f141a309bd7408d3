"""`drupelet export` to Debian's InfluxDB, Mosquitto and Prometheus, killed in the middle."""

import json
import random
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from drupelet_host.export import fleet_metrics
from drupelet_host.export.home_assistant import SENSORS_MAX, Discovery, slug
from drupelet_host.export.reading import reading_of
from drupelet_host.view.log_view import Entry, LogView
from drupelet_tools.sim.broker import Mosquitto
from host import exported, forked
from host.conftest import Cable, Home, Peer, wait_for
from host.guarded_broker import PASSWORD, Guarded
from host.hostile_bodies import HOSTILE
from host.influx_server import Influx
from telemetry.prometheus_server import complaints_of

A, B = 0xA0000001, 0xB0000002


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forked.run(["export", "--home", str(home), *words], 120)


@pytest.fixture
def influx(tmp_path: Path) -> Iterator[Influx]:
    server = Influx(tmp_path / "influx")
    server.query("CREATE DATABASE farm")
    yield server
    server.stop()


def logged(home: Path) -> list[Entry]:
    view = LogView(home)
    try:
        return list(view.entries())
    finally:
        view.close()


def test_influxdb_has_each_message_once_over_kills_and_an_outage(
    make_home: Callable[..., Home], influx: Influx, tmp_path: Path
) -> None:
    home = make_home("gate", A)
    home.start()
    rng = random.Random(11)
    words = ["export", influx.url, "--follow", "--home", str(home.path)]
    quick = {
        "drupelet_host.export.run.BATCH_MAX": 7,
        "drupelet_host.cli.export_verbs.LOOK_EVERY_S": 0.01,
    }
    number = 0
    with (tmp_path / "said.txt").open("ab") as said:
        for _ in range(8):
            process = forked.Command(words, said, said, quick)
            begun, length_s = time.monotonic(), rng.uniform(0.1, 0.7)
            while time.monotonic() - begun < length_s:
                home.put(f'{{"level_mm":{number}}}')
                number += 1
            process.kill()
            process.wait()
        process = forked.Command(words, said, said, quick)
        wait_for(lambda: len(home.log()) == number, "all in the log")
        wait_for(lambda: len(influx.ids()) >= number, "all points")
        process.kill()
        process.wait()
    assert (tmp_path / "said.txt").read_text() == ""
    points = influx.query("SELECT id, level_mm, author FROM reading")
    by_id = {row[1]: row[2:] for row in points}
    assert len(points) == len(by_id) == number > 20
    assert sorted(row[0] for row in by_id.values()) == list(range(number))
    # The reading's own time: to the millisecond.
    times = {row[1]: row[0][:23] for row in influx.query("SELECT id FROM reading")}
    for entry in home.log():
        assert times[entry["id"]].rstrip("Z").ljust(23, "0")[:22] == entry["time"][:22], entry


@pytest.mark.parametrize(
    ("where", "name", "when"),
    [
        ("drupelet_host.export.influx_server:InfluxTarget", "write", "before"),
        ("drupelet_host.export.influx_server:InfluxTarget", "write", "after"),
        ("drupelet_host.readers.log_reader:LogReader", "finish", "after"),
    ],
)
def test_influxdb_has_each_message_once_wherever_the_export_is_killed(
    influx: Influx, tmp_path: Path, where: str, name: str, when: str
) -> None:
    home = tmp_path / "gate"
    words = ("export", influx.url, "--home", str(home))
    for count in (1, 2, 1):
        # All of one millisecond: only their ids tell the points apart.
        exported.fill(home, (b"%d" % number for number in range(12)), 1_790_000_000_000)
        assert exported.killed(where, name, when, count, *words) == -signal.SIGKILL
    assert run(home, influx.url).returncode == 0
    assert Counter(influx.ids()) == Counter(entry.id.hex() for entry in logged(home))


def test_influxdb_takes_whatever_a_body_is(influx: Influx, tmp_path: Path) -> None:
    home = tmp_path / "gate"
    bodies = [text.encode() for text in HOSTILE] + [b"\xff\xfe", bytes(300)]
    exported.fill(home, bodies)
    done = run(home, influx.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(influx.ids()) == sorted(entry.id.hex() for entry in logged(home))
    texts = {row[1] for row in influx.query("SELECT text FROM reading") if row[1] is not None}
    assert 'say "no"' in texts and "a\\" in texts and "two\nlines\r\nand more" in texts


def test_a_point_that_influxdb_refuses_is_told_and_holds_up_nothing(
    influx: Influx, tmp_path: Path
) -> None:
    home = tmp_path / "gate"
    exported.fill(home, [b'{"level":1}', b'{"level":"dry"}', *(b"%d" % n for n in range(20))])
    done = run(home, influx.url)
    assert done.returncode == 0 and len(done.stderr.splitlines()) == 1
    assert "field type conflict" in done.stderr and logged(home)[1].id.hex()[:8] in done.stderr
    assert len(influx.ids()) == 21
    assert run(home, influx.url).stdout.startswith("0 messages")
    wrong = run(home, influx.url.replace("farm", "nothing"))
    assert wrong.returncode == 1 and "database not found" in wrong.stderr
    wrong = run(home, influx.url.replace("/write", "/nowhere/write"))
    assert wrong.returncode == 1 and "mend the URL" in wrong.stderr


def test_influxdb_with_a_password(tmp_path: Path) -> None:
    server = Influx(tmp_path / "influx", auth=True)
    try:
        who = {"u": "me", "p": "two words"}
        make = urllib.parse.urlencode(
            {"q": "CREATE USER me WITH PASSWORD 'two words' WITH ALL PRIVILEGES"}
        )
        server.request(f"/query?{make}", b"")
        home, login = tmp_path / "gate", tmp_path / "login"
        exported.fill(home, [b"1"])
        assert "not authorised" in run(home, server.url).stderr
        login.write_text("me\ntwo words\n")
        assert "run chmod 600" in run(home, server.url, "--login-file", str(login)).stderr
        login.chmod(0o600)
        done = run(home, server.url, "--login-file", str(login))
        assert "database not found" in done.stderr, "it let us in"
        assert "two words" not in done.stderr
        server.request(
            f"/query?{urllib.parse.urlencode({'q': 'CREATE DATABASE farm', **who})}", b""
        )
        assert run(home, server.url, "--login-file", str(login)).stdout.startswith(
            "1 message exported"
        )
    finally:
        server.stop()


class Version2(BaseHTTPRequestHandler):
    """What an InfluxDB 2 answers: Debian has none. It is away at first, and wants a token."""

    taken: list[bytes]
    answers: list[int]

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        code = self.answers.pop(0) if self.answers else 204
        if self.headers["Authorization"] != "Token abc":
            code = 401
        if code == 204:
            self.taken.append(data)
        assert self.path == "/api/v2/write?org=farm&bucket=wells"
        body = b"" if code == 204 else b'{"code":"x","message":"later"}'
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_version_2_with_a_token_and_an_outage(tmp_path: Path) -> None:
    home, login = tmp_path / "gate", tmp_path / "token"
    exported.fill(home, [b"1", b"2"])
    login.write_text("abc\n")
    login.chmod(0o600)
    taken: list[bytes] = []
    handler = type("Handler", (Version2,), {"taken": taken, "answers": [503, 429, 500]})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/api/v2/write?org=farm&bucket=wells"
        once = run(home, url, "--login-file", str(login))
        assert once.returncode == 1 and "cannot take points now (503 later)" in once.stderr
        quick = {"drupelet_host.cli.export_verbs.RETRY_S_MIN": 0.01}
        words = ["export", url, "--follow", "--home", str(home), "--login-file", str(login)]
        with (tmp_path / "said.txt").open("wb") as said:
            process = forked.Command(words, said, said, quick)
        wait_for(lambda: taken, "the points")
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert (tmp_path / "said.txt").read_text().count("cannot take points now") == 1
        assert [len(data.splitlines()) for data in taken] == [2]
        login.write_text("wrong\n")
        exported.fill(home, [b"3"])
        assert "not authorised" in run(home, url, "--login-file", str(login)).stderr
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Subscriber:
    """Home Assistant's side: counts what comes."""

    def __init__(self, port: int) -> None:
        self.states: list[tuple[str, dict[str, Any]]] = []
        self.sensors: dict[str, dict[str, Any]] = {}
        self._ready = threading.Event()
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, "subscriber", clean_session=False
        )
        self.client.on_connect = self._connected
        self.client.on_subscribe = lambda *_: self._ready.set()
        self.client.on_message = self._came
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert self._ready.wait(30)

    def _connected(self, client: paho.Client, *_: Any) -> None:
        client.subscribe([("farm/#", 2), ("homeassistant/#", 1)])

    def _came(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        document = json.loads(message.payload)
        if message.topic.startswith("homeassistant/"):
            assert message.topic.endswith("/config")
            self.sensors[message.topic] = document
        else:
            assert message.qos == 2 and not message.retain
            self.states.append((message.topic, document))

    def ids(self) -> list[str]:
        return [state["id"] for _, state in self.states]

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path)
    broker.start()
    yield broker
    broker.stop(kill=True)


SENDER = "drupelet_host.export.mqtt_sender:MqttSender"
JOURNAL = "drupelet_host.export.run:Journal"


@pytest.mark.parametrize(
    ("where", "name", "when"),
    [
        (JOURNAL, "sending", "before"),
        (JOURNAL, "sending", "after"),
        (SENDER, "publish", "after"),
        (JOURNAL, "received", "after"),
        (SENDER, "release", "after"),
        (SENDER, "_take_answer", "after"),
        ("drupelet_host.readers.log_reader:LogReader", "finish", "after"),
    ],
)
def test_mqtt_hands_on_each_message_once_wherever_the_export_is_killed(
    mosquitto: Mosquitto, tmp_path: Path, where: str, name: str, when: str
) -> None:
    home, url = tmp_path / "gate", f"mqtt://127.0.0.1:{mosquitto.port}/farm"
    subscriber = Subscriber(mosquitto.port)
    words = ("export", url, "--home", str(home))
    for count in (2, 8, 12, 3) if name == "_take_answer" else (1, 2, 1):
        exported.fill(home, (b"%d" % number for number in range(12)))
        assert exported.killed(where, name, when, count, *words) == -signal.SIGKILL
    assert run(home, url).returncode == 0
    expected = [entry.id.hex() for entry in logged(home)]
    wait_for(lambda: len(subscriber.ids()) >= len(expected), "all states")
    exported.fill(home, [b"the last"])
    assert run(home, url).stdout.startswith("1 message exported")
    wait_for(lambda: len(subscriber.ids()) >= len(expected) + 1, "the last state")
    subscriber.stop()
    assert Counter(subscriber.ids()) == Counter([entry.id.hex() for entry in logged(home)])


def test_mqtt_over_random_kills_and_restarts_of_the_broker(
    make_home: Callable[..., Home], tmp_path: Path
) -> None:
    broker = Mosquitto(
        tmp_path, "allow_anonymous true", "persistence true",
        f"persistence_location {tmp_path}/", "max_queued_messages 0",
    )  # fmt: skip
    broker.start()
    home = make_home("gate", A)
    home.start()
    subscriber = Subscriber(broker.port)
    url = f"mqtt://127.0.0.1:{broker.port}/farm"
    words = ["export", url, "--follow", "--home", str(home.path)]
    quick = {
        "drupelet_host.export.run.BATCH_MAX": 7,
        "drupelet_host.cli.export_verbs.LOOK_EVERY_S": 0.01,
        "drupelet_host.cli.export_verbs.RETRY_S_MIN": 0.05,
        "drupelet_host.cli.export_verbs.RETRY_S_MAX": 0.2,
    }
    rng = random.Random(3)
    number = 0
    with (tmp_path / "said.txt").open("ab") as said:
        for row in range(8):
            process = forked.Command(words, said, said, quick)
            begun, length_s = time.monotonic(), rng.uniform(0.1, 0.7)
            while time.monotonic() - begun < length_s:
                home.put(f'{{"board":"well","level_mm":{number}}}')
                number += 1
            if row % 3 == 2:  # politely: a broker that is killed forgets what it has not saved
                broker.stop(kill=False)
                broker.start()
            process.kill()
            process.wait()
        process = forked.Command(words, said, said, quick)
        wait_for(lambda: len(home.log()) == number, "all in the log")
        wait_for(lambda: len(set(subscriber.ids())) >= number, "all states")
        process.kill()
        process.wait()
    subscriber.stop()
    broker.stop(kill=True)
    assert Counter(subscriber.ids()) == Counter([entry["id"] for entry in home.log()])
    assert number > 20


def test_home_assistant_finds_each_value(mosquitto: Mosquitto, tmp_path: Path) -> None:
    home, url = tmp_path / "gate", f"mqtt://127.0.0.1:{mosquitto.port}/farm"
    stamp_ms = 1_790_000_000_000
    for minute in range(6):
        body = b'{"level_mm":%d,"temp_c":8.5,"open":true}' % minute
        exported.fill(home, [body], stamp_ms + 900_000 * minute)
    exported.fill(home, [b"21.5 C", b"the pump is on", b"\xff"])
    assert run(home, url).returncode == 0
    subscriber = Subscriber(mosquitto.port)
    wait_for(lambda: len(subscriber.sensors) == 5, "the sensors, which are retained")
    by_name = {sensor["name"]: sensor for sensor in subscriber.sensors.values()}
    level = by_name["level_mm"]
    assert level["unit_of_measurement"] == "mm" and level["state_class"] == "measurement"
    assert level["state_topic"] == "farm/gate/state"
    # A reading comes every 15 minutes: three of them may be missed.
    assert 2700 <= level["expire_after"] <= 5400
    assert by_name["temp_c"]["device_class"] == by_name["value"]["device_class"] == "temperature"
    assert len({sensor["unique_id"] for sensor in by_name.values()}) == 5
    switch = next(topic for topic in subscriber.sensors if "binary_sensor" in topic)
    assert subscriber.sensors[switch]["payload_on"] == "on"
    exported.fill(home, [b'{"open":false,"level_mm":7}'])
    assert run(home, url, "--expire-after", "60").returncode == 0
    wait_for(lambda: subscriber.states, "a state")
    wait_for(lambda: subscriber.sensors[switch].get("expire_after") == 60, "what was asked for")
    topic, state = subscriber.states[0]
    assert topic == level["state_topic"] and state["values"] == {"open": "off", "level_mm": 7.0}
    subscriber.stop()


def test_no_name_of_a_message_steers_a_template_or_a_topic() -> None:
    discovery = Discovery("farm", "a0000001", "homeassistant")
    names = ["{{ states }}", "'] }}{{ 1", "a/b/#", "+", "", "é", "A", "a" * 5000, "x\0y", "a\nb"]
    slugs = {slug(name) for name in names}
    assert len(slugs) == len(names)
    for number, name in enumerate(names):
        body = json.dumps({name: 1.5, "text": name}).encode()
        entry = Entry(1, 1, bytes([number]) * 32, name, "via", bytes(8), body, [])
        reading = reading_of(entry, "readings")
        for packet in [*discovery.announcements([reading]), discovery.state(reading)]:
            levels = packet.topic.split("/")
            assert len(packet.topic) < 200 and set("+#\0") & set(packet.topic) == set()
            assert len(levels) == (5 if packet.retain else 3)
            document = json.loads(packet.payload)
            if packet.retain:
                key = levels[-2]
                assert document["value_template"] == (
                    f"{{{{ value_json['values']['{key}'] if '{key}' in value_json['values']"
                    " else this.state }}"
                )
    for number in range(SENSORS_MAX + 5):
        body = json.dumps({f"v{number}": 1}).encode()
        entry = Entry(1, 1, bytes(32), "many", "via", bytes(8), body, [])
        discovery.announcements([reading_of(entry, "readings")])
    assert discovery.left_out > 5


def test_a_guarded_broker_over_tls(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    port = guarded.start(*guarded.users, *guarded.tls)
    assert guarded.broker is not None
    home, url = tmp_path / "gate", f"mqtts://localhost:{port}/farm"
    try:
        exported.fill(home, [b"1"])
        assert "certificate is not trusted" in run(home, url).stderr
        config_path = home / "drupelet.toml"
        text = config_path.read_text()
        config_path.write_text(text + guarded.table(f"mqtts://localhost:{port}", ca_file="ca.pem"))
        assert "login_file in [[brokers]]" in run(home, url).stderr
        files = {"ca_file": "ca.pem", "login_file": "login"}
        config_path.write_text(text + guarded.table(f"mqtts://localhost:{port}", **files))
        done = run(home, url)
        assert (done.returncode, done.stderr) == (0, "") and PASSWORD not in done.stdout
    finally:
        guarded.broker.stop(kill=True)


def test_prometheus_reads_the_fleets_health(
    make_home: Callable[..., Home], cable: Cable, tmp_path: Path
) -> None:
    a = make_home("a", A, Peer("b", B.to_bytes(4), cable.url(0), "interactive", 50))
    b = make_home("b", B, Peer("a", A.to_bytes(4), cable.url(1), "interactive", 50))
    for home in (a, b):
        home.start()
    b.put('{"board":"we\\\\ll \\"3\\"\\n","n":1,"temp_c":8.0,"supply_mv":3912}')
    b.put("two")
    a.put("three")
    wait_for(lambda: len(a.log()) == len(b.log()) == 3, "all at both")
    a.settle()
    page = tmp_path / "drupelet.prom"
    assert run(a.path, "--prometheus", str(page)).returncode == 0
    text = page.read_text()
    assert complaints_of(text) == ""
    assert 'drupelet_peer_up{peer="b",id="b0000002"} 1' in text
    assert 'drupelet_peer_delivered_messages{peer="b",id="b0000002"} 2' in text
    assert 'drupelet_peer_owed_messages{peer="b",id="b0000002"} 0' in text
    assert "3.912" in text.partition("drupelet_device_battery_volts{")[2]
    heard = float(text.partition('timestamp_seconds{peer="b",id="b0000002"} ')[2].split()[0])
    assert abs(heard - time.time()) < 600
    server = fleet_metrics.MetricsServer(a.path, 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert complaints_of(answer.read().decode()) == ""
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/")
        foreign = urllib.request.Request(
            f"http://127.0.0.1:{server.port}/metrics", headers={"Host": "example.org"}
        )
        with pytest.raises(urllib.error.HTTPError, match="421"):
            urllib.request.urlopen(foreign)
        taken = run(a.path, "--metrics-port", str(server.port))
        assert taken.returncode == 1 and "choose another port" in taken.stderr
    finally:
        server.close()
    assert "drupelet_peer_up" not in fleet_metrics.render(make_home("alone", 0xC0000003).path), (
        "a home without peers or store has a page, too"
    )
