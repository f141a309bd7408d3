"""`drupelet doctor`: everything about a home that can be looked at, each with a remedy.

A check only reads. It is `ok`, `warn` (works, but somebody should know) or `fail` (will not work,
or is not safe); what to do stands beside the last two.
"""

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from drupelet.base.errors import DrupeletError
from drupelet.base.limits import SEAL_REVOKE_SENDS
from drupelet_host.base import clock
from drupelet_host.base.output import counted
from drupelet_host.home import config, file_lock, private_files
from drupelet_host.home.broker_access import access
from drupelet_host.home.config import Config
from drupelet_host.home.toml_table import shown
from drupelet_host.home.urls import STICK_BY_REQUEST
from drupelet_host.keys import changes_to_tell
from drupelet_host.keys.key_folder import CLASS_NAMES, ID_SIZE, LIVE, class_of, lost_keys
from drupelet_host.keys.overview import (
    HALF_REVOKED,
    UNANSWERED_MANY,
    ChainEpochs,
    pairing_remedy,
    peer_rows,
    waiting_rows,
)
from drupelet_host.member import identity
from drupelet_host.member.member import CLONES
from drupelet_host.member.report_shapes import MemberReport, PeerReport, SharedReport
from drupelet_host.member.status import DOWN, foreign_text, jams
from drupelet_host.requests.client import latest_status
from drupelet_host.store import database
from drupelet_host.store.checksum import damaged_rows
from drupelet_host.view.log_view import LogView
from drupelet_transports.common.url import parse_url

OK = "ok"
WARN = "warn"
FAIL = "fail"
# A disk with less room ends in refused messages before the week is over.
FREE_BYTES_MIN = 64 << 20
# The first day on which this program can have run: 2026-01-01. An earlier clock was never set.
CLOCK_MS_MIN = 1_767_225_600_000
# A clock that stands this far before what the agent wrote last was set back.
CLOCK_BACK_MS_MAX = 60_000
# Of 2^24 epochs: so near the end a chain should be renewed.
EPOCHS_MANY = 15_000_000
# A cable in the rain loses more than this only to somebody who tries.
FORGED_MANY = 1000
# More damaged messages than this are only counted.
DAMAGED_SHOWN_MAX = 20
# An agent that does not answer has said something at least this often.
SILENT_MS_MAX = 60_000


class Check(msgspec.Struct, frozen=True):
    """One finding."""

    name: Annotated[str, Meta(description="what was looked at")]
    state: Annotated[str, Meta(description="ok, warn or fail")]
    text: Annotated[str, Meta(description="what was seen")]
    remedy: Annotated[str, Meta(description="empty when there is nothing to do")] = ""

    def fields(self) -> dict[str, str]:
        """For JSON."""
        return msgspec.structs.asdict(self)


def examine(home: Path) -> list[Check]:
    """Every check on a home, in the order in which they should be put right."""
    checks = list(_look(_modes, home))
    try:
        settings = config.load(home)
    except DrupeletError as error:
        return [*checks, Check("configuration", FAIL, str(error), "mend or restore drupelet.toml")]
    checks.append(
        Check("configuration", OK, f"{settings.name} with {counted(len(settings.peers), 'peer')}")
    )
    status = latest_status(settings)  # a hung agent is waited for once
    looks: tuple[tuple[Callable[..., Iterator[Check]], tuple[object, ...]], ...] = (
        (_lock, (settings, status)),
        (_locks, (settings,)),
        (_brokers, (settings,)),
        (_carriers, (settings, status)),
        (_keys, (settings,)),
        (_tells, (settings,)),
        (_counters, (settings, status)),
        (_identity, (settings, status)),
        (_clones, (settings,)),
        (_database, (settings,)),
        (_messages, (settings,)),
        (_clock, (settings, status)),
        (_disk, (settings,)),
        (_sticks, (settings,)),
    )
    for look, at in looks:
        checks += _look(look, *at)
    return checks


def _look(look: Callable[..., Iterator[Check]], *at: object) -> Iterator[Check]:
    """A check that cannot be made is a finding itself."""
    try:
        yield from look(*at)
    except (OSError, sqlite3.Error, DrupeletError) as error:
        name = look.__name__.strip("_")
        yield Check(name, FAIL, f"cannot be looked at: {error}", "see to what the text says")


def _modes(home: Path) -> Iterator[Check]:
    """Who can read what."""
    if not home.is_dir():
        yield Check("home", FAIL, f"{home}: no such folder", "make one with `drupelet init`")
        return
    wrong = private_files.problem(home)
    yield Check("home", FAIL if wrong else OK, wrong or f"{home}: only its owner can read it",
                f"chmod 700 {home}" if wrong else "")  # fmt: skip
    keys = home / "keys"
    paths = [keys, *sorted(keys.iterdir())] if keys.is_dir() and not keys.is_symlink() else [keys]
    bad = [text for path in paths if (text := private_files.problem(path))]
    for text in bad:
        yield Check("modes", FAIL, text, "after that make new keys: `drupelet rotate NAME`")
    if not bad:
        yield Check("modes", OK, f"{counted(len(paths) - 1, 'key file')}, for their owner only")


def _lock(settings: Config, status: MemberReport) -> Iterator[Check]:
    """Whether an agent runs, and still answers."""
    if not config.locked(settings.home):
        yield Check("agent", WARN, "no agent runs on this home", "start `drupelet agent`")
        return
    silent_ms = clock.wall_ms() - status.said_ms
    longest_ms = max(SILENT_MS_MAX, 3 * settings.epoch_ms)
    if silent_ms > longest_ms:
        yield Check(
            "agent", WARN, f"an agent holds the home, but is silent since {silent_ms // 1000} s",
            "look at what it prints; stop it and start it again",
        )  # fmt: skip
    else:
        yield Check("agent", OK, "an agent runs on this home")


def _locks(settings: Config) -> Iterator[Check]:
    """Whether a process without the home's lock holds chains."""
    if config.locked(settings.home) or not settings.keys_path.is_dir():
        return
    paths = sorted(settings.keys_path.glob("*.lock"))
    held = [path.name for path in paths if file_lock.is_taken(path)]
    if held:
        yield Check("locks", WARN, f"{', '.join(held)}: held, but no agent runs",
                    "let the other command finish, or end it")  # fmt: skip
    else:
        yield Check("locks", OK, "nobody holds a key chain")


def _brokers(settings: Config) -> Iterator[Check]:
    """Whether the files that let us into brokers are there, ours alone and of use."""
    for row in settings.brokers:
        try:
            access(settings.brokers, row.parsed)
        except DrupeletError as error:
            yield Check("brokers", FAIL, f"{row.url}: {error}", "mend the file, or [[brokers]]")
        else:
            yield Check("brokers", OK, f"{row.url}: its files can be used")


def _carriers(settings: Config, status: MemberReport) -> Iterator[Check]:
    """What keeps the running agent from its peers, as it said last."""
    if not config.locked(settings.home):
        return
    names = settings.names()
    rows: list[tuple[str, PeerReport | SharedReport]] = [
        (names.get(row.id, row.id), row) for row in status.peers
    ]
    rows += [(row.name, row) for row in (*status.topics, *status.channels)]
    down = [(name, row.reason) for name, row in rows if row.state == DOWN]
    if status.feed is not None and status.feed.reason:
        down.append(("feed", status.feed.reason))
    for name, reason in down:
        yield Check("carriers", WARN, f"{name}: {reason}", "the agent goes on by itself then")
    if rows and not down:
        yield Check("carriers", OK, "no carrier is down")


def _keys(settings: Config) -> Iterator[Check]:
    """Whether every peer has what its carrier needs, and how far apart the two ends are."""
    for row in waiting_rows(settings):
        yield Check("keys", WARN, f"{row['name']}: {row['keys']}", pairing_remedy(row))
    for row in peer_rows(settings):
        name, carrier = row["name"], row["carrier"]
        if row["keys"] == row["pairing"] != "":
            yield Check("keys", WARN, f"{name}: {row['keys']}", pairing_remedy(row))
        elif row["keys"] == "none":
            yield Check("keys", FAIL, f"{name}: no keys, and {carrier} goes sealed only",
                        f"`drupelet provision {name} --to ...`, for a host elsewhere"
                        f" `drupelet invite {name} --to ...`")  # fmt: skip
        elif row["keys"] == "damaged":
            if row["note"] == HALF_REVOKED:
                yield Check("keys", FAIL, f"{name}: {row['note']}", f"`drupelet revoke {name}`")
            else:
                yield Check("keys", FAIL, *lost_keys(name, class_of(carrier)))
        elif row["keys"] == "revoked":
            yield Check("keys", WARN, f"{name}: revoked", f"`drupelet peer remove {name}`")
        elif carrier == "-":
            yield Check("keys", WARN, f"{name}: has keys but is no peer",
                        "add it with `drupelet peer add`, or `drupelet revoke` it")  # fmt: skip
        else:
            note = f", {row['note']}" if row["note"] else ""
            yield Check("keys", OK, f"{name}: {row['keys']}{note}")
            if row["keys"] == "sealed" and len(row["classes"]) < len(CLASS_NAMES):
                yield Check("keys", WARN, *lost_keys(name, 1 - class_of(carrier)))
        for kind, chain in row["classes"].items():
            yield from _epochs(f"{name}, {kind}", chain)


def _tells(settings: Config) -> Iterator[Check]:
    """Who is still to be told of a revoked device."""
    names = settings.names()
    for row in peer_rows(settings):
        if row["keys"] == "revoked":
            continue  # it is told nothing any more
        try:
            tell = changes_to_tell.load(settings.keys_path, bytes.fromhex(row["id"]))
            for revoked, left in tell.revoked.items():
                gone = revoked[:ID_SIZE].hex()
                yield _untold(row["name"], names.get(gone, gone), left)
        except DrupeletError as error:
            yield Check("told", FAIL, f"{row['name']}: cannot be talked to: {error}",
                        "after that, revoke and rotate again what was under way")  # fmt: skip


def _untold(name: str, gone: str, left: int) -> Check:
    if left < SEAL_REVOKE_SENDS:
        return Check("told", OK, f"{name}: has answered since it was told that {gone} was revoked")
    return Check("told", WARN, f"{name}: has not answered yet that {gone} was revoked",
                 "it may trust that device until it was met")  # fmt: skip


def _epochs(where: str, chain: ChainEpochs) -> Iterator[Check]:
    """Gaps: a peer that hears nothing, or a chain near its end."""
    if chain["out_epoch"] > EPOCHS_MANY:
        yield Check("epochs", WARN, f"{where}: {chain['out_epoch']} epochs are used up",
                    "`drupelet rotate` begins a new chain")  # fmt: skip
    elif chain["unanswered"] > UNANSWERED_MANY:
        yield Check(
            "epochs", WARN, f"{where}: {chain['unanswered']} epochs without an answer",
            "is the peer there? after a restore on either side it settles by itself; else make"
            " new keys with `drupelet provision --again`",
        )  # fmt: skip
    elif chain["out_epoch"] or chain["in_epoch"]:
        yield Check("epochs", OK, f"{where}: {chain['out_epoch']} out, {chain['in_epoch']} in")


def _counters(settings: Config, status: MemberReport) -> Iterator[Check]:
    """What the running agent counted: frames that were not the peer's."""
    for kind, name, text in jams(status.said_ms, status.peers, settings.names()):
        remedy = (
            "keep strangers out of the broker: users with a password who reach their own topics"
        )
        if kind == CLASS_NAMES[LIVE]:
            remedy += f"; `drupelet rotate {name}` moves the link to topics that they do not know"
        yield Check("jammed", WARN, text, remedy)
    for peer in status.peers:
        name = settings.names().get(peer.id, peer.id)
        for kind, seal in peer.seals.items():
            forged = seal.forged
            text = f"{name}, {kind}: {forged} forged, {seal.replayed} replayed"
            if seal.muted:
                remedy = "somebody floods this link; a new boot of the peer ends it"
                yield Check("frames", FAIL, f"{text}; it is not listened to any more", remedy)
            elif seal.unknown:
                yield Check(
                    "frames", WARN, f"{text}; {seal.unknown} of kinds that are not known here",
                    "the peer runs a later version: update this one",
                )  # fmt: skip
            elif forged > FORGED_MANY:
                yield Check("frames", WARN, text, "noise on a cable, or somebody tries keys")
            else:
                yield Check("frames", OK, text)


def _identity(settings: Config, status: MemberReport) -> Iterator[Check]:
    """Whether the store is that of this id and group, and whether peers are in the same group."""
    group = settings.group
    if settings.store_path.exists():
        connection = database.connect(settings.store_path, read_only=True)
        try:
            wrong = identity.problem(connection, settings)
        finally:
            connection.close()
        if wrong:
            yield Check("identity", FAIL, wrong, "the agent does not start before that")
            return
    foreign = [(row.id, row.foreign) for row in status.peers if row.foreign]
    for id, count in foreign:
        name = settings.names().get(id, id)
        yield Check("group", WARN, foreign_text(name, count, group),
                    f"compare with what `drupelet id` says at {name}")  # fmt: skip
    if not foreign:
        yield Check("group", OK, f"all that came belongs to {shown(group)}")


def _clones(settings: Config) -> Iterator[Check]:
    """Devices of which there was more than one."""
    if not settings.store_path.exists():
        return
    names = settings.names()
    connection = database.connect(settings.store_path, read_only=True)
    try:
        rows = connection.execute(
            "SELECT key, value FROM meta WHERE key LIKE ?", (CLONES + "%",)
        ).fetchall()
    finally:
        connection.close()
    for key, count in rows:
        id = key.removeprefix(CLONES)
        name = names.get(id, id)
        yield Check(
            "clones", FAIL, f"{name}: {counted(count, 'frame')} of a second device with its keys",
            f"if it was set back, nothing is lost; else `drupelet revoke {name}`, then new keys",
        )  # fmt: skip
    if not rows:
        yield Check("clones", OK, "every key is used by one device")


def _database(settings: Config) -> Iterator[Check]:
    """Whether the store is whole."""
    path = settings.store_path
    if not path.exists():
        yield Check("database", WARN, "no store yet", "run `drupelet agent` once")
        return
    connection = database.connect(path, read_only=True)
    try:
        answer = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        answer = (database.explain(path, error),)
    finally:
        connection.close()
    if answer == ("ok",):
        yield Check("database", OK, f"{path.name} is whole")
    else:
        text = str(answer[0]) if answer else "no answer"
        remedy = "stop the agent and `drupelet restore` a backup into a new home"
        yield Check("database", FAIL, f"{path}: {text}", remedy)


def _messages(settings: Config) -> Iterator[Check]:
    """Whether every message is as it was written."""
    path = settings.store_path
    if not path.exists():
        return
    with contextlib.closing(database.connect(path, read_only=True)) as connection:
        if not database.has_checksums(connection):
            yield Check("messages", WARN, f"{path.name} is of an earlier release: no checksums",
                        "start `drupelet agent` once: it brings the store up to date")  # fmt: skip
            return
        count = 0
        for handle, id in damaged_rows(connection):
            count += 1
            if count <= DAMAGED_SHOWN_MAX:
                yield Check(
                    "messages", FAIL,
                    f"message {handle} of {path.name} ({id.hex()[:8]}) is damaged: it is not sent",
                    "look at the disk; other members have their copies of what reached them, else"
                    " `drupelet restore` a backup",
                )  # fmt: skip
    if count > DAMAGED_SHOWN_MAX:
        yield Check("messages", FAIL, f"{count} messages of {path.name} are damaged",
                    "replace the disk and `drupelet restore` a backup")  # fmt: skip
    if not count:
        yield Check("messages", OK, "every message is as it was written")


def _clock(settings: Config, status: MemberReport) -> Iterator[Check]:
    """A wrong clock only spoils timestamps; it should be known all the same."""
    now_ms = clock.wall_ms()
    date = time.strftime("%Y-%m-%d %H:%M", time.gmtime(now_ms / 1000))
    said_ms = status.said_ms
    if now_ms < CLOCK_MS_MIN:
        yield Check("clock", WARN, f"this machine thinks it is {date} UTC", "set its clock")
    elif said_ms - now_ms > CLOCK_BACK_MS_MAX:
        back_s = (said_ms - now_ms) // 1000
        yield Check("clock", WARN, f"the clock stands {back_s} s before the agent's last word",
                    "set it; nothing is lost, but timestamps are wrong")  # fmt: skip
    elif (ahead_ms := _newest_ms(settings) - now_ms) > CLOCK_BACK_MS_MAX:
        yield Check(
            "clock", WARN, f"{date} UTC is {ahead_ms // 1000} s before the newest message's time",
            "one of the two clocks is wrong: set this machine's, or its author's",
        )  # fmt: skip
    else:
        yield Check("clock", OK, f"{date} UTC")


def _newest_ms(settings: Config) -> int:
    """The time that the newest message of the log carries; 0 where there is none."""
    with contextlib.closing(LogView(settings.home)) as view:
        timestamp = view.newest_timestamp()
    return int.from_bytes(timestamp)


def _disk(settings: Config) -> Iterator[Check]:
    """Room for what will come."""
    free = shutil.disk_usage(settings.home).free
    state, remedy = (OK, "") if free >= FREE_BYTES_MIN else (WARN, "make room on this disk")
    yield Check("disk", state, f"{free >> 20} MB free", remedy)


def _sticks(settings: Config) -> Iterator[Check]:
    """Stick folders that are there must be writable."""
    for peer in settings.peers:
        if peer.carrier != "stick" or peer.url == STICK_BY_REQUEST:
            continue
        path = Path(parse_url(peer.url).path)
        if not path.is_dir():
            yield Check("stick", OK, f"{peer.name}: nothing is mounted at {path}")
        elif not os.access(path, os.W_OK | os.X_OK):
            yield Check("stick", WARN, f"{peer.name}: {path} cannot be written",
                        "mount it writable for this user")  # fmt: skip
        else:
            yield Check("stick", OK, f"{peer.name}: {path} can be written")


def worst(checks: list[Check]) -> str:
    """The state of the whole."""
    states = {check.state for check in checks}
    return FAIL if FAIL in states else WARN if WARN in states else OK
