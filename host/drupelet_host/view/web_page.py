"""The page of `drupelet web`: HTML without a script, in which everything is escaped."""

import html
import json
from typing import Any

from drupelet_host.base import clock
from drupelet_host.base.output import DAMAGED_TEXT, MESSAGE_CHARACTERS_MAX, printable
from drupelet_host.view.log_view import Entry

# A browser loads the page again after so long.
REFRESH_S = 5
# Shown of the log.
ENTRIES_MAX = 50

STYLE = """\
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --good: #1a7f37; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --good: #57d27a; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { font: 16px/1.45 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 72rem; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.1rem; margin: 1.5rem 0 .5rem; }
p { margin: .25rem 0; }
.soft { opacity: .7; }
.good { color: var(--good); }
.bad { color: var(--bad); }
.members { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fill, minmax(18rem, 1fr)); }
.member { border: 1px solid var(--line); border-radius: .5rem; padding: .75rem; min-width: 0; }
.member h3 { font-size: 1rem; margin: 0 0 .25rem; display: flex; justify-content: space-between;
  gap: .5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .75rem; margin: 0; }
dt { opacity: .7; }
dd, td, li, h3 { margin: 0; min-width: 0; overflow-wrap: anywhere; }
ol { list-style: none; padding: 0; margin: 0; }
li { border-top: 1px solid var(--line); padding: .4rem 0; }
li b { margin-right: .5rem; }
li span { white-space: pre-wrap; }
"""  # noqa: E501 - the style sheet's own lines


def page(report: dict[str, Any], entries: list[Entry]) -> str:
    """The whole page. report: as LogView.status has it; entries: the newest readings."""
    state = _mark("running", True) if report["running"] else _mark("not running", False)
    batteries = _batteries(entries)
    members = "".join(_member(peer, batteries, report["running"]) for peer in report["peers"])
    none = "<p>No peers yet: <code>drupelet peer add</code>.</p>"
    rows = "".join(_entry(entry) for entry in reversed(entries))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="refresh" content="{REFRESH_S}">'
        f"<title>{_text(report['name'])} · Drupelet</title>"
        '<link rel="stylesheet" href="style.css"></head><body>'
        f"<h1>{_text(report['name'])}</h1>"
        f'<p class="soft">{_text(report["id"])} in group {_text(report["group"])}, agent {state},'
        f" {_text(_now())} UTC</p>"
        f"<p>{report['delivered']} messages in the log, {report['outbox']} in the outbox,"
        f" {report['pending']} wait for a parent</p>"
        f'<h2>Members</h2><div class="members">{members or none}</div>'
        f"{_shared(report)}{_sticks(report)}"
        f"<h2>Log</h2><ol>{rows or '<li>Nothing yet.</li>'}</ol></body></html>"
    )


def _text(value: object) -> str:
    """Text as HTML; control characters as on a terminal."""
    return html.escape(printable(str(value)))


def _mark(text: str, is_good: bool) -> str:
    return f'<span class="{"good" if is_good else "bad"}">{_text(text)}</span>'


def _member(peer: dict[str, Any], batteries: dict[str, str], is_running: bool) -> str:
    is_up = peer["state"] in ("up", "by stick")
    state = "connected" if peer["state"] == "up" else peer["state"]
    facts = [
        ("carrier", _text(peer["url"])),
        ("heard", _text(clock.age_text(peer["heard_ms"]))),
        ("waits for it", _owed(peer, is_running)),
    ]
    if peer["reason"]:
        facts.append(("trouble", _text(peer["reason"])))
    if peer["name"] in batteries:
        facts.append(("battery", _text(batteries[peer["name"]])))
    rows = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts)
    head = f"<h3><span>{_text(peer['name'])}</span>{_mark(state, is_up)}</h3>"
    return f'<section class="member">{head}<dl>{rows}</dl></section>'


def _owed(peer: dict[str, Any], is_running: bool) -> str:
    count = peer["outstanding"]
    if count is None:
        return "not known"
    if not count:
        return "nothing"
    text = f"{count}{' or more' if peer['more_outstanding'] else ''} messages"
    if is_running and peer["owed_since_ms"]:
        text += f", since {clock.age_text(peer['owed_since_ms']).removesuffix(' ago')}"
    return _text(text)


def _shared(report: dict[str, Any]) -> str:
    rows = [*report["topics"], *report["channels"]]
    items = "".join(
        f"<li><b>{_text(row['name'])}</b>{_mark(row['state'], row['state'] == 'up')}"
        f" {len(row['told'])} of {len(row['listeners'])} have our key"
        f" <span>{_text(row['reason'] or row['url'])}</span></li>"
        for row in rows
    )
    return f"<h2>Topics and channels</h2><ol>{items}</ol>" if rows else ""


def _sticks(report: dict[str, Any]) -> str:
    peers = [peer for peer in report["peers"] if peer["url"].startswith("stick:")]
    items = "".join(
        f"<li><b>{_text(peer['name'])}</b>{_text(_read(peer['heard_ms']))};"
        f" {_owed(peer, False)} for the next stick</li>"
        for peer in peers
    )
    return f"<h2>Sticks</h2><ol>{items}</ol>" if peers else ""


def _now() -> str:
    return clock.timestamp_text(clock.timestamp8(clock.wall_ms()))[:19].replace("T", " ")


def _read(wall_ms: int) -> str:
    return f"last read {clock.age_text(wall_ms)}" if wall_ms else "not read yet"


def _entry(entry: Entry) -> str:
    fields = entry.fields()
    text = _text(fields["text"][:MESSAGE_CHARACTERS_MAX])
    left_out = len(fields["text"]) - MESSAGE_CHARACTERS_MAX
    text += f"… ({left_out:,} more characters)" if left_out > 0 else ""
    text = _mark(DAMAGED_TEXT, False) if entry.is_damaged else text
    author = entry.author if entry.author == entry.via else f"{entry.author} via {entry.via}"
    written = fields["time"][:19].replace("T", " ")
    return (
        f'<li><b>{_text(author.strip())}</b><span class="soft">{_text(written)}</span>'
        f"<br><span>{text}</span></li>"
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
