"""Fixtures for every room: compiled firmware, both interpreters, loopback as the only network."""

import gc
import signal
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer
import typer.testing

import tiers
from drupelet_tools.flash import rom
from drupelet_tools.flash.build import build, micropython_command
from drupelet_tools.flash.sets import Choice, build_set
from drupelet_tools.sim import hoststore
from opened import opened, resources
from tiers import (
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_xdist_make_scheduler,
)

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_xdist_make_scheduler",
]

ARCHES = ("x64", "x86")


def pytest_configure(config: pytest.Config) -> None:
    """Ctrl-C counts for what tests start, too: a shell without job control has what it starts in
    the background ignore it, and a process leaves that to its children."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    tiers.configure(config)


# New objects that may come before the garbage collector looks at them, instead of 700: most are
# gone by then without it.
GC_THRESHOLD = 20_000


def pytest_collection_finish() -> None:
    gc.set_threshold(GC_THRESHOLD)
    keep_what_is_loaded()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is not None and nextitem.path != item.path:
        keep_what_is_loaded()


def keep_what_is_loaded() -> None:
    """What a process has by now stays, such as modules, and trees of sources: the garbage
    collector need not look at them time and again. The code of boards calls it in each turn."""
    gc.collect()
    gc.freeze()


def _is_local(address: object) -> bool:
    if not isinstance(address, tuple):
        return True
    host = str(address[0]).partition("%")[0]
    if host in ("", "localhost"):
        return True
    try:
        ip = ip_address(host)
    except ValueError:
        return False
    return ip.is_loopback or ip.is_multicast or ip.is_unspecified


@pytest.fixture(autouse=True)
def close_resources() -> Iterator[None]:
    """Close what the test's helpers opened."""
    yield
    resources.close()


@pytest.fixture(autouse=True)
def close_simulated_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Close the databases of simulated hosts when the test ends: a world that broke a rule, or
    was stopped, is dropped as it is."""
    plain = hoststore.open_in_memory
    monkeypatch.setattr(hoststore, "open_in_memory", lambda path: opened(plain(path)))


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that connects or sends to another machine."""

    def guarded(name: str) -> None:
        plain = getattr(socket.socket, name)

        def call(self: socket.socket, *args: object) -> object:
            address = args[-1] if args else None
            assert _is_local(address), f"{name} to {address}: tests talk over loopback only"
            return plain(self, *args)

        monkeypatch.setattr(socket.socket, name, call)

    for name in ("connect", "connect_ex", "sendto"):
        guarded(name)


@pytest.fixture(scope="session", autouse=True)
def build_command_lines_once() -> Iterator[None]:
    """Build the command line of an app when it is called first: that takes longer than most calls,
    and Typer does it for each. An app that has got more commands since is built again."""
    commands: dict[tuple[object, int, int], Any] = {}

    def command_of(app: typer.Typer) -> Any:
        state = (app, len(app.registered_commands), len(app.registered_groups))
        if state not in commands:
            commands[state] = plain(app)
        return commands[state]

    plain = typer.main.get_command
    with (
        mock.patch.object(typer.main, "get_command", command_of),
        mock.patch.object(typer.testing, "_get_command", command_of),
    ):
        yield


@pytest.fixture(scope="session", params=ARCHES)
def arch(request: pytest.FixtureRequest) -> str:
    """Run the test on each MicroPython: x64, and x86 whose objects are a Cortex-M's."""
    return str(request.param)


@pytest.fixture(scope="session")
def micropython(arch: str) -> list[str]:
    """Return the command of the interpreter for `arch`."""
    return micropython_command(arch)


@pytest.fixture(scope="session")
def firmware(arch: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of the compiled firmware for `arch`, made once for the session."""
    target = tmp_path_factory.mktemp(f"firmware-{arch}")
    assert build(target, arch) > 0
    return target


@pytest.fixture(scope="session")
def full_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the ROMFS image of the set `full`, as the demo's boards run it, made once."""
    target = tmp_path_factory.mktemp("full")
    build_set(target, "x86", Choice("full"), in_place=True)
    return rom.write(target)
