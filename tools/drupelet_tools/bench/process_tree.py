"""CPU time and memory of a process with all that it has started, from /proc."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from drupelet_tools.bench.errors import BenchError

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SAMPLE_S = 0.25
_JVM = "java"
# Fields of /proc/PID/stat behind the name: parent, user, system, those of children reaped, pages.
_PARENT, _USER, _SYSTEM, _CHILD_USER, _CHILD_SYSTEM, _PAGES = 1, 11, 12, 13, 14, 21
_NAME = -1  # put behind them


def _stats() -> dict[int, list[str]]:
    stats = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue
            # The name may hold anything; what follows its bracket is numbers.
            head, _, numbers = text.rpartition(")")
            stats[int(folder.name)] = [*numbers.split(), head.partition("(")[2]]
    return stats


def _tree(root: int) -> dict[int, list[str]]:
    """The stats of a process and its descendants, parents before their children."""
    stats = _stats()
    children: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[_PARENT]), []).append(pid)
    queue, tree = [root], {}
    while queue:
        pid = queue.pop()
        if pid in stats:
            tree[pid] = stats[pid]
        queue += children.get(pid, [])
    return tree


def named(root: int, word: str) -> list[int]:
    """Descendants of a process with a word in their command line, parents first."""
    pids = []
    for pid in _tree(root):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
        except OSError:
            continue
        if word in line and pid != root:
            pids.append(pid)
    return pids


def cpu_s(root: int) -> float:
    """CPU seconds of a process, of its descendants, and of those of them that have ended."""
    ticks = 0
    for fields in _tree(root).values():
        ticks += sum(int(fields[at]) for at in (_USER, _SYSTEM, _CHILD_USER, _CHILD_SYSTEM))
    return ticks / _TICKS


def memory_mb(root: int, name: str = "") -> float:
    """Resident memory of a process and its descendants; shared pages count for each.

    With a `name` only those processes count that are called so.
    """
    counted = [row for row in _tree(root).values() if name in ("", row[_NAME])]
    return sum(int(fields[_PAGES]) for fields in counted) * _PAGE / 2**20


def peak_mb(pid: int) -> float:
    """Highest resident memory of one process so far, as the system keeps it."""
    lines = Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines()
    (size_kb,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(size_kb) / 1024


def written_bytes(pid: int) -> int:
    """Bytes that one process had the kernel write to a disk so far."""
    return _counter(pid, "io", "write_bytes:")


def wakes(pid: int) -> int:
    """How often one process has gone to sleep so far, to be woken."""
    return _counter(pid, "status", "voluntary_ctxt_switches:")


def _counter(pid: int, name: str, head: str) -> int:
    lines = Path(f"/proc/{pid}/{name}").read_text("utf-8", "replace").splitlines()
    (count,) = (int(line.split()[1]) for line in lines if line.startswith(head))
    return count


class Peak:
    """Watches the memory of a process tree until it is told to stop."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.mb = 0.0
        self.jvm_mb = 0.0  # the JVMs alone, at their own highest
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            self.mb = max(self.mb, memory_mb(self.root))
            self.jvm_mb = max(self.jvm_mb, memory_mb(self.root, _JVM))

    def stop(self) -> None:
        """End watching; `mb` and `jvm_mb` are the highest that were seen."""
        self._stop.set()
        self._thread.join()


def run(
    name: str, words: Sequence[str], env: Mapping[str, str], timeout_s: int
) -> tuple[str, Peak]:
    """Run a command to its end; what it printed, and the memory that it and its children took.

    Raises:
        BenchError: it failed, or is not done in time; `name` is what it is called there.
    """
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env},
    )  # fmt: skip
    peak = Peak(process.pid)
    try:
        output, complaint = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise BenchError(f"{name}: not done in {timeout_s} s") from None
    finally:
        peak.stop()
    if process.returncode:
        lines = complaint.strip().splitlines() or ["no reason given"]
        raise BenchError(f"{name}: {lines[-1]}")
    return output, peak
