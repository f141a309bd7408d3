"""The carrier URLs of `drupelet.toml`: which of them each key may hold. Raises ConfigError."""

from drupelet.base.errors import DrupeletError
from drupelet_host.home.toml_table import Table, shown
from drupelet_transports.common.url import BOARD_LINES, Url, parse_url

# The carriers that several can hear.
_SHARED_CARRIERS = ("mqtt", "udp")
# The carriers that reach one peer; a stick without a path is visited by `drupelet stick` only.
_PEER_CARRIERS = ("serial", "mqtt", "stick")
STICK_BY_REQUEST = "stick:"


def broker_url(table: Table, key: str, text: str) -> None:
    """Check a URL that can only be one of a broker."""
    if _parsed(table, key, text).scheme != "mqtt":
        raise table.wrong(key, f"others reach a broker only, not {shown(text)}")


def shared_url(part: Table) -> str:
    """The URL of a topic."""
    return _heard_by_all(part, part.text("url"))


def _heard_by_all(part: Table, text: str) -> str:
    url = _parsed(part, "url", text)
    if url.scheme not in _SHARED_CARRIERS:
        raise part.wrong("url", f"only udp: and mqtt: reach several, not {shown(text)}")
    if url.scheme == "udp":
        from drupelet_transports.common.multicast import membership

        try:
            membership(url.host, url.options.get("interface", ""))
        except DrupeletError as error:
            raise part.wrong("url", str(error)) from None
    return text


def channel_url(part: Table) -> str:
    """The URL of a channel: as of a topic, or a plain cable to a program that speaks SDS."""
    text = part.text("url")
    url = _parsed(part, "url", text)
    if url.scheme != "serial":
        return _heard_by_all(part, text)
    if not url.plain:
        raise part.wrong(
            "url", f"{shown(text)}: a channel's cable has no keys; say so with ?plain=1"
        )
    return text


def peer_url(part: Table) -> str:
    """The URL of a peer."""
    text = part.text("url")
    if text == STICK_BY_REQUEST:
        return text
    url = _parsed(part, "url", text)
    if url.scheme in BOARD_LINES:
        raise part.wrong(
            "url", f"{shown(text)} is a board's own end of a line: write serial:///dev/... here"
        )
    if url.scheme not in _PEER_CARRIERS:
        raise part.wrong("url", f"serial, mqtt and stick reach a peer, not {shown(text)}")
    return text


def _parsed(table: Table, key: str, text: str) -> Url:
    try:
        url = parse_url(text)
        if url.scheme == "serial":
            url.option_number("baud", 1)
    except DrupeletError as error:
        raise table.wrong(key, str(error)) from None
    return url
