"""Installing the service: files below a root, then what systemd and udev are told of them."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from drupelet_host.base.atomic_write import atomic_write
from drupelet_host.service.units import AGENT_UNIT, UNITS, Plan, ServiceError

# Where systemd says that it is what runs this machine (sd_booted(3)).
_BOOTED = Path("/run/systemd/system")
_FILE_MODE = 0o644
_COMMAND_S_MAX = 120.0


def check_machine(booted: Path = _BOOTED) -> None:
    """Raise ServiceError where no service can be installed."""
    if not booted.is_dir():
        raise ServiceError(
            "systemd does not run this machine; start `drupelet agent` by what does, or write the"
            " files elsewhere with --root DIR"
        )
    if os.geteuid() != 0:
        raise ServiceError("only root can install a service; run it with sudo")


def check_python(python: Path) -> None:
    """Raise ServiceError when another user cannot run the interpreter."""
    for path in (python, python.resolve(), *python.parents, *python.resolve().parents):
        mode = path.stat().st_mode
        if not mode & stat.S_IXOTH:
            raise ServiceError(
                f"{path}: others may not enter it, and the service has a user of its own; install"
                " drupelet where everybody can read it, as in a venv below /opt"
            )


def write(plan: Plan, root: Path) -> list[Path]:
    """Write the files below a root; their paths. Raises ServiceError."""
    plan.check()
    written = []
    for name, content in plan.files().items():
        path = root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, content, durable=True, mode=_FILE_MODE)
            path.chmod(_FILE_MODE)  # whatever the umask is
        except OSError as error:
            raise ServiceError(f"{path}: cannot be written ({error.strerror})") from error
        written.append(path)
    return written


def remove(plan: Plan, root: Path) -> list[Path]:
    """Take the files away again; those that were there."""
    removed = []
    for name in plan.files():
        with suppress(FileNotFoundError):
            try:
                (root / name).unlink()
            except PermissionError as error:
                raise ServiceError(f"{root / name}: {error.strerror}") from error
            removed.append(root / name)
    return removed


def start(plan: Plan) -> Iterator[str]:
    """Make the user, and have systemd and udev take the files up; a line for each step."""
    yield from _run("systemd-sysusers")
    yield from _run("systemctl", "daemon-reload")
    if shutil.which("udevadm"):
        yield from _run("udevadm", "control", "--reload")
    yield from _run("systemctl", "enable", AGENT_UNIT)
    if (plan.home / "drupelet.toml").exists():
        yield from _run("systemctl", "restart", AGENT_UNIT)


def stop() -> Iterator[str]:
    """Stop and disable the service, while its files are there."""
    if (Path("/") / UNITS / AGENT_UNIT).exists():
        yield from _run("systemctl", "disable", "--now", AGENT_UNIT)


def forget() -> Iterator[str]:
    """Have systemd and udev forget the files that were removed."""
    yield from _run("systemctl", "daemon-reload")
    if shutil.which("udevadm"):
        yield from _run("udevadm", "control", "--reload")


def _run(*words: str) -> Iterator[str]:
    """Run one command; raises ServiceError with its last line."""
    yield " ".join(words)
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=_COMMAND_S_MAX
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceError(f"{' '.join(words)}: {error}") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "failed").splitlines()[-1]
        raise ServiceError(f"{' '.join(words)}: {last}")


def next_steps(plan: Plan) -> list[str]:
    """What is left to a person."""
    if (plan.home / "drupelet.toml").exists():
        return [f"systemctl status {AGENT_UNIT}"]
    verb = f"sudo -u {plan.user} {plan.python} -m drupelet_host"
    return [
        f"sudo install -d -m 700 -o {plan.user} {plan.home}",
        f"{verb} init --home {plan.home} --name NAME --group GROUP",
        f"sudo systemctl start {AGENT_UNIT}",
    ]
