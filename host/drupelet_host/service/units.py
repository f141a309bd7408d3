"""The files that make the agent a service: two units, a rule of udev, and the service's user."""

from dataclasses import dataclass
from pathlib import Path

from drupelet.base.errors import DrupeletError

AGENT_UNIT = "drupelet-agent.service"
STICK_UNIT = "drupelet-stick@.service"
UNITS = Path("etc/systemd/system")
RULE = Path("etc/udev/rules.d/90-drupelet-stick.rules")
SYSUSERS = Path("etc/sysusers.d/drupelet.conf")
STATE_ROOT = Path("/var/lib")
# What systemd.syntax(7) and a rule of udev take without quoting.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+")
_USER_SIZE_MAX = 31
_LABEL_SIZE_MAX = 32
# A frame waits for its turn at most so long while a stick of many long messages is visited.
_WATCHDOG_S = 120


class ServiceError(DrupeletError):
    """The service cannot be installed so; the text says why and what to do."""


@dataclass(frozen=True)
class Plan:
    """What the service is to be.

    label: of the sticks that are exchanged with; "" for each USB stick that has a folder DRUPELET
    already. led: its name in /sys/class/leds, "" for none.
    """

    home: Path
    user: str = "drupelet"
    python: Path = Path("/usr/bin/python3")
    label: str = "DRUPELET"
    led: str = ""

    def check(self) -> None:
        """Raise ServiceError for what cannot stand in a unit or a rule."""
        for name, value, size_max in (
            ("--home", str(self.home), 4096), ("the interpreter", str(self.python), 4096),
            ("--user", self.user, _USER_SIZE_MAX), ("--stick-label", self.label, _LABEL_SIZE_MAX),
            ("--led", self.led.replace(":", ""), 64),
        ):  # fmt: skip
            if not set(value) <= _PLAIN or len(value) > size_max:
                raise ServiceError(
                    f"{name}: {value!r}: only letters, digits and / . _ - + can stand in a unit,"
                    f" {size_max} at most; choose another"
                )
        if not self.home.is_absolute() or ".." in self.home.parts:
            raise ServiceError(f"--home: {self.home}: must be a whole path, from / on")
        if not self.user or self.user[0] in "-." or "/" in self.user:
            raise ServiceError(f"--user: {self.user!r}: is no user's name")

    def files(self) -> dict[Path, str]:
        """Path below / -> content."""
        return {
            UNITS / AGENT_UNIT: self._agent(),
            UNITS / STICK_UNIT: self._stick(),
            RULE: self._rule(),
            SYSUSERS: self._sysusers(),
        }

    def _agent(self) -> str:
        state = ""
        if self.home.is_relative_to(STATE_ROOT) and self.home != STATE_ROOT:
            name = self.home.relative_to(STATE_ROOT)
            state = f"StateDirectory={name}\nStateDirectoryMode=0700\n"
        in_homes = any(
            path.is_relative_to(folder)
            for path in (self.home, self.python)
            for folder in (Path("/home"), Path("/root"))
        )
        return f"""\
[Unit]
Description=Drupelet agent
After=network.target
ConditionPathExists={self.home}/drupelet.toml

[Service]
Type=notify
NotifyAccess=main
ExecStart={self.python} -m drupelet_host agent --home {self.home} --wait -v
User={self.user}
SupplementaryGroups=dialout
{state}RuntimeDirectory=drupelet
RuntimeDirectoryMode=0700
UMask=0077
Restart=on-failure
RestartSec=5
TimeoutStartSec=300
TimeoutStopSec=60
WatchdogSec={_WATCHDOG_S}

NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=full
ProtectHome={"no" if in_homes else "yes"}
PrivateTmp=yes
DevicePolicy=closed
DeviceAllow=char-ttyUSB rw
DeviceAllow=char-ttyACM rw
DeviceAllow=char-ttyAMA rw
DeviceAllow=char-ttyS rw
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""

    def _stick(self) -> str:
        options = f"--home {self.home} --user {self.user}"
        options += "" if self.label else " --only-with-folder"
        led = f" --led {self.led}" if self.led else ""
        verb = f"{self.python} -m drupelet_host service"
        # No option here may give the unit its own mount table: the agent has to see the stick.
        return f"""\
[Unit]
Description=Drupelet messages over the USB stick %I
BindsTo=dev-%i.device
After=dev-%i.device {AGENT_UNIT}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={verb} stick /dev/%I {options}{led}
ExecStop={verb} stick-gone{led}
StandardOutput=journal+console
TimeoutStartSec=900
NoNewPrivileges=yes
CapabilityBoundingSet=CAP_SYS_ADMIN CAP_SETUID CAP_SETGID CAP_DAC_OVERRIDE
RestrictAddressFamilies=AF_UNIX
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native
"""

    def _rule(self) -> str:
        label = f', ENV{{ID_FS_LABEL}}=="{self.label}"' if self.label else ""
        return (
            "# A USB stick is mounted, exchanged with and unmounted by drupelet-stick@.service.\n"
            'ACTION=="add", SUBSYSTEM=="block", ENV{ID_BUS}=="usb",'
            f' ENV{{ID_FS_USAGE}}=="filesystem"{label},'
            ' TAG+="systemd", ENV{SYSTEMD_WANTS}+="drupelet-stick@%k.service"\n'
        )

    def _sysusers(self) -> str:
        return f'u {self.user} - "Drupelet agent" {self.home}\n'
