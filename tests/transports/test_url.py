"""Carrier URLs, which cables may be plain, and which brokers are on this machine."""

import pytest

from drupelet_transports.common.loopback import require_loopback
from drupelet_transports.common.transport import TransportError
from drupelet_transports.common.url import parse_url


def test_parts() -> None:
    url = parse_url("serial:///dev/ttyACM0?baud=115200")
    assert (url.scheme, url.path, url.option_number("baud", 9600)) == (
        "serial",
        "/dev/ttyACM0",
        115200,
    )
    assert parse_url("serial:///dev/ttyACM0").option_number("baud", 9600) == 9600
    url = parse_url("mqtt://localhost/site/7/")
    assert (url.host, url.port, url.path) == ("localhost", 1883, "site/7")
    url = parse_url("mqtt://[::1]:2883/p")
    assert (url.host, url.port, url.path) == ("::1", 2883, "p")
    assert parse_url("stick:///media/My%20Stick%C3%A9").path == "/media/My Stické"
    assert parse_url("stick:///media/My Stick").path == "/media/My Stick"
    for name in ("broker.local.", "a" * 63 + ".local", "10.0.0.7", "bröker.local", "broker"):
        assert parse_url(f"mqtt://{name}/p").host == name
    url = parse_url("udp://239.0.0.1:7447")
    assert (url.host, url.port) == ("239.0.0.1", 7447)
    assert parse_url("loop:").scheme == "loop"


def test_lines_of_a_board() -> None:
    url = parse_url("uart:1?tx=4&rx=5&baud=9600&frame=251&plain=1")
    assert (url.scheme, url.path, url.frame_size_max, url.plain) == ("uart", "1", 251, True)
    assert url.option_number("baud", 115200) == 9600
    assert parse_url("uart:0").frame_size_max == parse_url("console:").frame_size_max == 1024
    assert parse_url("console:?plain=1").plain
    assert parse_url("serial:///dev/ttyUSB0?frame=251").frame_size_max == 251


def test_only_a_cable_may_be_plain() -> None:
    assert parse_url("serial:///dev/ttyACM0?baud=115200&plain=1").plain
    for text in ("serial:///dev/ttyACM0?baud=9600", "mqtt://localhost/p", "stick:///m", "loop:"):
        assert not parse_url(text).plain
    for text in ("mqtt://localhost/p", "stick:///m", "udp://239.0.0.1:7447", "loop:"):
        with pytest.raises(TransportError, match="no option plain"):
            parse_url(text + "?plain=1")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "start it with"),
        ("localhost", "start it with"),
        ("serial:///dev/ttyUSB0?frame=63", "frame must be from 64 to 1024"),
        ("serial:///dev/ttyUSB0?frame=1025", "frame must be from 64 to 1024"),
        ("serial:///dev/ttyUSB0?frame=all", "frame must be a number"),
        ("mqtt://localhost/p?frame=251", "no option frame"),
        ("uart:", "as in uart:1"),
        ("uart:one", "as in uart:1"),
        ("uart:1?tx=4", "both pins"),
        ("uart:1?tx=4&rx=128", "as in uart:1"),
        ("uart:1?tx=4&rx=5&baud=fast", "baud must be"),
        ("console:/dev/ttyACM0", "one console"),
        ("console:?baud=9600", "no option baud"),
        ("http://localhost", "start it with"),
        ("mqtt://localhost:1883", "topic prefix"),
        ("mqtt://localhost:1883/" + "a" * 33, "topic prefix"),
        ("mqtt://localhost/a+b", "letters, digits"),
        ("mqtt://localhost/a%23", "letters, digits"),
        ("mqtt:///prefix", "name the broker"),
        ("mqtt://broker..local/p", "between its dots"),
        ("mqtt://.local/p", "between its dots"),
        ("mqtt://./p", "between its dots"),
        ("mqtt://broker../p", "between its dots"),
        ("mqtt://" + "a" * 64 + ".local/p", "between its dots"),
        ("mqtt://brok er/p", "a space"),
        ("mqtt://broker\0/p", "a control character"),
        ("mqtt://localhost:0/p", "from 1 to 65535"),
        ("mqtt://localhost:65536/p", "from 1 to 65535"),
        ("mqtt://localhost:١٨٨٣/p", "from 1 to 65535"),
        ("mqtt://localhost:x/p", "from 1 to 65535"),
        ("mqtt://[::1/p", "close the address"),
        ("mqtt://[::1]1883/p", "from 1 to 65535"),
        ("mqtt://me:secret@localhost/p", "leave out user"),
        ("mqtt://localhost/p?qos=1", "no option qos"),
        ("stick://media/usb", "three slashes"),
        ("stick:", "three slashes"),
        ("stick:///", "three slashes"),
        ("stick:///%zz", "%25"),
        ("stick:///%ff", "not UTF-8"),
        ("serial:///dev/ttyS0?baud", "?name=value"),
        ("serial:///dev/ttyS0?speed=9600", "no option speed"),
        ("serial:///dev/ttyS0?plain=0", "leave plain out"),
        ("serial:///dev/ttyS0?plain=yes", "leave plain out"),
        ("mqtt://localhost/p?plain=1", "no option plain"),
        ("stick:///media/usb?plain=1", "no option plain"),
        ("udp://239.0.0.1:7447?plain=1", "no option plain"),
        ("udp://239.0.0.1", "address and port"),
        ("stick:///" + "a" * 300, "shorten"),
    ],
)
def test_wrong_urls_are_told_with_their_remedy(text: str, remedy: str) -> None:
    with pytest.raises(TransportError) as caught:
        parse_url(text)
    message = str(caught.value)
    assert remedy in message
    assert "secret" not in message
    assert "\n" not in message


@pytest.mark.parametrize("baud", ["0", "-1", "fast", "1e5", "9999999999", ""])
def test_numbers_in_options(baud: str) -> None:
    url = parse_url(f"serial:///dev/ttyS0?baud={baud}")
    with pytest.raises(TransportError, match="baud must be a number above 0"):
        url.option_number("baud", 9600)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.255.0.9", "::1"])
def test_loopback_is_let_through_without_a_resolver(host: str) -> None:
    assert require_loopback(host) == ("127.0.0.1" if host == "localhost" else host)


@pytest.mark.parametrize(
    "host",
    [
        "192.168.1.4",
        "broker.example",
        "localhost.example",
        "127.0.0.1.example",
        "127.1",
        "0.0.0.0",
        "::",
        "127.0.0.256",
        "127.0.0.-1",
        "2130706433",
        "0x7f.0.0.1",
        "::ffff:10.0.0.1",
        "LOCALHOST",
    ],
)
def test_any_other_broker_is_refused(host: str) -> None:
    with pytest.raises(TransportError, match="not on this machine"):
        require_loopback(host)
