"""Which files under some inputs changed since they were taken in; a look opens none of them.

Of each file that was taken a hash of its name, size and times is kept, 8 bytes. A folder that is
as it was, and in which nothing has changed for QUIET_S, is not even listed, but for a full look
every FULL_LOOK_S: a file that grows does not show in its folder's times. Of a store elsewhere all
is listed; while nothing comes, the looks at it become fewer.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.base.place import Place, Remote, is_below, reason
from drupelet_tools.telemetry.files import inputs

QUIET_S = 3_600
FULL_LOOK_S = 600
# Looks at a store in which nothing changes: the pause doubles up to so many times the usual one.
FAR_PAUSE_FACTOR_MAX = 8
# A look ends where it has found so many; the next one goes on. Each takes 0.4 KB of memory.
OFFERED_MAX = 1 << 17
REMEMBERED_MAX = 1 << 24  # 128 MiB
# Files that are set aside, and those with a time in the future.
SET_ASIDE_MAX = 1 << 16
# A file that is set aside again and again is offered at least so often.
ASIDE_MAX_S = 600.0
ENTRIES_AT_ONCE = 4096
_NS = 1_000_000_000

Hashes = npt.NDArray[np.uint64]
_NONE = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Changed:
    """A file that is to be taken in, in the state that it had when it was looked at."""

    path: Place
    size: int
    changed_ns: int  # the newest of its times
    state: int  # a hash
    folder: str


@dataclass(slots=True)
class _Folder:
    """What is kept of a folder, of a store's listing, or of a file that was given by itself."""

    taken: Hashes = field(default_factory=lambda: _NONE)
    state: tuple[int, ...] = ()
    subfolders: list[str] = field(default_factory=list)
    listed_s: float = 0.0
    is_quiet: bool = False


@dataclass(slots=True)
class _Aside:
    """A file that is not offered before `until_s` unless it changes."""

    state: int
    until_s: float
    pause_s: float


class Inbox:
    """The inputs, and what of them was taken in.

    Args:
        paths: files and folders, here or elsewhere.
        lake: its files are no input.
        settle_s: a file counts once it has been left alone for so long.
        every_s: how often a store elsewhere is listed at most.
    """

    def __init__(
        self, paths: Sequence[Place], lake: Place, settle_s: float, every_s: float = 0.0
    ) -> None:
        self._paths = list(paths)
        self._lake = lake
        self._settle_s = settle_s
        self._every_s = every_s
        self._folders: dict[str, _Folder] = {}
        self._aside: dict[str, _Aside] = {}
        self._from_the_future: dict[str, tuple[int, float]] = {}
        self._due: dict[Remote, tuple[float, float]] = {}  # when the next listing is, the pause
        self._far_files: set[Remote] = set()  # those that are no folders
        self._offered: dict[Place, Changed] = {}
        self._seen: set[str] = set()
        # Of the last look: what stood in its way, and whether it ended before it had seen all.
        self.problems: list[str] = []
        self.has_more = False
        # Files of names directly in what was given, with a state that changes when they do.
        self.names_files: dict[Place, tuple[int, ...]] = {}

    def look(self) -> list[Changed]:
        """Files that changed and were left alone since, in order of name."""
        self.problems = []
        self.has_more = False
        self._offered = {}
        self._seen = set()
        self.names_files = {}
        for path in self._paths:
            try:
                if isinstance(path, Remote):
                    self._look_far(path)
                else:
                    self._look_here(path)
            except TelemetryError as refused:
                self.problems.append(str(refused))
            except OSError as refused:
                self.problems.append(f"{refused.filename or path}: {reason(refused)}")
        if not self.has_more:
            self._forget_unseen()
        offered, self._offered = self._offered, {}
        return sorted(offered.values(), key=lambda one: str(one.path))

    def take(self, files: Iterable[Changed]) -> None:
        """Offer these no more unless they change."""
        by_folder: dict[str, list[int]] = {}
        for one in files:
            by_folder.setdefault(one.folder, []).append(one.state)
            self._aside.pop(str(one.path), None)
        for name, states in by_folder.items():
            folder = self._folders.setdefault(name, _Folder())
            fresh = np.array(states, dtype=np.uint64)
            folder.taken = np.union1d(folder.taken, fresh)

    def set_aside(self, file: Changed, pause_s: float) -> None:
        """Offer it again after a pause, which doubles each time, or once it changes."""
        before = self._aside.get(str(file.path))
        if before is not None and before.state == file.state:
            pause_s = min(2 * before.pause_s, ASIDE_MAX_S)
        elif len(self._aside) >= SET_ASIDE_MAX:
            return
        until_s = time.monotonic() + pause_s
        self._aside[str(file.path)] = _Aside(file.state, until_s, pause_s)

    def forget(self) -> None:
        """Offer everything again."""
        self._folders.clear()
        self._aside.clear()
        self._due.clear()

    def _forget_unseen(self) -> None:
        for gone in self._folders.keys() - self._seen:
            del self._folders[gone]
        now_s = time.monotonic()
        self._aside = {
            path: one for path, one in self._aside.items() if one.until_s > now_s - ASIDE_MAX_S
        }
        if sum(len(folder.taken) for folder in self._folders.values()) > REMEMBERED_MAX:
            self.problems.append(
                f"more than {REMEMBERED_MAX:,} files: that is more than can be kept in mind;"
                " move away what was taken in"
            )
            self._offered = {}

    # --- folders of this machine ---

    def _look_here(self, given: Path) -> None:
        root = os.path.realpath(given)
        if not os.path.isdir(root):
            info = os.stat(root)
            self._seen.add(root)
            folder = self._folders.setdefault(root, _Folder())
            folder.taken, _ = self._offer_new(root, [(root, _state_of(info), info.st_size)])
            return
        names = os.path.join(root, inputs.NAMES_FILE)
        if os.path.isfile(names):
            self.names_files[Path(names)] = _state_of(os.stat(names))
        waiting = [root]
        while waiting and not self.has_more:
            path = waiting.pop()
            if path in self._seen or self._is_lakes(path, root):
                continue
            self._seen.add(path)
            if len(self._seen) > inputs.FOLDERS_MAX:
                raise TelemetryError(inputs.too_many_folders(given))
            try:
                waiting += self._look_into(path, root)
            except OSError as refused:
                if path == root or not isinstance(refused, FileNotFoundError):
                    self.problems.append(f"{path}: {reason(refused)}")

    def _is_lakes(self, folder: str, root: str) -> bool:
        """Whether the files of a folder are a lake's."""
        if not (os.path.basename(folder) == "packs" or is_below(Path(folder), self._lake)):
            return False
        return inputs.in_lake(Path(folder, "file"), Path(root), self._lake)

    def _look_into(self, path: str, root: str) -> list[str]:
        """Offer what changed in a folder; the folders in it."""
        info = os.stat(path)
        state = _state_of(info)
        folder = self._folders.setdefault(path, _Folder())
        now_s = time.monotonic()
        if folder.is_quiet and folder.state == state and now_s - folder.listed_s < FULL_LOOK_S:
            return folder.subfolders
        folder.is_quiet = False
        subfolders: list[str] = []
        kept: list[Hashes] = []
        newest_ns = max(state[-2:])
        is_taken = True
        with os.scandir(path) as entries:
            while not self.has_more and (some := list(islice(entries, ENTRIES_AT_ONCE))):
                rows: list[_Row] = []
                for entry in some:
                    if entry.is_dir():
                        real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                        subfolders.append(real)
                    elif inputs.may_have_segments(entry.name):
                        rows += self._row(entry, root)
                newest_ns = max([newest_ns, *(time for row in rows for time in row[1][-2:])])
                known, are_all = self._offer_new(path, rows)
                kept.append(known)
                is_taken &= are_all
        if not self.has_more:
            folder.taken = np.sort(np.concatenate([_NONE, *kept]))
            folder.state, folder.subfolders, folder.listed_s = state, subfolders, now_s
            folder.is_quiet = is_taken and newest_ns < time.time_ns() - QUIET_S * _NS
        return subfolders

    def _row(self, entry: os.DirEntry[str], root: str) -> Iterator[_Row]:
        """The file of an entry, if it is one."""
        try:
            info = entry.stat()
        except FileNotFoundError:
            return  # it was taken away, or is a link that leads nowhere
        if not stat.S_ISREG(info.st_mode):
            return
        path: str = entry.path
        if entry.is_symlink():
            path = os.path.realpath(path)
            if inputs.in_lake(Path(path), Path(root), self._lake):
                return
        yield path, _state_of(info), info.st_size

    # --- stores elsewhere ---

    def _look_far(self, given: Remote) -> None:
        now_s = time.monotonic()
        due_s, pause_s = self._due.get(given, (now_s, self._every_s))
        self._seen.add(given.uri)
        if now_s < due_s:
            return
        before = len(self._offered)
        first = given not in self._due
        if first and given.is_file():
            self._far_files.add(given)
        listed = [given.listed()] if given in self._far_files else given.below()
        own_lakes = {one.uri.partition("/table/_delta_log/")[0] for one in listed
                     if "/table/_delta_log/" in one.uri}  # fmt: skip
        rows: list[_Row] = []
        for one in listed:
            if one == given / inputs.NAMES_FILE:
                self.names_files[one] = one.size, one.mtime_ns, one.mtime_ns
            is_other = one.parent.name == "packs" and one.parent.parent.uri in own_lakes
            is_own = is_below(one, self._lake) and not is_below(given, self._lake)
            named = given in self._far_files or inputs.may_have_segments(one.name)
            if named and not (is_other or is_own):
                rows.append((one, (one.size, one.mtime_ns, one.mtime_ns), one.size))
        known, _ = self._offer_new(given.uri, rows)
        self._folders.setdefault(given.uri, _Folder()).taken = np.sort(known)
        has_news = first or self.has_more or len(self._offered) > before
        factor = FAR_PAUSE_FACTOR_MAX
        pause_s = self._every_s if has_news else min(2 * pause_s, factor * self._every_s)
        self._due[given] = now_s if self.has_more else now_s + pause_s, pause_s

    # --- files ---

    def _offer_new(self, folder: str, rows: list[_Row]) -> tuple[Hashes, bool]:
        """Offer those that were not taken; the hashes of the others, and whether these are all."""
        if not rows:
            return _NONE, True
        states = [hash((name, state)) & 0xFFFF_FFFF_FFFF_FFFF for name, state, _ in rows]
        hashes = np.array(states, dtype=np.uint64)
        taken = self._folders.setdefault(folder, _Folder()).taken
        is_known = np.zeros(len(rows), dtype=np.bool_)
        if len(taken):
            at = np.minimum(np.searchsorted(taken, hashes), len(taken) - 1)
            is_known = taken[at] == hashes
        now_ns, now_s = time.time_ns(), time.monotonic()
        for row in np.flatnonzero(~is_known).tolist():
            if len(self._offered) >= OFFERED_MAX:
                self.has_more = True
                break
            name, state, size = rows[row]
            newest_ns = max(state[-2:])
            if not self._is_settled(str(name), states[row], now_ns - newest_ns, now_s):
                continue
            aside = self._aside.get(str(name))
            if aside is not None and aside.state == states[row] and now_s < aside.until_s:
                continue
            path = Path(name) if isinstance(name, str) else name
            self._offered[path] = Changed(path, size, newest_ns, states[row], folder)
        return hashes[is_known], bool(is_known.all())

    def _is_settled(self, name: str, state: int, age_ns: int, now_s: float) -> bool:
        """Whether a file was left alone for long enough; by our own clock where its time is in
        the future, as on a stick that was written in another zone."""
        if age_ns >= 0:
            return age_ns >= self._settle_s * _NS
        before = self._from_the_future.get(name)
        if before is None or before[0] != state:
            if len(self._from_the_future) >= SET_ASIDE_MAX:
                self._from_the_future.clear()
            self._from_the_future[name] = state, now_s
            return self._settle_s <= 0
        return now_s - before[1] >= self._settle_s


# Where a file lies, its state and its size.
_Row = tuple[str | Remote, tuple[int, ...], int]


def _state_of(info: os.stat_result) -> tuple[int, ...]:
    """What changes when a file does, its times last."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def is_input(one: Changed) -> bool:
    """Whether an ingest reads the file: by its name, but a body by its beginning. One that was
    given by itself has any name."""
    return not inputs.may_have_segments(one.path.name) or inputs.has_segments(one.path)


def is_gone(one: Changed) -> bool:
    """Whether the file is not there any more."""
    return not one.path.exists()


def is_as_it_was(one: Changed) -> bool:
    """Whether the file is in the state in which it was looked at; a store is not asked."""
    if isinstance(one.path, Remote):
        return True
    try:
        info = one.path.stat()
    except OSError:
        return False
    return info.st_size == one.size and max(_state_of(info)[-2:]) == one.changed_ns
