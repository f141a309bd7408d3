"""What `drupelet put` does, and a short way into it for the calls that programs make.

A script may put a message every few seconds. To load typer and all commands takes three times as
long as the rest, so a call that is well formed does without (`from_words`); whatever is not, and
`--help`, goes the usual way (put_verb).
"""

import itertools
import os
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from drupelet.base.errors import CapacityError, DrupeletError, StorageError
from drupelet_host.base import output
from drupelet_host.base.local_path import local_path
from drupelet_host.cli import exits
from drupelet_host.home import config
from drupelet_host.home.config import Config
from drupelet_host.home.lifetime import Lifetime, lifetime, lifetime_s
from drupelet_host.member import family, identity
from drupelet_host.requests.connection import poke
from drupelet_host.store import database, outbox

if TYPE_CHECKING:
    from drupelet_host.cli.accepted import Accepted

# How often it is looked whether the agent has made room.
LOOK_EVERY_S = 0.1
STANDARD_INPUT = "-"
# Standard input is read in pieces of at most so many bytes; the lines of one are one transaction.
_PIECE_SIZE_MAX = 1 << 16
_FLAGS = {"--json": "as_json", "--wait": "wait", "--each-line": "each_line"}
_VALUES = ("--home", "--file")
_NEVER = "never"


@dataclass
class Call:
    """One call of `drupelet put`. Exactly one of text and file is given, or each_line."""

    text: str | None = None
    file: Path | None = None
    home: Path | None = None
    wait: bool = False
    as_json: bool = False
    each_line: bool = False
    # What becomes of the message; as in drupelet.toml where nothing is said.
    explode: str = ""
    explode_read: bool | None = None
    ephemeral: bool | None = None

    @property
    def mistake(self) -> str:
        """What is wrong with the usage; '' when it can be run."""
        if self.each_line:
            if self.file is not None or self.text not in (None, STANDARD_INPUT):
                return "--each-line reads standard input; leave TEXT and --file out"
        elif (self.text is None) == (self.file is None):
            return "give either TEXT or --file FILE"
        if self.ephemeral and (self.explode or self.explode_read):
            return "--ephemeral is for no log; leave --explode and --explode-read out"
        if self.explode not in ("", _NEVER):
            try:
                lifetime_s(self.explode)
            except ValueError as error:
                return f"--explode {error}, or {_NEVER}"
        return ""

    def lifetime(self, settings: Config) -> Lifetime:
        """What becomes of the message, in the home with these settings."""
        seconds = settings.explode_s
        if self.explode:
            seconds = 0 if self.explode == _NEVER else lifetime_s(self.explode)
        is_read_once = self.explode_read
        return lifetime(seconds, settings.explode_read if is_read_once is None else is_read_once)

    def is_ephemeral(self, settings: Config) -> bool:
        """Whether the message is for those who are there, in the home with these settings."""
        says_otherwise = self.ephemeral is not None or self.explode or self.explode_read
        return bool(self.ephemeral) if says_otherwise else settings.ephemeral


def from_words(words: Sequence[str]) -> Call | None:
    """The call that the words behind `put` are; None: let typer look at them."""
    call = Call()
    paths: dict[str, Path] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if word in _FLAGS:
            setattr(call, _FLAGS[word], True)
        elif name in _VALUES and (equals or left):
            value = value if equals else left.pop(0)
            if not value or (value.startswith("-") and not equals):
                return None
            paths[name] = local_path(value)
        elif call.text is not None or (word.startswith("-") and word != STANDARD_INPUT):
            return None
        else:
            call.text = word
    call.home, call.file = paths.get("--home"), paths.get("--file")
    return None if call.mistake else call


def run_short(words: Sequence[str]) -> bool:
    """Run a call that is well formed; False: nothing was done, let typer look at it."""
    call = None

    def run() -> None:
        nonlocal call
        call = from_words(words)
        if call is not None:
            publish(call)

    exits.end_with(run)
    return call is not None


def publish(call: Call) -> None:
    """Do it, and say what was done. Raises DrupeletError with one line."""
    content = None if call.each_line else _content(call.text, call.file)
    folder = call.home if call.home is not None else config.default_home()
    settings = config.load(folder)
    if call.is_ephemeral(settings):
        _send_ephemeral(settings, content, call.as_json)
        return
    letters = _Letters(settings, call.lifetime(settings))
    connection = database.connect(settings.store_path)
    try:
        if wrong := identity.problem(connection, settings):
            raise config.ConfigError(wrong)
        if content is None:
            done, size = _post_lines(connection, folder, letters), None
        else:
            payload = letters.payload(content)
            done, size = post(connection, payload, folder, call.wait), len(content)
    except sqlite3.Error as error:
        raise StorageError(database.explain(settings.store_path, error)) from error
    finally:
        connection.close()
    try:
        _say(done, size, folder, call.as_json)
    except (OSError, DrupeletError) as error:
        # Who takes this for a failure says it again.
        what = (
            f"{output.counted(done, 'message')} accepted"
            if size is None
            else f"accepted as entry {done}"
        )
        output.complain(f"{what}, but that could not be shown: {error}")
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - till the end


@dataclass(frozen=True)
class _Letters:
    """What a home's messages are like."""

    settings: Config
    lifetime: Lifetime

    def payload(self, content: bytes) -> bytes:
        """What the outbox takes. Raises CapacityError for what is too long or cannot explode."""
        if self.is_too_long(content):
            size_max = family.content_max(self.settings)
            raise CapacityError(f"too long: at most {size_max} bytes; split it")
        return family.payload_of(self.settings, content, self.lifetime)

    def is_too_long(self, content: bytes) -> bool:
        return len(content) > family.content_max(self.settings)


def _send_ephemeral(settings: Config, content: bytes | None, as_json: bool) -> None:
    """Have the agent send a message, or each line of standard input, to those who are there."""
    from drupelet_host.requests.client import NoAnswerError, ask
    from drupelet_host.requests.shapes import SendEphemeral

    pieces = iter([[content]]) if content is not None else _pieces(sys.stdin.fileno())
    done = 0
    for piece in itertools.chain.from_iterable(pieces):
        if not config.locked(settings.home):
            raise NoAnswerError(
                f"{settings.home}: no agent runs, and an ephemeral message reaches only those who"
                " are there now; start `drupelet agent`"
            )
        answer = ask(settings, SendEphemeral(piece), "message")
        if "error" in answer:
            before = f"{output.counted(done, 'message')} sent; " if done else ""
            raise CapacityError(before + answer["error"])
        done += 1
        if as_json:
            output.print_json(answer)
    if not as_json:
        what = (
            output.counted(len(content), "byte")
            if content is not None
            else output.counted(done, "message")
        )
        print(f"{what} sent to those who are there", flush=True)


def _say(done: int, size: int | None, home: Path, as_json: bool) -> None:
    running = config.locked(home)
    if running:
        poke(home)
    if as_json:
        accepted: Accepted = (
            {"messages": done, "running": running}
            if size is None
            else {"entry": done, "size": size, "running": running}
        )
        output.print_json(accepted)
        return
    who = "the agent" if running else "the next agent or stick visit"
    if size is None:
        them = "it" if done == 1 else "them"
        print(f"{output.counted(done, 'message')} accepted; {who} publishes {them}", flush=True)
    else:
        print(f"{output.counted(size, 'byte')} accepted; {who} publishes it", flush=True)


def post(connection: sqlite3.Connection, payload: bytes, home: Path, wait: bool) -> int:
    """Leave a message in the outbox; its entry. Raises CapacityError when there is no room.

    wait: as long as the agent runs, until it has made room.
    """
    while True:
        try:
            return outbox.post(connection, payload)
        except outbox.FullError as error:
            if not config.locked(home):
                raise CapacityError(
                    f"{error.waiting} messages wait already; start the agent first"
                ) from error
            if not wait:
                raise CapacityError(
                    f"{error.waiting} messages wait already; the agent is behind, or its log is"
                    " full: --wait waits for room, `drupelet status` shows what is owed"
                ) from error
        time.sleep(LOOK_EVERY_S)


def _post_lines(connection: sqlite3.Connection, home: Path, letters: _Letters) -> int:
    """Leave each line of standard input, as soon as it is there; how many.

    Waits for room as long as the agent runs. Raises CapacityError that says how many lines were
    accepted.
    """
    done = 0
    for contents in _pieces(sys.stdin.fileno()):
        short = itertools.takewhile(lambda content: not letters.is_too_long(content), contents)
        sound = [letters.payload(content) for content in short]
        at = 0
        while at < len(sound):
            at += outbox.post_many(connection, sound[at:])
            if at < len(sound):
                _wait_for_room(home, done + at)
        done += at
        for content in contents[at : at + 1]:
            size_max = family.content_max(letters.settings)
            raise CapacityError(
                f"{_accepted(done)}; the next line has {len(content)} bytes or more, and at most"
                f" {size_max} fit: split it, then give the rest"
            )
    return done


def _wait_for_room(home: Path, done: int) -> None:
    if not config.locked(home):
        raise CapacityError(
            f"{_accepted(done)}, and no more have room; start the agent, then give it the rest"
        )
    time.sleep(LOOK_EVERY_S)


def _accepted(count: int) -> str:
    return f"{output.counted(count, 'message')} of standard input accepted"


def _is_too_long(payload: bytes) -> bool:
    return len(payload) > outbox.PAYLOAD_SIZE_MAX


def _pieces(descriptor: int) -> Iterator[list[bytes]]:
    """The lines that came in together, without their ends and without empty ones.

    Of a line that is too long its start, which is too long, too; then nothing more.
    """
    rest = b""
    while piece := os.read(descriptor, _PIECE_SIZE_MAX):
        *lines, rest = (rest + piece).split(b"\n")
        yield [line for raw in lines if (line := raw.removesuffix(b"\r"))]
        if _is_too_long(rest.removesuffix(b"\r")):
            break
    if rest := rest.removesuffix(b"\r"):
        yield [rest]


def _content(text: str | None, file: Path | None) -> bytes:
    if text == STANDARD_INPUT:
        content = sys.stdin.buffer.read(outbox.PAYLOAD_SIZE_MAX + 1)
    elif text is not None:
        content = os.fsencode(text)
    else:
        assert file is not None
        try:
            with file.open("rb") as source:
                content = source.read(outbox.PAYLOAD_SIZE_MAX + 1)
        except OSError as error:
            raise StorageError(f"{file}: cannot be read ({error.strerror})") from error
    if not content:
        raise CapacityError("an empty message says nothing; give it some text")
    if _is_too_long(content):
        raise CapacityError(f"too long: at most {outbox.PAYLOAD_SIZE_MAX} bytes; split it")
    return content
