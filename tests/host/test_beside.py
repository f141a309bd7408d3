"""`drupelet init --beside`: five commands, and a message has travelled over a stick."""

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from drupelet_host.cli.app import app
from drupelet_host.home import config


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stick").mkdir()
    assert run("init", "--home", "well", "--name", "well", "--group", "orchard").exit_code == 0
    return tmp_path


def test_a_message_travels_after_five_commands(homes: Path) -> None:
    assert run("init", "--home", "farm", "--name", "farm", "--beside", "well").exit_code == 0
    assert run("put", "--home", "well", "41 cm").exit_code == 0
    assert run("stick", "stick", "--home", "well").exit_code == 0
    visit = run("stick", "stick", "--home", "farm")
    assert visit.exit_code == 0 and "1 new message)" in visit.output
    assert "41 cm" in run("log", "--home", "farm").output
    one, other = (config.load(homes / name) for name in ("well", "farm"))
    assert one.group == other.group == "orchard"
    assert [peer.id for peer in one.peers] == [other.id]
    assert [peer.id for peer in other.peers] == [one.id]
    for home in (one, other):
        for file in home.keys_path.rglob("*"):
            assert not stat.S_IMODE(file.stat().st_mode) & 0o077


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--name", "well", "--beside", "well"), "knows a member of that name"),
        (("--name", "farm", "--beside", "well", "--group", "x"), "leave --group out"),
        (("--name", "farm", "--beside", "nowhere"), "no such file"),
        (("--name", "farm"), "--group is missing"),
    ],
)
def test_what_is_refused_makes_nothing(
    homes: Path, arguments: tuple[str, ...], reason: str
) -> None:
    before = (homes / "well/drupelet.toml").read_text()
    done = run("init", "--home", "farm", *arguments)
    assert done.exit_code != 0
    assert reason in " ".join((done.output + str(done.exception or "")).split())
    assert not (homes / "farm").exists()
    assert (homes / "well/drupelet.toml").read_text() == before
