"""The page of `drupelet web`, without a script: what stands in the template page/web.html."""

import json
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from drupelet_host.base import clock
from drupelet_host.base.output import DAMAGED_TEXT, MESSAGE_CHARACTERS_MAX, printable
from drupelet_host.view.log_view import Entry
from drupelet_host.view.status_shapes import PeerStatus, Status

# A browser loads the page again after so long.
REFRESH_S = 5
# Shown of the log.
ENTRIES_MAX = 50


@cache
def _environment() -> Environment:
    """The template in page/: whatever a text is, it is escaped, as on a terminal and as HTML."""
    return Environment(
        loader=PackageLoader(__package__, "page"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_shown,
    )  # fmt: skip


def _shown(value: object) -> object:
    """A value of the template; what the template itself wrote stays as it is."""
    return value if isinstance(value, Markup) else printable(str(value))


@cache
def style() -> str:
    """The page's style sheet."""
    return (resources.files(__package__) / "page" / "web.css").read_text("utf-8")


def page(report: Status, entries: list[Entry]) -> str:
    """The whole page. entries: the newest readings."""
    batteries = _batteries(entries)
    text: str = (
        _environment()
        .get_template("web.html")
        .render(
            refresh_s=REFRESH_S,
            report=report,
            now=_now(),
            members=[_member(peer, batteries, report.running) for peer in report.peers],
            shared=[*report.topics, *report.channels],
            sticks=[
                (peer.name, _read(peer.heard_ms), _owed(peer, False))
                for peer in report.peers
                if peer.url.startswith("stick:")
            ],
            entries=[_entry(entry) for entry in reversed(entries)],
        )
    )
    return text


def _member(peer: PeerStatus, batteries: dict[str, str], is_running: bool) -> dict[str, Any]:
    facts = [
        ("carrier", peer.url),
        ("heard", clock.age_text(peer.heard_ms)),
        ("waits for it", _owed(peer, is_running)),
    ]
    if peer.reason:
        facts.append(("trouble", peer.reason))
    if peer.name in batteries:
        facts.append(("battery", batteries[peer.name]))
    return {
        "name": peer.name,
        "state": "connected" if peer.state == "up" else peer.state,
        "is_up": peer.state in ("up", "by stick"),
        "facts": facts,
    }


def _owed(peer: PeerStatus, is_running: bool) -> str:
    count = peer.outstanding
    if count is None:
        return "not known"
    if not count:
        return "nothing"
    text = f"{count}{' or more' if peer.more_outstanding else ''} messages"
    if is_running and peer.owed_since_ms:
        text += f", since {clock.age_text(peer.owed_since_ms).removesuffix(' ago')}"
    return text


def _now() -> str:
    return clock.timestamp_text(clock.timestamp8(clock.wall_ms()))[:19].replace("T", " ")


def _read(wall_ms: int) -> str:
    return f"last read {clock.age_text(wall_ms)}" if wall_ms else "not read yet"


def _entry(entry: Entry) -> dict[str, Any]:
    fields = entry.fields()
    text = fields["text"][:MESSAGE_CHARACTERS_MAX]
    left_out = len(fields["text"]) - MESSAGE_CHARACTERS_MAX
    text += f"… ({left_out:,} more characters)" if left_out > 0 else ""
    author = entry.author if entry.author == entry.via else f"{entry.author} via {entry.via}"
    return {
        "author": author.strip(),
        "written": fields["time"][:19].replace("T", " "),
        "text": DAMAGED_TEXT if entry.is_damaged else text,
        "is_damaged": entry.is_damaged,
    }


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
