"""`drupelet web` in a real browser, beside a real agent: legible, shut to others, all escaped."""

import http.client
import re
import time
from urllib.parse import urlsplit

import msgspec
import pytest

from browser.chromium import Page, browser
from browser.home_page import served
from drupelet_host.view.log_view import Entry
from drupelet_host.view.status_shapes import Status
from drupelet_host.view.web_page import page
from host.conftest import WAIT_S, make_home, wait_for  # noqa: F401 - a fixture

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
WIDTHS = (1440, 390)


@pytest.fixture
def web(make_home):  # noqa: F811 - the fixture
    """A home with an agent and a page: its address and the home."""
    messages = ("soil 21 %", EVIL, '{"battery_mv": 3700}', "x" * 5000, "\x1b[2Jcleared")
    with served(make_home, messages) as address_and_home:
        yield address_and_home


def ask(url, path=None, host=None, method="GET"):
    """Status, headers and text of an answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=WAIT_S)
    try:
        connection.request(method, path or parts.path, headers={"Host": host or parts.netloc})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def test_the_page_is_for_its_owner_alone(web):
    url, _ = web
    parts = urlsplit(url)
    assert parts.hostname == "127.0.0.1" and len(parts.path) > 20
    status, headers, text = ask(url)
    assert status == 200 and "barn" in text and text.startswith("<!doctype html>")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'self';")
    assert "unsafe" not in headers["Content-Security-Policy"]
    for name in ("X-Content-Type-Options", "Referrer-Policy", "Cache-Control"):
        assert headers[name] in ("nosniff", "no-referrer", "no-store")
    # A name that was made to point here (DNS rebinding), and other users of this machine.
    for host in ("evil.example", f"evil.example:{parts.port}", "127.0.0.1", "127.0.0.1:1"):
        status, _, text = ask(url, host=host)
        assert (status, "barn" in text) == (421, False)
    for path in ("/", "/x/", parts.path[:-2] + "/", parts.path + "../", parts.path + "log"):
        status, _, text = ask(url, path=path)
        assert (status, "barn" in text) == (404, False)
    assert ask(url, method="HEAD")[::2] == (200, "")
    assert ask(url, method="POST")[0] == 501
    assert ask(url, host=f"localhost:{parts.port}")[0] == 200


def test_what_others_wrote_is_text(web):
    url, _ = web
    text = ask(url)[2]
    assert "<img" not in text and "<script" not in text and "\x1b" not in text
    assert "&lt;img src=x onerror=\"document.title='owned'\"&gt;" in text
    assert re.findall(r"\son\w+=", re.sub(r">[^<]*<", "><", text)) == []


def test_a_battery_is_shown_beside_the_member_whose_reading_tells_it(web):
    _, home = web
    readings = [
        Entry(1, 1, b"i" * 32, "barn", "barn", bytes(8), payload, [])
        for payload in (b'{"battery_mv": 3600}', b'{"battery_mv": 3700}', b'{"battery": "<b>"}',
                        b"{", b'{"board": []}')
    ]  # fmt: skip
    text = page(msgspec.convert(home.status(), Status), readings)
    assert text.count("<dt>battery</dt><dd>3700 mv</dd>") == text.count("<dt>battery") == 1


def test_many_clients_that_hang_end_nothing(web):
    url, _ = web
    parts = urlsplit(url)
    hanging = [http.client.HTTPConnection(parts.hostname, parts.port) for _ in range(40)]
    for one in hanging:
        one.connect()
    for one in hanging:
        one.close()
    until = time.monotonic() + WAIT_S
    while True:
        try:
            assert ask(url)[0] == 200
            break
        except OSError:
            assert time.monotonic() < until


def test_it_is_legible_and_asks_nobody_else(web):
    url, home = web
    with browser() as address:
        tab = Page(address)
        try:
            for width in WIDTHS:
                for dark in (False, True):
                    tab.open(url, width, 900, mobile=width < 500, dark=dark)
                    # Nothing sticks out to the side, however long a word is.
                    wide = tab.evaluate("document.documentElement.scrollWidth")
                    assert wide <= width
                    assert tab.evaluate("document.title") == "house · Drupelet"
                    assert tab.evaluate("document.images.length + document.scripts.length") == 0
                    size = tab.evaluate("parseFloat(getComputedStyle(document.body).fontSize)")
                    assert size >= 16
            assert tab.thrown == [] and tab.said == []
            origin = url[: url.index("/", 8)]
            assert all(asked.startswith(origin) for asked in tab.requests)
            text = wait_for(lambda: tab.evaluate("document.body?.innerText"), "the page")
            for part in ("barn", "down", "well", "5 messages in the log", "soil 21 %", "Sticks",
                         "5 messages"):  # fmt: skip
                assert part in text
            home.put("later")
            tab.until("document.body?.innerText.includes('later')")
        finally:
            tab.close()
