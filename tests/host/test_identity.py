"""Another `group`, an edited `id`: told by status, doctor and visit, and refused at the start."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet_host.home.config import Peer
from drupelet_host.view import doctor
from host.conftest import Cable, Home, share_keys, wait_for

MakeHome = Callable[..., Home]
A, B = 0xA0000001, 0xB0000002
A_ID, B_ID = A.to_bytes(4), B.to_bytes(4)
REFUSED = "1 message of no group of ours, dropped"


def edit(home: Home, before: str, after: str) -> None:
    path = home.path / "drupelet.toml"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def checks(home: Home, state: str) -> dict[str, str]:
    return {
        check.name: f"{check.text} -> {check.remedy}"
        for check in doctor.examine(home.path)
        if check.state == state
    }


@pytest.fixture
def pair(make_home: MakeHome) -> tuple[Home, Home]:
    a = make_home("a", A, Peer("b", B_ID, "stick:"))
    b = make_home("b", B, Peer("a", A_ID, "stick:"))
    share_keys(a, b)
    return a, b


def test_a_visit_names_who_is_in_another_group(pair: tuple[Home, Home], tmp_path: Path) -> None:
    a, b = pair
    edit(b, 'group = "orchard"', 'group = "orchards"')
    (tmp_path / "usb").mkdir()
    a.put("for the orchard")
    assert a.run("stick", str(tmp_path / "usb")).returncode == 0
    visit = b.run("stick", str(tmp_path / "usb"))
    assert "0 new messages" in visit.stdout and "safe to unplug" in visit.stdout
    assert f"a: {REFUSED}" in visit.stderr and "'orchards'" in visit.stderr
    (row,) = b.status()["peers"]
    assert row["foreign"] == 1
    assert f"a: {REFUSED}" in b.run("status").stdout
    assert REFUSED in checks(b, doctor.WARN)["group"]
    assert "group" not in checks(a, doctor.WARN)
    # b wrote no reading of its own yet, so it may join the right group, and gets the message.
    edit(b, 'group = "orchards"', 'group = "orchard"')
    a.run("stick", str(tmp_path / "usb"))
    assert "1 new message)" in b.run("stick", str(tmp_path / "usb")).stdout


def test_an_agent_counts_what_comes_from_another_group(make_home: MakeHome, cable: Cable) -> None:
    a = make_home("a", A, Peer("b", B_ID, cable.url(0, plain=False), "batch", 100))
    b = make_home("b", B, Peer("a", A_ID, cable.url(1, plain=False), "batch", 100))
    share_keys(a, b)
    edit(b, 'group = "orchard"', 'group = "orchards"')
    a.put("for the orchard")
    a.start()
    b.start()
    wait_for(lambda: b.status()["peers"][0]["foreign"] > 0, "the count")
    assert b.status()["delivered"] == 0
    assert "of no group of ours, dropped" in checks(b, doctor.WARN)["group"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (f'id = "{A:08x}"', 'id = "a0000009"', 'put id = "a0000001" back'),
        ('group = "orchard"', 'group = "vineyard"', "is of 'orchard'; put it back"),
        ("epoch_ms", 'client = "public"\nepoch_ms', "client was changed"),
    ],
)
def test_a_home_that_no_longer_fits_its_store_does_not_start(
    make_home: MakeHome, tmp_path: Path, before: str, after: str, message: str
) -> None:
    home = make_home("a", A)
    (tmp_path / "usb").mkdir()
    home.put("begun")
    assert home.run("stick", str(tmp_path / "usb")).returncode == 0
    edit(home, before, after)
    for words in (
        ("agent",),
        ("stick", str(tmp_path / "usb")),
        ("log",),
        ("status",),
        ("put", "x"),
    ):
        refused = home.run(*words)
        assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1, refused.stderr
        assert message in refused.stderr and "drupelet init --home" in refused.stderr
    assert message in checks(home, doctor.FAIL)["identity"]
    assert json.loads(home.run("doctor", "--json").stdout)["state"] == doctor.FAIL
    edit(home, after, before)
    assert home.run("stick", str(tmp_path / "usb")).returncode == 0
    assert len(home.log()) == 1


def test_keys_bind_an_id_before_there_are_messages(
    pair: tuple[Home, Home], tmp_path: Path
) -> None:
    a, _ = pair
    (tmp_path / "usb").mkdir()
    assert a.run("stick", str(tmp_path / "usb")).returncode == 0
    edit(a, f'id = "{A:08x}"', 'id = "a0000009"')
    assert "put id" in a.run("stick", str(tmp_path / "usb")).stderr
