"""The page of `drupelet web`, without a script.

It is made as a tree of elements: the standard library's serializer escapes every text, so the base
needs no template engine.
"""

import json
from functools import cache
from importlib import resources
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from drupelet_host.base import clock
from drupelet_host.base.output import DAMAGED_TEXT, MESSAGE_CHARACTERS_MAX, counted, printable
from drupelet_host.member.report_shapes import ChannelReport, SharedReport
from drupelet_host.view.log_view import Entry
from drupelet_host.view.status_shapes import PeerStatus, Status

# A browser loads the page again after so long.
REFRESH_S = 5
# Shown of the log.
ENTRIES_MAX = 50


@cache
def style() -> str:
    """The page's style sheet."""
    return (resources.files(__package__) / "page" / "web.css").read_text("utf-8")


def page(report: Status, entries: list[Entry]) -> str:
    """The whole page. entries: the newest readings."""
    html = _element("html", _head(report), _body(report, entries), lang="en")
    return "<!doctype html>\n" + ElementTree.tostring(html, encoding="unicode", method="html")


def _element(tag: str, *content: Element | str, **attributes: str) -> Element:
    """An element with its content; a text in it is shown as on a terminal."""
    element = Element(tag, {name.rstrip("_"): value for name, value in attributes.items()})
    for part in content:
        if isinstance(part, Element):
            element.append(part)
        elif len(element):
            element[-1].tail = (element[-1].tail or "") + printable(part)
        else:
            element.text = (element.text or "") + printable(part)
    return element


def _mark(text: str, is_good: bool) -> Element:
    return _element("span", text, class_="good" if is_good else "bad")


def _head(report: Status) -> Element:
    return _element(
        "head",
        _element("meta", charset="utf-8"),
        _element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        Element("meta", {"http-equiv": "refresh", "content": str(REFRESH_S)}),
        _element("title", f"{report.name} · Drupelet"),
        _element("link", rel="stylesheet", href="style.css"),
    )


def _body(report: Status, entries: list[Entry]) -> Element:
    sticks = [peer for peer in report.peers if peer.url.startswith("stick:")]
    shared = [*report.topics, *report.channels]
    batteries = _batteries(entries)
    members = [_member(peer, batteries, report.running) for peer in report.peers]
    return _element(
        "body",
        _element("h1", report.name),
        _element(
            "p",
            f"{report.id} in group {report.group}, agent ",
            _mark("running" if report.running else "not running", report.running),
            f", {_now()} UTC",
            class_="soft",
        ),
        _element(
            "p",
            f"{counted(report.delivered, 'message')} in the log, {report.outbox} in the outbox, "
            f"{report.pending} wait for a parent",
        ),
        _element("h2", "Members"),
        _element("div", *(members or [_no_peers()]), class_="members"),
        *_section("Topics and channels", [_shared(row) for row in shared]),
        *_section("Sticks", [_stick(peer) for peer in sticks]),
        *_section("Log", [_entry(entry) for entry in reversed(entries)] or [_row("Nothing yet.")]),
    )


def _row(*content: Element | str) -> Element:
    return _element("li", *content)


def _section(title: str, rows: list[Element]) -> list[Element]:
    """A heading and its list; nothing if the list is empty."""
    return [_element("h2", title), _element("ol", *rows)] if rows else []


def _no_peers() -> Element:
    return _element("p", "No peers yet: ", _element("code", "drupelet peer add"), ".")


def _member(peer: PeerStatus, batteries: dict[str, str], is_running: bool) -> Element:
    facts = [
        ("carrier", peer.url),
        ("heard", clock.age_text(peer.heard_ms)),
        ("waits for it", _owed(peer, is_running)),
    ]
    if peer.reason:
        facts.append(("trouble", peer.reason))
    if peer.name in batteries:
        facts.append(("battery", batteries[peer.name]))
    state = "connected" if peer.state == "up" else peer.state
    return _element(
        "section",
        _element(
            "h3", _element("span", peer.name), _mark(state, peer.state in ("up", "by stick"))
        ),
        _element(
            "dl",
            *(
                _element(tag, text)
                for fact in facts
                for tag, text in zip(("dt", "dd"), fact, strict=True)
            ),
        ),
        class_="member",
    )


def _shared(row: SharedReport | ChannelReport) -> Element:
    return _row(
        _element("b", row.name),
        _mark(row.state, row.state == "up"),
        f" {len(row.told)} of {len(row.listeners)} have our key ",
        _element("span", row.reason or row.url),
    )


def _stick(peer: PeerStatus) -> Element:
    return _row(
        _element("b", peer.name),
        f"{_read(peer.heard_ms)}; {_owed(peer, False)} for the next stick",
    )


def _owed(peer: PeerStatus, is_running: bool) -> str:
    count = peer.outstanding
    if count is None:
        return "not known"
    if not count:
        return "nothing"
    text = f"{count:,} or more messages" if peer.more_outstanding else counted(count, "message")
    if is_running and peer.owed_since_ms:
        text += f", since {clock.age_text(peer.owed_since_ms).removesuffix(' ago')}"
    return text


def _now() -> str:
    return clock.timestamp_text(clock.timestamp8(clock.wall_ms()))[:19].replace("T", " ")


def _read(wall_ms: int) -> str:
    return f"last read {clock.age_text(wall_ms)}" if wall_ms else "not read yet"


def _entry(entry: Entry) -> Element:
    fields = entry.fields()
    text = fields["text"][:MESSAGE_CHARACTERS_MAX]
    left_out = len(fields["text"]) - MESSAGE_CHARACTERS_MAX
    text += f"… ({left_out:,} more characters)" if left_out > 0 else ""
    author = entry.author if entry.author == entry.via else f"{entry.author} via {entry.via}"
    return _row(
        _element("b", author.strip()),
        _element("span", fields["time"][:19].replace("T", " "), class_="soft"),
        _element("br"),
        _element("span", _mark(DAMAGED_TEXT, False) if entry.is_damaged else text),
    )


def _batteries(entries: list[Entry]) -> dict[str, str]:
    """What readings say of their author's battery: a number under a name that begins so."""
    batteries = {}
    for entry in entries:
        if not entry.payload.startswith(b"{"):
            continue
        try:
            value = json.loads(entry.payload)
        except (ValueError, RecursionError):
            continue
        for name, number in value.items():
            if name.startswith("battery") and type(number) in (int, float):
                unit = name.removeprefix("battery").strip("_")
                batteries[entry.author] = f"{number} {unit}".strip()[:40]
    return batteries
