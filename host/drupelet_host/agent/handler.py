"""`drupelet agent --exec CMD`: a program of the user's for each message that was received.

One at a time, in the log's order. A program that ends with 0 has taken its message; after anything
else it is run again for the same message, later and later, and those behind it wait. How far it
has come is durable before the next one starts, so a message is given twice only if the agent is
killed after the program has ended, or while it runs.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

from drupelet import host_api
from drupelet.base.time_ms import elapsed_ms
from drupelet.store.states import STATE_DELIVERED, STATE_PRIVATE
from drupelet_host.base import clock
from drupelet_host.member import family
from drupelet_host.member.author_name import author_of
from drupelet_host.member.member import Member
from drupelet_host.store import database

# A program that fails is run again after this, and after twice as long each time ...
RETRY_MS = 1000
# ... up to this.
RETRY_MS_MAX = 300_000
# A program that is told to end (SIGTERM) is killed after this; so is one at the agent's own end.
END_MS = 3000
# Where the system cannot wake us when a program ends, we look this often.
LOOK_EVERY_MS = 50
# Key of the table `meta`: the handle through which messages were handled.
HANDLED = "handled"
_SHELL = "/bin/sh"
_STANDARD_ERROR = 2
# What a feed brought as if it were ours was received, too.
_NEXT = (
    "SELECT handle FROM log WHERE member_group = ? AND state {states} AND handle > ?"
    " AND (source != 0 OR EXISTS (SELECT 1 FROM meta WHERE key GLOB 'taken.*' AND handle"
    " BETWEEN CAST(substr(key, 7) AS INTEGER) AND value)) ORDER BY handle LIMIT 1"
)


class Handler:
    """The agent calls `turn` in each of its own, and waits for `poll_object`, too.

    report: given a message's id in hex, its handle and one line, when its program failed.
    """

    def __init__(
        self, member: Member, command: str, time_max_s: float,
        report: Callable[[str, int, str], None],
    ) -> None:  # fmt: skip
        self._member = member
        self._command = command
        self._time_max_ms = int(time_max_s * 1000)
        self._report = report
        self._through = database.meta_int(member.store.connection, HANDLED, 0)
        self._looked_to = -1  # the newest handle when there was nothing to do
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._handle = 0  # of the message that is being handled
        self._id = ""
        self._from_ms = 0  # when the program was started, or ended
        self._told_to_end = False
        self._retry_ms = 0
        # What is ephemeral is in the store as a private message, for a minute.
        states = f"IN ({STATE_DELIVERED}, {STATE_PRIVATE})"
        may_be_ephemeral = member.config.may_be_ephemeral
        self._next = _NEXT.format(states=states if may_be_ephemeral else f"= {STATE_DELIVERED}")
        member.hold_from(self._through + 1)

    def poll_object(self) -> int | None:
        """Readable once the program has ended."""
        return self._pidfd if self._pidfd >= 0 else None

    def turn(self, now_ms: int) -> None:
        """See to the program that runs, and start the next one."""
        if self._process is not None:
            self._see_to(self._process, now_ms)
        while self._process is None and not self._rest_ms(now_ms) and self._find_next():
            self._start(now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """How many ms until there may be something to do, at most."""
        if self._process is None:
            return self._rest_ms(now_ms) or RETRY_MS_MAX
        if self._pidfd < 0:
            return LOOK_EVERY_MS
        bound_ms = self._time_max_ms + (END_MS if self._told_to_end else 0)
        return max(0, bound_ms - elapsed_ms(now_ms, self._from_ms))

    def _rest_ms(self, now_ms: int) -> int:
        """How long it is still waited after a failure."""
        return max(0, self._retry_ms - elapsed_ms(now_ms, self._from_ms)) if self._retry_ms else 0

    def _find_next(self) -> bool:
        """Find the next message to be handled."""
        member = self._member
        newest = host_api.newest(member.node)
        if newest == self._looked_to:
            return False
        row = member.store.connection.execute(
            self._next, (member.readings, self._through)
        ).fetchone()
        if row is None:
            self._looked_to = newest
            member.hold_from(max(newest, self._through) + 1)
            return False
        self._handle = int(row[0])
        member.hold_from(self._handle)
        return True

    def _start(self, now_ms: int) -> None:
        member = self._member
        logged = host_api.message(member.store, self._handle)
        body = host_api.body(member.store, logged) if logged is not None else None
        is_there = logged is not None and logged.state in (STATE_DELIVERED, STATE_PRIVATE)
        if logged is None or not is_there or body is None:
            # Damaged, of which the agent raises an alarm; or it has exploded meanwhile.
            self._through = self._handle
            return
        settings = member.config
        _, payload = family.split(settings, body)
        stamp = family.timestamp_of(settings, logged.timestamp)
        via = member.names.get(logged.source, "?")
        self._id = logged.id.hex()
        environment = {
            **os.environ,
            "DRUPELET_HOME": str(settings.home),
            "DRUPELET_ID": self._id,
            "DRUPELET_GROUP": settings.group.replace("\0", ""),  # an environment has none
            "DRUPELET_AUTHOR": author_of(payload) or via,
            "DRUPELET_VIA": via,
            "DRUPELET_TIME": clock.timestamp_text(stamp),
            "DRUPELET_TIMESTAMP_MS": str(int.from_bytes(stamp)),
        }
        self._from_ms = now_ms
        self._told_to_end = False
        # A file in memory: a program that reads nothing cannot make us wait.
        content = os.memfd_create("message")
        try:
            os.write(content, payload)
            os.lseek(content, 0, os.SEEK_SET)
            self._process = subprocess.Popen(
                [_SHELL, "-c", self._command],
                stdin=content, stdout=_STANDARD_ERROR, env=environment, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._failed(f"cannot be started ({error.strerror})")
            return
        finally:
            os.close(content)
        with suppress(OSError):  # an old kernel
            self._pidfd = os.pidfd_open(self._process.pid)

    def _see_to(self, process: subprocess.Popen[bytes], now_ms: int) -> None:
        code = process.poll()
        if code is not None:
            self._from_ms = now_ms
            self._ended(code)
            return
        late_ms = elapsed_ms(now_ms, self._from_ms) - self._time_max_ms
        if late_ms >= 0 and not self._told_to_end:
            self._signal(signal.SIGTERM)
            self._told_to_end = True
        elif late_ms >= END_MS:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        """To the program and what it has started."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _ended(self, code: int) -> None:
        self._process = None
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        if self._told_to_end:
            self._failed(f"took longer than {self._time_max_ms / 1000:g} s")
        elif code:
            what = f"ended with {code}" if code > 0 else f"was ended by signal {-code}"
            self._failed(what)
        else:
            self._retry_ms = 0
            self._through = self._handle
            self._member.store.write(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)", HANDLED, self._through
            )
            self._member.commit()
            self._member.hold_from(self._through + 1)

    def _failed(self, what: str) -> None:
        self._retry_ms = min(max(RETRY_MS, 2 * self._retry_ms), RETRY_MS_MAX)
        self._report(
            self._id, self._handle,
            f"message {self._id[:8]}: --exec {what}; again in {self._retry_ms / 1000:g} s",
        )  # fmt: skip

    def close(self) -> None:
        """The agent ends: a program that runs may finish, for a while."""
        process = self._process
        if process is None:
            return
        try:
            code = process.wait(END_MS / 1000)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._told_to_end = True
            code = process.wait()
        self._ended(code)
