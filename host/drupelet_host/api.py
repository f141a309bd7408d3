"""Drupelet in a program of your own: publish messages, read them, run the agent in the process.

    from drupelet_host import open_home

    with open_home("gate") as home:
        home.publish(b"21.5")
        for message in home.messages():
            print(message.author, message.text)
            message.done()

An agent carries the messages: `drupelet agent` beside the program, or `home.agent()` in it. Every
mistake raises a DrupeletError with one line that says what to do.
"""

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from drupelet.base.errors import CapacityError, DrupeletError, StorageError
from drupelet_host.base.output import Output
from drupelet_host.home import config, private_files
from drupelet_host.home.lifetime import LIFETIME_S_MAX, lifetime
from drupelet_host.member import family, identity
from drupelet_host.readers.log_reader import LogReader
from drupelet_host.requests.client import NoAnswerError, ask
from drupelet_host.requests.connection import poke
from drupelet_host.requests.shapes import SendEphemeral
from drupelet_host.store import database, outbox
from drupelet_transports.common.url import parse_url

if TYPE_CHECKING:
    from drupelet_host.agent.loop import Agent
    from drupelet_host.view.log_view import Entry

# How often a reader that follows the log, or waits for room in the outbox, looks again.
LOOK_EVERY_S = 0.1
# Messages that one look into the log holds in memory: 32 KB each at most.
_BATCH_MAX = 64
# Messages that may be handed out and not done at the same time.
UNDONE_MAX = 1024
DEFAULT_READER = "program"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = int((datetime.max.replace(tzinfo=UTC) - _EPOCH).total_seconds()) * 1000
T = TypeVar("T")
_log = logging.getLogger("drupelet_host")


class ClosedError(DrupeletError):
    """A home was used after it was closed."""


class AgentStoppedError(DrupeletError):
    """The agent of this process has ended by itself; the text is its reason."""


@dataclass(frozen=True)
class Message:
    """One message of the log.

    id: 64 hex digits, the same at every member. group: "readings" or "telemetry". author: who
    wrote it as the message itself says (`"board"` in its JSON), else who handed it to us; nothing
    proves it. via: the name of the peer that handed it over; our own name for ours. time: the
    author's clock, in UTC, to the millisecond. body: the bytes that were published, at most
    32 KB. explodes: when it is deleted everywhere; None: at no time.
    """

    id: str
    group: str
    author: str
    via: str
    time: datetime
    body: bytes
    explodes: datetime | None
    _finish: Callable[[], None] = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        """The body as UTF-8; a byte that is none shows as U+FFFD."""
        return self.body.decode(errors="replace")

    def done(self) -> None:
        """This reader does not get the message again; durable on return. A second call is none.

        A message that is not done comes again in the next iteration, also after a crash. Raises
        StorageError, or ClosedError when the home is closed.
        """
        self._finish()


def open_home(path: str | os.PathLike[str] | None = None) -> "Home":
    """Open a home that `drupelet init` or `create_home` made; by default that of the command.

    Raises ConfigError when there is none, or its drupelet.toml has a mistake.
    """
    folder = Path(path) if path is not None else config.default_home()
    return Home(config.load(folder))


def create_home(
    path: str | os.PathLike[str], name: str, group: str, id: bytes | None = None,
    family: str = config.FAMILY_BSP_NAME,
) -> "Home":  # fmt: skip
    """Make a home as `drupelet init` does, and open it.

    name: of this member. group: the same text at every member. id: 4 bytes, unique among the
    members; random if not given. family: whose messages these are, for life: "bsp", "mvds" or
    "bsp-0" (docs/cli.md, drupelet.toml). Raises ConfigError for a home that is there already or a
    value that does not fit, StorageError for a disk that refuses it.
    """
    folder = Path(path)
    own_id = os.urandom(4) if id is None else id
    if len(own_id) != 4:
        raise config.ConfigError(f"id: must be 4 bytes, not {len(own_id)}")
    config.create(config.Config(folder, name, own_id, group, family=family))
    private_files.make_folder(folder / "keys")
    return Home(config.load(folder))


class Home:
    """An open home: `publish`, `messages`, `agent`. Close it, or use it in a `with` block.

    Its methods may be called from any thread. One iterator belongs to one thread.
    """

    def __init__(self, settings: config.Config) -> None:
        self._config = settings
        self._readers: dict[tuple[str, str], _Reader] = {}
        self._lock = threading.Lock()
        self._agent: RunningAgent | None = None
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others read under our readers' names. An agent of this home must have stopped."""
        self._is_closed = True
        with self._lock:
            for reader in self._readers.values():
                reader.close()
            self._readers.clear()

    @property
    def path(self) -> Path:
        """The home's folder."""
        return self._config.home

    @property
    def name(self) -> str:
        """This member's name."""
        return self._config.name

    @property
    def group(self) -> str:
        """The text that all members of the group have in their configuration."""
        return self._config.group

    def publish(
        self, body: bytes, time: datetime | None = None, wait: bool = False, *,
        ephemeral: bool | None = None, explode_after: timedelta | None = None,
        explode_read: bool | None = None,
    ) -> None:  # fmt: skip
        """Publish a message to the group; it survives a power cut when this returns.

        An agent publishes it at once; without one it waits in the outbox, as after `drupelet put`.

        Args:
            body: 1 to 32,511 bytes (`drupelet_host.store.outbox.PAYLOAD_SIZE_MAX`).
            time: of the reading, with a time zone; now if not given.
            wait: while the outbox is full and an agent runs, wait until it has made room.
            ephemeral: send it to those who are there now, for no log; an agent must run.
            explode_after: from `time` on, to the second, until it is deleted at every member;
                timedelta(0): never.
            explode_read: it is deleted once it was read and everybody has it.
                What is None is as in drupelet.toml.

        Raises:
            CapacityError: the body is empty or too long, or 4,096 messages wait already; or the
                group has no exploding or no ephemeral messages.
            NoAnswerError: an ephemeral message, and no agent runs.
            ConfigError: id or group of drupelet.toml are not those of the home's store.
            StorageError: the disk refused it.
        """
        self._check_open()
        if not body:
            raise CapacityError("an empty message says nothing; give it some bytes")
        wall_ms = None if time is None else _wall_ms(time)
        explodes = explode_after is not None or explode_read is not None
        if self._config.ephemeral and not explodes if ephemeral is None else ephemeral:
            if explodes or time is not None:
                raise CapacityError(
                    "an ephemeral message is of now, and for no log; leave time and explode_* out"
                )
            self._send_ephemeral(bytes(body))
            return
        seconds = self._config.explode_s if explode_after is None else _seconds(explode_after)
        is_read_once = self._config.explode_read if explode_read is None else explode_read
        payload = family.payload_of(self._config, bytes(body), lifetime(seconds, is_read_once))
        connection = database.connect(self._config.store_path)
        try:
            if wrong := identity.problem(connection, self._config):
                raise config.ConfigError(wrong)
            while not self._post(connection, payload, wall_ms, wait):
                _pause()
        except sqlite3.Error as error:
            raise StorageError(database.explain(self._config.store_path, error)) from error
        finally:
            connection.close()

    def _send_ephemeral(self, body: bytes) -> None:
        if not config.locked(self.path):
            raise NoAnswerError(
                f"{self.path}: no agent runs, and an ephemeral message reaches only those who are"
                " there now"
            )
        answer = ask(self._config, SendEphemeral(body), "message")
        if "error" in answer:
            raise CapacityError(answer["error"])

    def _post(
        self, connection: sqlite3.Connection, body: bytes, wall_ms: int | None, wait: bool
    ) -> bool:
        """False: the outbox is full and may be waited for."""
        try:
            outbox.post(connection, body, wall_ms)
            poke(self.path)
        except outbox.FullError:
            self._check_agent()
            if wait and config.locked(self.path):
                return False
            raise
        return True

    def messages(
        self, reader: str = DEFAULT_READER, *, group: str = "readings", follow: bool = False
    ) -> Iterator[Message]:
        """The messages that this reader has not done yet, in the log's order, our own too.

        Each reader is a name with a place of its own in the log. At most UNDONE_MAX messages may
        be handed out and not done.

        Args:
            reader: the name. One process at a time reads under it.
            group: "readings" or "telemetry" (black boxes of the members).
            follow: do not end, but wait for more messages.

        Raises:
            ReaderBusyError: another process reads under this name; at once, not at the first
                message.
            CapacityError: UNDONE_MAX messages are not done.
            AgentStoppedError: with `follow`, when the agent of this process failed.
            ConfigError, StorageError: as `publish`.
        """
        log_reader = self._reader(reader, group)

        def iterate() -> Iterator[Message]:
            looked_at = 0
            while True:
                batch, looked_at = log_reader.next_batch(looked_at).result()
                yield from batch
                if not batch:
                    if not follow:
                        return
                    self._check_open()
                    self._check_agent()
                    _pause()

        return iterate()

    async def arrivals(
        self, reader: str = DEFAULT_READER, *, group: str = "readings"
    ) -> AsyncIterator[Message]:
        """As `messages` with `follow`, for `async for`: waiting leaves the event loop free."""
        log_reader = self._reader(reader, group)
        looked_at = 0
        while True:
            batch, looked_at = await asyncio.wrap_future(log_reader.next_batch(looked_at))
            for message in batch:
                yield message
            if not batch:
                self._check_open()
                self._check_agent()
                await asyncio.sleep(LOOK_EVERY_S)

    def add_peer(self, name: str, id: bytes, url: str, profile: str = "") -> None:
        """Write one more peer into drupelet.toml; the next agent of the home knows it.

        id: its 4 bytes. url: as of `drupelet peer add`. profile: what its links speak, by default
        the first of the family. Raises ConfigError, also for a name that is taken, TransportError
        for a wrong URL, or LockedError while an agent runs: `drupelet peer add` tells that one.
        """
        self._check_open()
        with config.lock(self.path):
            parse_url(url)
            config.add_peer(self.path, config.Peer(name, id, url, profile=profile))
        self._config = config.load(self.path)

    def agent(self, wait: bool = True) -> "RunningAgent":
        """The home's agent in a thread of this process, for a `with` or `async with` block.

        It serves the carriers of drupelet.toml until the block ends. wait: carriers that are not
        there are waited for; False: they are an error at the start. What it does is logged by the
        logger "drupelet_host".
        """
        self._check_open()
        return RunningAgent(self, self._config, wait)

    def _reader(self, name: str, group: str) -> "_Reader":
        self._check_open()
        with self._lock:
            key = (name, group)
            if key not in self._readers:
                self._readers[key] = _Reader(self.path, name, group)
            return self._readers[key]

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError(f"{self.path}: the home is closed; open it again")

    def _check_agent(self) -> None:
        if self._agent is not None:
            self._agent.check()


class _Reader:
    """A reader of the log that hands out messages, and what of them is not done.

    A connection to SQLite belongs to one thread, and the callers may be in several: so the log is
    read in a thread of its own.
    """

    def __init__(self, home: Path, name: str, group: str) -> None:
        from drupelet_host.view.log_view import GROUPS

        if group not in GROUPS:
            raise config.ConfigError(f"group: must be {' or '.join(GROUPS)}, not {group!r}")
        self._name = name
        self._group = group
        self._undone: dict[int, bytes] = {}
        self._thread = ThreadPoolExecutor(1, "drupelet reader")
        self._is_closed = False
        try:
            label = f"program {name} {group}"
            self._log = self._thread.submit(LogReader, home, label, group).result()
        except DrupeletError:
            self._thread.shutdown()
            raise

    def close(self) -> None:
        """Free the files, when what was begun is over."""
        self._is_closed = True
        self._thread.submit(self._log.close).result()
        self._thread.shutdown()

    def next_batch(self, after: int) -> "Future[tuple[list[Message], int]]":
        """Messages behind handle `after` (0: the first that is not done), and the last handle."""
        return self._submit(self._next_batch, after)

    def _submit(self, call: Callable[[int], T], handle: int) -> "Future[T]":
        if self._is_closed:
            raise ClosedError("the home of this reader is closed; open it again")
        return self._thread.submit(call, handle)

    def _next_batch(self, after: int) -> tuple[list[Message], int]:
        self._log.look_behind(after)
        messages: list[Message] = []
        last = after
        for entry in self._log.batch(_BATCH_MAX):
            if entry.handle not in self._undone and len(self._undone) == UNDONE_MAX:
                if messages:
                    return messages, last
                raise CapacityError(
                    f"{UNDONE_MAX} messages were handed to reader {self._name!r} and are not done;"
                    " call done() on each"
                )
            self._undone[entry.handle] = entry.id
            messages.append(self._message(entry))
            last = entry.handle
        # Messages that were done, or are damaged, may stand behind the last one.
        return messages, self._log.looked_at

    def _message(self, entry: "Entry") -> Message:
        ms = int.from_bytes(entry.timestamp)
        return Message(
            id=entry.id.hex(), group=self._group, author=entry.author or entry.via,
            via=entry.via, time=_time(ms), body=entry.payload,
            explodes=_time(entry.explodes_ms) if entry.explodes_ms else None,
            _finish=lambda: self._submit(self._finish, entry.handle).result(),
        )  # fmt: skip

    def _finish(self, handle: int) -> None:
        id = self._undone.get(handle)
        if id is None:
            return
        others = [other for other in self._undone if other != handle]
        # Everything before the first that is not done is done.
        last = min(others) - 1 if others else handle
        self._log.finish([(handle, id)], max(last, self._log.handle))
        del self._undone[handle]


class RunningAgent:
    """The agent of a home, in a thread; made by `Home.agent`."""

    def __init__(self, home: Home, settings: config.Config, wait: bool) -> None:
        self._home = home
        self._config = settings
        self._wait = wait
        self._agent: Agent | None = None
        self._thread: threading.Thread | None = None
        self._is_ready = threading.Event()
        self._failure: BaseException | None = None
        self._has_served = False
        self._is_over = False

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        if error is None:
            self.check()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._stop)
        if error is None:
            self.check()

    def check(self) -> None:
        """Raise AgentStoppedError when the agent has ended by itself."""
        if self._failure is not None:
            raise AgentStoppedError(str(self._failure)) from self._failure
        if self._is_over and not (self._agent is not None and self._agent.stopping):
            raise AgentStoppedError("the agent has a mistake; standard error tells which")

    def _start(self) -> None:
        """Run the agent; back when its carriers are up or waited for.

        Raises what keeps it from starting: LockedError when another agent owns the home,
        ConfigError, StorageError, TransportError.
        """
        self._thread = threading.Thread(target=self._run, name="drupelet agent", daemon=True)
        self._thread.start()
        self._is_ready.wait()
        if not self._has_served:
            self._thread.join()
            if self._failure is not None:
                raise self._failure
            self.check()
        self._home._agent = self

    def _stop(self) -> None:
        if self._agent is not None and not self._is_over:
            self._agent.stopping = True
            poke(self._config.home)  # it may sleep
        if self._thread is not None:
            self._thread.join()
        self._home._agent = None

    def _ready(self) -> None:
        self._has_served = True
        self._is_ready.set()

    def _run(self) -> None:
        from drupelet_host.agent.loop import Agent

        try:
            with config.lock(self._config.home):
                self._agent = Agent(self._config, _Logged(), self._wait)
                self._agent.serve(self._ready)
        except (DrupeletError, OSError, sqlite3.Error) as error:
            self._failure = error
        finally:
            self._is_over = True
            self._is_ready.set()


class _Logged(Output):
    """What an agent prints, for Python's logging."""

    def __init__(self) -> None:
        super().__init__(as_json=False)

    def event(self, kind: str, text: str, /, **fields: Any) -> None:  # noqa: ANN401 - as the base
        _log.info("%s %s", kind, text, extra={"event": kind, "fields": fields})


def _time(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=min(ms, _LAST_MS))


def _wall_ms(time: datetime) -> int:
    if time.tzinfo is None:
        raise CapacityError("time: has no time zone; give it one, as in datetime.now(UTC)")
    ms = (time - _EPOCH) // timedelta(milliseconds=1)
    if ms < 0:
        raise CapacityError(f"time: {time.isoformat()} is before 1970")
    return ms


def _seconds(lifetime: timedelta) -> int:
    seconds = lifetime // timedelta(seconds=1)
    if not 0 <= seconds <= LIFETIME_S_MAX or 0 < lifetime / timedelta(seconds=1) < 1:
        raise CapacityError(f"explode_after: {lifetime} is not 0 or 1 to {LIFETIME_S_MAX} seconds")
    return seconds


def _pause() -> None:
    time.sleep(LOOK_EVERY_S)
