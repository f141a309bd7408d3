"""One plugged stick: mounted, exchanged with, unmounted, and then said to be safe to unplug.

Runs as root by drupelet-stick@.service. The exchange is `drupelet stick` as the service's user, by
the running agent or without one; the file system is left before "safe to unplug" is said.
"""

import json
import logging
import os
import pwd
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drupelet_host.base.output import counted
from drupelet_host.service.led import Led
from drupelet_host.service.units import ServiceError

RUNTIME = Path("/run/drupelet-stick")
# The folder that makes a USB stick ours where no label does.
FOLDER = "DRUPELET"
# What a stick of strangers may not bring: programs that run, devices, another user's rights.
_OPTIONS = "nosuid,nodev,noexec,noatime"
# File systems without owners: the service's user gets them.
_OWNERLESS = ("vfat", "exfat", "msdos", "ntfs3")
_MOUNT_S_MAX = 60.0
# As long as a stick may take for all that its room can hold; a pulled one fails at once.
_VISIT_S_MAX = 800.0
_UNMOUNT_S_MAX = 300.0

log = logging.getLogger("drupelet.stick")


@dataclass
class Result:
    """What became of one stick. is_ours: False for a stick that is left alone."""

    device: str
    is_ours: bool = True
    is_safe: bool = False
    problems: list[str] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """One line for the console and the log."""
        name = self.device.removeprefix("/dev/")
        if not self.is_ours:
            return f"{name}: has no folder {FOLDER}; left alone"
        parts = [f"drupelet: {name}"]
        if self.report:
            parts.append(
                f"{counted(self.report['messages'], 'new message')},"
                f" {counted(self.report['bundles_written'], 'file')} written"
            )
        parts += self.problems
        return ": ".join(parts[:2]) + "".join(f"; {part}" for part in parts[2:]) + (
            "; safe to unplug" if self.is_safe else "; NOT safe to unplug"
        )  # fmt: skip


def exchange(
    device: str, home: Path, user: str, led: Led, only_with_folder: bool, runtime: Path = RUNTIME
) -> Result:
    """Mount, visit, unmount. Raises ServiceError when there is no such user or device."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise ServiceError(f"{user}: no such user; `drupelet service install` makes it") from None
    if not Path(device).is_block_device():
        raise ServiceError(f"{device}: is no block device")
    result = Result(device)
    place = runtime / Path(device).name
    runtime.mkdir(mode=0o755, parents=True, exist_ok=True)
    place.mkdir(mode=0o755, exist_ok=True)
    led.busy()
    try:
        options = mount_options(device, account)
        wrong = _command(["mount", "-o", options, "--", device, str(place)], _MOUNT_S_MAX)
        if wrong:
            result.problems.append(wrong)
            result.is_safe = True  # nothing was written to it
            led.failed()
            return result
        if only_with_folder and not (place / FOLDER).is_dir():
            result.is_ours = False
        else:
            _visit(result, place, home, account)
        os.sync()
        wrong = _command(["umount", "--", str(place)], _UNMOUNT_S_MAX)
        result.is_safe = not wrong
        result.problems += [wrong] * bool(wrong)
    finally:
        if not os.path.ismount(place):
            place.rmdir()
    if not result.is_ours:
        led.restore()
    elif result.is_safe and result.report:
        led.safe()
    else:
        led.failed()
    return result


def mount_options(device: str, account: pwd.struct_passwd) -> str:
    """What `mount -o` is given; a file system without owners gets this account as its owner."""
    kind = subprocess.run(
        ["blkid", "-o", "value", "-s", "TYPE", "--", device],
        capture_output=True, text=True, check=False, timeout=_MOUNT_S_MAX,
    ).stdout.strip()  # fmt: skip
    if kind not in _OWNERLESS:
        return _OPTIONS
    return f"{_OPTIONS},uid={account.pw_uid},gid={account.pw_gid},umask=0077"


def _visit(result: Result, place: Path, home: Path, account: pwd.struct_passwd) -> None:
    """Have the agent, or this user without one, exchange with the mounted stick."""
    words = [sys.executable, "-m", "drupelet_host", "stick", str(place), "--home", str(home),
             "--json"]  # fmt: skip
    is_other = account.pw_uid != os.geteuid()
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=_VISIT_S_MAX, cwd="/",
            user=account.pw_uid if is_other else None, group=account.pw_gid if is_other else None,
            extra_groups=[] if is_other else None,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        result.problems.append(f"the visit did not end well ({error})")
        return
    try:
        report = json.loads(done.stdout)
        result.problems += [str(problem) for problem in report["problems"]]
        result.report = report
    except (ValueError, KeyError, TypeError):
        last = (done.stderr.strip() or "no report").splitlines()[-1]
        result.problems.append(last)


def _command(words: Sequence[str], wait_s: float) -> str:
    """Run it; one line about what went wrong, "": nothing did."""
    log.info("%s", " ".join(words))
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=wait_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{words[0]}: {error}"
    if not done.returncode:
        return ""
    return (done.stderr.strip() or f"{words[0]} failed").splitlines()[0]
