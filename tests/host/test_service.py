"""The agent as a service: its units, what systemd hears of it, its log, and a plugged stick."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drupelet_host.agent.supervisor import Supervisor
from drupelet_host.home.config import Peer
from drupelet_host.service import install, stick_mount
from drupelet_host.service.led import Led
from drupelet_host.service.units import Plan, ServiceError
from drupelet_tools.terminal import Terminal
from host.conftest import COMMAND, Home, share_keys, wait_for

MakeHome = Callable[..., Home]
A, B = 0xA0000001, 0xB0000002
STICK_SIZE = 4 << 20


def service(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, "service", *words], capture_output=True, text=True, timeout=120, check=False
    )


# --- the files ---


@pytest.mark.parametrize(
    "plan",
    [
        Plan(Path("/var/lib/drupelet"), python=Path(sys.executable)),
        Plan(Path("/srv/sync"), "pi", Path(sys.executable), "", "led0"),
        Plan(Path("/home", "pi", "drupelet"), "pi", Path(sys.executable), "OURS"),
    ],
)
def test_systemd_takes_the_units(plan: Plan, tmp_path: Path) -> None:
    for path in install.write(plan, tmp_path):
        assert path.stat().st_mode & 0o777 == 0o644
    units = tmp_path / "etc/systemd/system"
    (units / "drupelet-stick@.service").rename(units / "drupelet-stick@sdb1.service")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, sorted(units.iterdir()))],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    # Of keys that it does not know it only warns.
    said = [line for line in done.stderr.splitlines() if str(units) in line]
    assert (done.returncode, said) == (0, []), done.stderr
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=20",
         str(units / "drupelet-agent.service")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-300:]


def test_the_rule_starts_the_unit_for_a_usb_stick_of_the_label() -> None:
    rule = Plan(Path("/h")).files()[Path("etc/udev/rules.d/90-drupelet-stick.rules")]
    (line,) = (line for line in rule.splitlines() if not line.startswith("#"))
    parts = [re.fullmatch(r'([A-Z]+(?:\{\w+\})?)(==|\+=)"([^"]*)"', p) for p in line.split(", ")]
    pairs = {match[1]: (match[2], match[3]) for match in parts if match}
    assert len(pairs) == line.count(", ") + 1 == 7
    assert pairs["ENV{ID_BUS}"] == ("==", "usb")
    assert pairs["ENV{ID_FS_LABEL}"] == ("==", "DRUPELET")
    assert pairs["ENV{SYSTEMD_WANTS}"] == ("+=", "drupelet-stick@%k.service")
    anything = Plan(Path("/h"), label="").files()
    assert "LABEL" not in anything[Path("etc/udev/rules.d/90-drupelet-stick.rules")]
    assert "--only-with-folder" in anything[Path("etc/systemd/system/drupelet-stick@.service")]


def test_udev_takes_the_rule(tmp_path: Path) -> None:
    """Each rule is a list of keys, operators and quoted values (udev(7)); from 254 on udevadm says
    so itself."""
    install.write(Plan(Path("/var/lib/drupelet")), tmp_path)
    rule = tmp_path / "etc/udev/rules.d/90-drupelet-stick.rules"
    comment, line = rule.read_text().splitlines()
    assert comment.startswith("#")
    for part in line.split(", "):
        assert re.fullmatch(r'[A-Z_]+(\{[^}"]+\})?(==|!=|\+=|:?=)"[^"]*"', part), part
    if shutil.which("udevadm"):
        version = subprocess.run(["udevadm", "--version"], capture_output=True, check=True).stdout
        if int(version) >= 254:
            subprocess.run(["udevadm", "verify", str(rule)], check=True)


@pytest.mark.parametrize(
    ("plan", "what"),
    [
        (Plan(Path("/var/lib/a b")), "--home"),
        (Plan(Path("/var/lib/%i")), "--home"),
        (Plan(Path("var/lib")), "--home"),
        (Plan(Path("/var/../etc")), "--home"),
        (Plan(Path("/h"), 'root"\nUser=root'), "--user"),
        (Plan(Path("/h"), ""), "--user"),
        (Plan(Path("/h"), label='X", RUN+="/bin/sh'), "--stick-label"),
        (Plan(Path("/h"), led="a;b"), "--led"),
    ],
)
def test_what_a_unit_cannot_hold_is_refused(plan: Plan, what: str, tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=what):
        install.write(plan, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_install_and_uninstall_elsewhere(tmp_path: Path) -> None:
    done = service("install", "--root", str(tmp_path), "--stick-label", "FARM")
    assert (done.returncode, done.stdout.count("wrote ")) == (0, 4), done.stderr
    shown = service("install", "--print", "--stick-label", "FARM").stdout
    for path in sorted(path for path in tmp_path.rglob("*") if path.is_file()):
        assert path.read_text() in shown
    done = service("uninstall", "--root", str(tmp_path))
    assert (done.returncode, done.stdout.count("removed ")) == (0, 4)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert service("uninstall", "--root", str(tmp_path)).stdout == (
        "nothing of the service was there\n"
    )


def test_without_systemd_or_root_it_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ServiceError, match=r"systemd does not run this machine.*--root"):
        install.check_machine(tmp_path / "none")
    monkeypatch.setattr(install.os, "geteuid", lambda: 1000)
    with pytest.raises(ServiceError, match=r"only root.*sudo"):
        install.check_machine(tmp_path)


def test_an_interpreter_that_others_cannot_enter_is_refused(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "python"
    python.parent.mkdir(mode=0o700)
    python.touch(mode=0o755)
    with pytest.raises(ServiceError, match=r"others may not enter it.*/opt"):
        install.check_python(python)


# --- what systemd hears ---


@pytest.fixture
def notify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "900000")
        yield made


def test_systemd_hears_ready_alive_and_stopping(
    notify: socket.socket, make_home: MakeHome
) -> None:
    home = make_home("a", A)
    path = home.path / "drupelet.toml"
    path.write_text(path.read_text().replace("epoch_ms = 50", "epoch_ms = 60000"))
    home.start()
    assert notify.recv(1000).startswith(b"READY=1\n")
    begun = time.monotonic()
    for _ in range(4):
        assert notify.recv(1000) == b"WATCHDOG=1"
    assert time.monotonic() - begun > 0.9  # three in each period, and no more
    home.stop()
    said = b""
    while said != b"STOPPING=1":
        said = notify.recv(1000)
        assert said in (b"WATCHDOG=1", b"STOPPING=1")


@pytest.mark.parametrize("watchdog", ["", "0", "-5", "soon"])
def test_without_a_watchdog_nothing_is_said(watchdog: str, tmp_path: Path) -> None:
    name = f"@drupelet-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind("\0" + name[1:])
        server.setblocking(False)
        one = Supervisor({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": watchdog}, 0)
        one.alive(100_000)
        assert one.wait_ms(100_000) > 1_000_000
        one.ready("x")
        assert server.recv(100) == b"READY=1\nSTATUS=x"
    Supervisor({"NOTIFY_SOCKET": str(tmp_path / "gone")}, 0).stopping()  # raises nothing
    other = Supervisor({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}, 0)
    assert other.wait_ms(0) > 1_000_000


# --- the log ---


def test_the_log_tells_what_happens_and_no_message(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("a", A, Peer("b", B.to_bytes(4), "stick:"))
    home.start("-v", "--log-json")
    assert home.run("put", "the gate code is 4711").returncode == 0
    wait_for(lambda: home.log(), "the message")  # noqa: PLW0108
    evil = tmp_path / "no\x1b[2Jstick"
    assert home.run("stick", str(evil)).returncode == 1
    home.stop()
    lines = (home.path / "err.txt").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert all(row.keys() == {"time", "level", "logger", "text"} for row in rows)
    assert (
        {"drupelet.event", "drupelet.requests", "drupelet.agent"}
        >= {row["logger"] for row in rows}
        >= {"drupelet.event", "drupelet.agent"}
    )
    texts = " ".join(row["text"] for row in rows)
    assert "VisitStick" in texts and "\\x1b[2J" in texts and "\x1b" not in texts
    assert "4711" not in (home.path / "err.txt").read_text()


def test_without_v_the_log_is_quiet_and_a_refused_client_is_in_it(make_home: MakeHome) -> None:
    home = make_home("a", A)
    home.start()
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(home.path / "agent.sock"))
        one.sendall(b"\x1b[2J\n")
        assert b"not a request" in one.recv(1000)
    home.stop()
    (line,) = (home.path / "err.txt").read_text().splitlines()
    assert "warning drupelet.requests: refused: not a request" in line and "\x1b" not in line


# --- a stick ---


def test_the_light_blinks_stays_on_and_is_given_back(tmp_path: Path) -> None:
    folder, kept = tmp_path / "leds", tmp_path / "kept"
    (folder / "ACT").mkdir(parents=True)
    kept.mkdir()
    trigger, brightness = folder / "ACT" / "trigger", folder / "ACT" / "brightness"
    trigger.write_text("none [mmc0] timer default-on\n")
    (folder / "ACT" / "max_brightness").write_text("255\n")
    led = Led("", kept, folder)
    led.busy()
    assert trigger.read_text() == "timer"
    led.safe()
    assert (trigger.read_text(), brightness.read_text()) == ("default-on", "255")
    led.failed()
    assert (trigger.read_text(), brightness.read_text()) == ("none", "0")
    Led("", kept, folder).restore()  # by another process
    assert trigger.read_text() == "mmc0"
    # Nothing of it is there on most machines.
    other = Led("", kept, tmp_path / "none")
    other.busy(), other.safe(), other.failed(), other.restore()


def _has_vfat() -> bool:
    return bool(shutil.which("mkfs.vfat")) and "vfat" in Path("/proc/filesystems").read_text()


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    """A stick: an image with FAT where the kernel knows it, else with ext4, on a loop device."""
    image = tmp_path / "stick.img"
    image.write_bytes(bytes(STICK_SIZE))
    make = ["mkfs.vfat"] if _has_vfat() else ["mkfs.ext4", "-q", "-m", "0"]
    search = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
    subprocess.run([*make, str(image)], check=True, env=search, capture_output=True)
    done = subprocess.run(
        ["losetup", "--find", "--show", str(image)],
        check=True, env=search, capture_output=True, text=True,
    )  # fmt: skip
    yield done.stdout.strip()
    subprocess.run(["losetup", "--detach", done.stdout.strip()], check=True, env=search)


def _mounts() -> str:
    return Path("/proc/self/mounts").read_text()


def test_a_plugged_stick_is_mounted_exchanged_with_and_left(
    make_home: MakeHome, device: str
) -> None:
    """From a home with an agent to one without, by the command of the unit itself."""
    homes = [
        make_home("a", A, Peer("b", B.to_bytes(4), "stick:")),
        make_home("b", B, Peer("a", A.to_bytes(4), "stick:")),
    ]
    share_keys(*homes)
    homes[0].start()
    homes[0].put("carried")
    wait_for(homes[0].log, "the message")
    for home in homes:
        done = service("stick", device, "--home", str(home.path), "--user", "root")
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith(f"drupelet: {device.removeprefix('/dev/')}: ")
        assert done.stdout.endswith("safe to unplug\n") and "NOT" not in done.stdout
        assert device not in _mounts()
    assert [entry["text"] for entry in homes[1].log()] == ["carried"]
    assert homes[0].events("stick")[-1]["bundles_written"] > 0
    homes[0].stop()


def test_a_stick_of_somebody_else_is_left_alone(make_home: MakeHome, device: str) -> None:
    home = make_home("a", A, Peer("b", B.to_bytes(4), "stick:"))
    words = ("stick", device, "--home", str(home.path), "--user", "root", "--only-with-folder")
    done = service(*words)
    assert (done.returncode, done.stdout) == (
        0, f"{device.removeprefix('/dev/')}: has no folder DRUPELET; left alone\n",
    )  # fmt: skip
    assert device not in _mounts()


def test_a_medium_without_a_file_system_is_told_of(
    make_home: MakeHome, device: str, tmp_path: Path
) -> None:
    home = make_home("a", A)
    (tmp_path / "stick.img").write_bytes(bytes(STICK_SIZE))
    done = service("stick", device, "--home", str(home.path), "--user", "root")
    assert done.returncode == 1 and "mount" in done.stdout
    assert device not in _mounts()


def test_a_visit_that_fails_leaves_the_stick_unmounted(device: str, tmp_path: Path) -> None:
    done = service("stick", device, "--home", str(tmp_path / "none"), "--user", "root")
    assert done.returncode == 1 and "no such file" in done.stdout
    assert done.stdout.endswith("safe to unplug\n") and device not in _mounts()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("/dev/null", "--user", "root"), "no block device"),
        (("/dev/loop0", "--user", "nobody-of-ours"), "no such user; `drupelet service install`"),
    ],
)
def test_what_is_no_stick_is_refused(words: tuple[str, ...], what: str) -> None:
    done = service("stick", *words)
    assert done.returncode == 1 and what in done.stderr and "Traceback" not in done.stderr


def test_owners_are_given_only_where_a_file_system_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    account = stick_mount.pwd.getpwnam("root")
    for kind, expected in (("vfat", ",uid=0,gid=0,umask=0077"), ("ext4", "")):
        answer = subprocess.CompletedProcess([], 0, f"{kind}\n", "")
        monkeypatch.setattr(stick_mount.subprocess, "run", lambda *_, a=answer, **__: a)
        options = stick_mount.mount_options("/dev/x", account)
        assert options == "nosuid,nodev,noexec,noatime" + expected


# --- looking at it ---


def test_status_is_watched_on_a_terminal_and_refused_elsewhere(make_home: MakeHome) -> None:
    home = make_home("a", A, Peer("b", b"bbbb", "stick:"))
    for words in ((), ("--json",)):
        done = home.run("status", "--watch", *words)
        assert done.returncode == 2 and done.stdout == ""
        assert done.stderr == (
            "drupelet: --watch draws on a terminal; use `drupelet status --json` elsewhere\n"
        )
    home.start()
    terminal = Terminal()
    command = [*COMMAND, "status", "--watch", "--home", str(home.path)]
    shown = subprocess.Popen(command, stdout=terminal.device_fd, stderr=subprocess.STDOUT)
    try:
        text = b""
        while text.count(b"agent running") < 2:
            text += os.read(terminal.fd, 65536)
        home.put("new")
        while b"1 message in the log" not in text:
            text += os.read(terminal.fd, 65536)
    finally:
        shown.send_signal(signal.SIGINT)
        assert shown.wait(60) == 130
        terminal.close()
    home.stop()
