"""A broker that lets not everybody in: TLS with an own CA, password file, client certificates.

Mosquitto is Debian's own. What keeps a host out is another line for each reason, in what the
agent prints, in `status` and in `doctor`; a healthy start prints none of them.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drupelet_host.agent.brokers import Brokers
from drupelet_host.home import broker_access
from drupelet_host.home.config import Config, ConfigError, load
from drupelet_host.home.config import Peer as PeerRow
from drupelet_host.home.private_files import PrivateError
from drupelet_host.view.doctor import examine
from drupelet_transports.common.transport import TransportError
from drupelet_transports.common.url import parse_url
from host.conftest import Home, share_keys, wait_for
from host.guarded_broker import PASSWORD, Guarded, login

MakeHome = Callable[..., Home]
A, B = 0xA0000001, 0xB0000002


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    folder = tmp_path / "broker"
    folder.mkdir()
    guarded = Guarded(folder)
    yield guarded
    if guarded.broker is not None:
        guarded.broker.stop(True)


def trouble(settings: Config, url: str) -> str:
    """What keeps a client with these settings out, or "up"."""
    brokers = Brokers(settings.brokers)
    try:
        client = brokers.client(parse_url(url))
        client.transport(b"in", b"out")
        until = time.monotonic() + 20
        while not (client.up or client.trouble) and time.monotonic() < until:
            brokers.maintain(int(time.monotonic() * 1000))
            time.sleep(0.005)
        return "up" if client.up else client.trouble
    finally:
        brokers.close()


def home(tmp_path: Path, *tables: str) -> Config:
    folder = tmp_path / "home"
    folder.mkdir(exist_ok=True)
    head = 'name = "a"\nid = "a0000001"\ngroup = "orchard"\n'
    (folder / "drupelet.toml").write_text(head + "".join(tables))
    return load(folder)


def test_what_keeps_a_host_out_is_told_apart(tmp_path: Path, guarded: Guarded) -> None:
    port = guarded.start(*guarded.users, *guarded.tls)
    url = f"mqtts://localhost:{port}"

    def of(table: str, at: str = url) -> str:
        return trouble(home(tmp_path, table), f"{at}/p")

    troubles = {
        "up": of(guarded.table(url, ca_file="ca.pem", login_file="login")),
        "no login": of(guarded.table(url, ca_file="ca.pem")),
        "no ca": of(guarded.table(url, login_file="login")),
        "other ca": of(guarded.table(url, ca_file="other.pem", login_file="login")),
        "plain": of("", f"mqtt://localhost:{port}"),
        "nobody": of("", "mqtt://localhost:1"),
    }
    login(guarded.folder / "login", password="wrong")
    troubles["wrong"] = of(guarded.table(url, ca_file="ca.pem", login_file="login"))
    assert troubles["up"] == "up"
    assert "not authorised" in troubles["no login"] and "login_file" in troubles["no login"]
    assert "not authorised" in troubles["wrong"] and "'gate'" in troubles["wrong"]
    for case in ("no ca", "other ca"):
        assert "not trusted" in troubles[case] and "ca_file" in troubles[case]
    assert "expects TLS" in troubles["plain"]
    assert "nobody listens there" in troubles["nobody"]
    assert not any(PASSWORD in text or "wrong" in text for text in troubles.values())


def test_plain_mqtt_with_user_and_password(tmp_path: Path, guarded: Guarded) -> None:
    port = guarded.start(*guarded.users)
    url = f"mqtt://localhost:{port}"
    assert trouble(home(tmp_path, guarded.table(url, login_file="login")), f"{url}/p") == "up"
    assert "not authorised" in trouble(home(tmp_path), f"{url}/p")
    tls = f"mqtts://localhost:{port}"
    reason = trouble(home(tmp_path, guarded.table(tls, ca_file="ca.pem")), f"{tls}/p")
    assert "does not speak TLS" in reason


def test_a_client_certificate_gets_in_where_one_is_wanted(
    tmp_path: Path, guarded: Guarded
) -> None:
    port = guarded.start("allow_anonymous true", *guarded.tls, "require_certificate true")
    url = f"mqtts://localhost:{port}"
    both = {"certificate_file": "client.pem", "key_file": "client.key"}
    assert (
        trouble(home(tmp_path, guarded.table(url, ca_file="ca.pem", **both)), f"{url}/p") == "up"
    )
    reason = trouble(home(tmp_path, guarded.table(url, ca_file="ca.pem")), f"{url}/p")
    assert "certificate_file" in reason


@pytest.mark.parametrize("name", ["login", "client.key"])
def test_a_secret_that_others_can_read_is_refused(
    tmp_path: Path, guarded: Guarded, name: str
) -> None:
    url = "mqtts://localhost:8883"
    files = {"certificate_file": "client.pem", "key_file": "client.key", "login_file": "login"}
    settings = home(tmp_path, guarded.table(url, ca_file="ca.pem", **files))
    broker_access.access(settings.brokers, parse_url(f"{url}/p"))
    (guarded.folder / name).chmod(0o640)
    with pytest.raises(PrivateError, match=r"others can get at it.*run chmod 600"):
        broker_access.access(settings.brokers, parse_url(f"{url}/p"))
    checks = [row for row in examine(settings.home) if row.name == "brokers"]
    assert [row.state for row in checks] == ["fail"] and "chmod 600" in checks[0].text


@pytest.mark.parametrize(
    "text", [b"", b"gate", b"gate\n", b"\nsecret\n", b"a\nb\nc\n", b"\xff\n\xff\n", b"x" * 2000]
)
def test_a_login_file_that_is_none_is_refused_without_a_word_of_it(
    tmp_path: Path, text: bytes
) -> None:
    path = login(tmp_path / "login")
    path.write_bytes(text)
    settings = home(tmp_path, f'[[brokers]]\nurl = "mqtt://h:1883"\nlogin_file = "{path}"\n')
    with pytest.raises(Exception, match=str(path)) as caught:
        broker_access.access(settings.brokers, parse_url("mqtt://h:1883/p"))
    assert "secret" not in str(caught.value)


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    for key, more in (("ca_file", ""), ("certificate_file", "")):
        table = f'[[brokers]]\nurl = "mqtts://h"\n{key} = "junk.pem"\n{more}'
        settings = home(tmp_path, table)
        for text in ("", "no certificate"):
            junk = settings.home / "junk.pem"
            junk.write_text(text)
            junk.chmod(0o600)
            with pytest.raises(TransportError, match=r"junk\.pem: does not hold"):
                broker_access.access(settings.brokers, parse_url("mqtts://h/p"))


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('url = "mqtt://h:1/prefix"', "must be a broker without a prefix"),
        ('url = "serial:///dev/x"', "must be a broker without a prefix"),
        ('url = "mqtt://h"\nca_file = "x"', "is for TLS; write mqtts://h"),
        ('url = "mqtts://h"\nkey_file = "x"', "needs the certificate_file"),
        ('url = "mqtts://h"\npassword = "x"', "password: unknown key"),
        ('url = "mqtts://me:word@h"', "login_file"),
        ('url = "mqtts://h"\n[[brokers]]\nurl = "mqtts://h:8883"', "two tables"),
    ],
)
def test_wrong_tables_are_refused(tmp_path: Path, table: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        home(tmp_path, "[[brokers]]\n" + table + "\n")
    assert why in str(caught.value) and "word@" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "mqtt://me:word@h/p", "mqtt://me:word/x@h/p", "mqtt://me:wo@rd@h/p", "mqtts://me:word?@h/p",
        "mqtt://word@h/p", "https://me:word@h/p",
    ],
)  # fmt: skip
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(TransportError) as caught:
        parse_url(url)
    assert "word" not in str(caught.value).replace("password", "")
    assert "login_file" in str(caught.value) or "start it with" in str(caught.value)


def pair(make_home: MakeHome, url: str, *tables: str) -> list[Home]:
    homes = [
        make_home("a", A, PeerRow("b", B.to_bytes(4), url, "batch", 50)),
        make_home("b", B, PeerRow("a", A.to_bytes(4), url, "batch", 50)),
    ]
    share_keys(*homes)
    for one in homes:
        with (one.path / "drupelet.toml").open("a") as file:
            file.write("".join(tables))
    return homes


def test_two_agents_over_tls_with_passwords(make_home: MakeHome, guarded: Guarded) -> None:
    """Peers, a topic and a channel; and nothing that is secret is printed or in the status."""
    port = guarded.start(*guarded.users, *guarded.tls)
    url = f"mqtts://localhost:{port}"
    shared = f'url = "{url}/shared"\n'
    homes = pair(
        make_home, f"{url}/orchard", guarded.table(url, ca_file="ca.pem", login_file="login"),
        f'[[topics]]\nname = "all"\n{shared}', f'[[channels]]\nname = "talk"\n{shared}',
    )  # fmt: skip
    for one in homes:
        one.start("--wait")
        one.put(f"from {one.name}")
    for one in homes:
        wait_for(lambda one=one: len(one.log()) == 2, f"both messages at {one.name}")
        wait_for(
            lambda one=one: all(
                row["state"] == "up"
                for row in (*one.status()["topics"], *one.status()["channels"])
            ),
            "topics and channels",
        )
        assert not [row for row in one.events("carrier") if row["reason"]], "a healthy start"
        doctor = [row for row in examine(one.path) if row.name in ("brokers", "carriers")]
        assert [row.state for row in doctor] == ["ok", "ok"]
    for one in homes:
        output = (one.path / "out.txt").read_text() + (one.path / "err.txt").read_text()
        assert PASSWORD not in output + json.dumps(one.status())
        one.stop()


def test_what_keeps_an_agent_out_stands_in_output_status_and_doctor(
    make_home: MakeHome, guarded: Guarded
) -> None:
    port = guarded.start(*guarded.users)
    url = f"mqtt://localhost:{port}/orchard"
    one = pair(make_home, url)[0]
    refused = one.run("agent")
    assert refused.returncode == 1 and "not authorised" in refused.stderr
    assert "Traceback" not in refused.stderr
    one.start("--wait")
    wait_for(lambda: "not authorised" in one.status()["peers"][0]["reason"], "the reason")
    checks = [row for row in examine(one.path) if row.name == "carriers"]
    assert [row.state for row in checks] == ["warn"] and "not authorised" in checks[0].text
    assert any("not authorised" in row["reason"] for row in one.events("carrier"))
    one.stop()
