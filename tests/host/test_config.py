"""The configuration: what is accepted, and one clear line for everything else."""

import os
import pwd
import re
import threading
from pathlib import Path

import pytest

from drupelet.base.hashes import group_id_into
from drupelet.clients.command import COMMANDS_CLIENT_ID
from drupelet.clients.default import TELEMETRY_CLIENT_ID
from drupelet_host.clients.public import topic_descriptor
from drupelet_host.home import config, edit, edit_lock
from drupelet_host.home.board_kinds import BOARD_UNKNOWN, BOARDS
from drupelet_host.home.client_ids import (
    CARRIERS_CLIENT_ID,
    CHAT_CLIENT_ID,
    FEEDS_CLIENT_ID,
    PUBLIC_CLIENT_ID,
)
from drupelet_host.home.config import Config, ConfigError, Peer
from drupelet_host.home.edit_lock import changing
from drupelet_host.member import family
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.energy import board_table

GOOD = """
name = "host"
id = "0a0b0c0d"
group = "orchard"
[[peers]]
name = "a"
id = "A0000001"
url = "serial:///dev/ttyACM0?baud=115200"
mode = "batch"
epoch_ms = 500
"""


def load(folder: Path, text: str) -> Config:
    (folder / config.CONFIG_NAME).write_text(text)
    return config.load(folder)


def test_a_good_file(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD)
    assert (settings.name, settings.id, settings.group) == ("host", b"\n\x0b\x0c\r", "orchard")
    peer = settings.peers[0]
    assert (peer.id, peer.mode, peer.epoch_ms, peer.carrier) == (
        b"\xa0\0\0\1", "batch", 500, "serial",
    )  # fmt: skip


def test_what_is_rendered_is_read_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    peers = tuple(
        Peer(f"p{n}", n.to_bytes(4), f"stick:///media/{n}", "batch", 100 + n, "esp32")
        for n in range(1, 4)
    )
    made = Config(home, "host", b"\1\2\3\4", 'a "quoted" \\ group\n\x7f é', 70, bytes(32), peers)
    config.create(made)
    assert config.load(home) == made
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_home_is_not_replaced(tmp_path: Path) -> None:
    made = Config(tmp_path / "home", "host", b"\0\0\0\1", "g")
    config.create(made)
    with pytest.raises(ConfigError, match="is there already"):
        config.create(made)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "name: missing"),
        ("name = 5", "name: must be a text"),
        ("nonsense", "not valid TOML"),
        ("epoch_ms = " + "9" * 5_000, "not valid TOML"),
        ("\xff", "not valid TOML"),
        (GOOD.replace('"0a0b0c0d"', '"xyz"'), "id: must be 8 hex digits"),
        (GOOD.replace('"host"', '"a b"'), "name: use 1 to 32 letters"),
        (GOOD.replace('"batch"', '"slow"'), "peer 1: mode: must be one of interactive, batch"),
        (GOOD.replace("500", "5"), "peer 1: epoch_ms: must be a whole number from 20"),
        (GOOD + 'profile = "bsp-2"', "peer 1: profile: must be one of compact-1, bsp-1, not"),
        (
            GOOD + 'profile = "mvds-1"',
            'peer 1: profile: mvds-1 is of another family; write family = "mvds"',
        ),
        (
            GOOD + 'profile = "bsp-0"',
            'peer 1: profile: bsp-0 is of another family; write family = "bsp-0"',
        ),
        ('family = "mvds"\n' + GOOD + 'profile = "bsp-1"', "is of another family"),
        ('family = "xmpp"\n' + GOOD, "family: must be one of bsp, mvds, bsp-0"),
        (
            'family = "mvds"\n' + GOOD.replace("serial:///dev/ttyACM0?baud=115200", "stick:"),
            "sticks",
        ),
        ('family = "bsp-0"\nclient = "' + "0" * 64 + '"\n' + GOOD, "client: family"),
        (GOOD + "profile = [1]", "peer 1: profile: must be a text"),
        (GOOD + "budget_bytes_per_epoch = 60", "budget_bytes_per_epoch: must be a whole number"),
        (GOOD + "budget_bytes_per_epoch = true", "budget_bytes_per_epoch: must be a whole"),
        (GOOD.replace("500", "true"), "peer 1: epoch_ms: must be a whole number"),
        (GOOD + "colour = 3", "peer 1: colour: unknown key; see docs/configuration.md"),
        (
            GOOD + 'board = "esp23"',
            r"peer 1: board: must be one of esp32, .*, host, board, not 'esp23'; did you mean"
            " 'esp32'\\?",
        ),
        (GOOD + 'board = "ESP32-C3"', "did you mean 'esp32c3'"),
        (GOOD + 'board = "toaster"', "board: must be one of .*, not 'toaster'$"),
        (GOOD + 'boad = "esp32"', "peer 1: boad: unknown key; did you mean 'board'"),
        (GOOD + 'profil = "bsp-1"', "peer 1: profil: unknown key; did you mean 'profile'"),
        (GOOD + "budget_bytes = 300", "did you mean 'budget_bytes_per_epoch'"),
        (
            GOOD + '[feed]\nplase = "folder:/media"',
            "feed: plase: unknown key; did you mean 'place'",
        ),
        (
            GOOD + '[[brokers]]\nurl = "mqtts://b"\ncafile = "x"',
            "broker 1: cafile: unknown key; did you mean 'ca_file'",
        ),
        (
            GOOD + '[[topics]]\nname = "t"\nurl = "udp://10.0.0.1:7447"',
            r"topics 1: url: 10\.0\.0\.1: not a multicast address; take one that begins with",
        ),
        (
            GOOD + '[[channels]]\nname = "t"\nurl = "udp://239.0.0.1:7447?interface=eth0"',
            "channels 1: url: eth0: interface must be an IPv4 address of this device",
        ),
        (GOOD + "epok_ms = 3", "peer 1: epok_ms: unknown key; did you mean 'epoch_ms'?"),
        (GOOD.replace("group =", "gruop ="), "gruop: unknown key; did you mean 'group'?"),
        ('colour = "red"\n' + GOOD, "colour: unknown key"),
        (GOOD.replace('"A0000001"', '"0a0b0c0d"'), "the id 0a0b0c0d is used twice"),
        (GOOD.replace('"a"', '"host"'), "the name 'host' is used twice"),
        ("peers = 3\n" + GOOD.partition("[[")[0], r"peers: must be tables"),
        ('client = "12"\n' + GOOD, "client: must be"),
        (GOOD + 34 * GOOD.partition("[[")[2].join(("[[", "")), "at most 32, here are 35"),
    ],
)
def test_a_bad_file_gets_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / config.CONFIG_NAME).write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=complaint) as caught:
        config.load(tmp_path)
    assert str(tmp_path / config.CONFIG_NAME) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("client", "why"),
    [
        (CHAT_CLIENT_ID, "client: a chat is no home's readings: leave client out"),
        (TELEMETRY_CLIENT_ID, "client: the agent is in this group of telemetry by itself"),
        (COMMANDS_CLIENT_ID, "of commands by itself"),
        (CARRIERS_CLIENT_ID, "of carriers by itself"),
        (FEEDS_CLIENT_ID, "of feeds by itself; leave client out"),
    ],
)
def test_readings_are_no_group_that_the_agent_has_or_cannot_run(
    tmp_path: Path, client: bytes, why: str
) -> None:
    (tmp_path / config.CONFIG_NAME).write_text(f'client = "{client.hex()}"\n' + GOOD)
    with pytest.raises(ConfigError, match=why):
        config.load(tmp_path)


def test_a_missing_home_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="drupelet init"):
        config.load(tmp_path / "nowhere")


def test_the_default_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert config.default_home() == tmp_path / "drupelet"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config.default_home() == tmp_path / ".local/state/drupelet"


def test_a_user_without_a_home_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs with a number that nobody entered as a user."""

    def unknown(_: int) -> None:
        raise KeyError("uid not found")

    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(ConfigError, match="name one for us with --home"):
        config.default_home()


def test_the_lock_is_for_one(tmp_path: Path) -> None:
    assert not config.locked(tmp_path)
    with config.lock(tmp_path):
        assert config.locked(tmp_path)
        with pytest.raises(config.LockedError, match="already owns"), config.lock(tmp_path):
            pass
    assert not config.locked(tmp_path)


def test_what_a_link_speaks_if_nothing_is_said(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD).peers[0].asked_profile == "compact-1"
    assert load(tmp_path, GOOD + 'board = "host"').peers[0].asked_profile == "compact-1"
    assert load(tmp_path, GOOD + 'board = "esp32"').peers[0].asked_profile == "bsp-1"
    said = load(tmp_path, GOOD + 'board = "esp32"\nprofile = "compact-1"').peers[0]
    assert said.asked_profile == "compact-1"
    assert load(tmp_path, GOOD + "budget_bytes_per_epoch = 0").peers[0].budget_bytes_per_epoch == 0
    assert load(tmp_path, GOOD.replace("batch", "auto")).peers[0].mode == "auto"


def test_the_boards_of_a_configuration_are_those_that_the_report_knows(tmp_path: Path) -> None:
    known = {*board_table.board_names(), *codes.BOARD_KINDS.values(), BOARD_UNKNOWN}
    assert set(BOARDS) == known
    for board in BOARDS:
        assert load(tmp_path, GOOD + f'board = "{board}"').peers[0].board == board


def test_peers_are_added_and_removed_and_the_rest_stays(tmp_path: Path) -> None:
    text = "# by hand\n" + GOOD + "\n# the cellar\n[[peers]]\n" + GOOD.partition("[[peers]]\n")[2]
    text = text.replace('"a"', '"cellar"', 2).replace('"cellar"', '"a"', 1)
    text = text[::-1].replace("1000000A", "2000000A", 1)[::-1]
    before = load(tmp_path, text)
    extra = Peer("x", b"xxxx", "stick:", "auto", 500, "esp32", "bsp-1", 300)
    config.add_peer(tmp_path, extra)
    assert config.load(tmp_path).peers == (*before.peers, extra)
    config.remove_peer(tmp_path, "a")
    assert [peer.name for peer in config.load(tmp_path).peers] == ["cellar", "x"]
    config.remove_peer(tmp_path, "x")
    kept = (tmp_path / config.CONFIG_NAME).read_text()
    assert "# by hand" in kept and "# the cellar" in kept and "esp32" not in kept
    with pytest.raises(ConfigError, match="no peer 'x'; there are: cellar"):
        config.remove_peer(tmp_path, "x")
    for wrong in (
        Peer("cellar", b"yyyy", "stick:"),
        Peer("y", b"", "stick:"),
        Peer("y", b"yyyy", "stick:", "slow"),
    ):
        with pytest.raises(ConfigError) as caught:
            config.add_peer(tmp_path, wrong)
        assert "\n" not in str(caught.value)
        assert (tmp_path / config.CONFIG_NAME).read_text() == kept


@pytest.mark.parametrize(
    ("text", "removed", "kept"),
    [
        (  # a comment before a table belongs to it, also where the table before it goes
            "{0}\n[[peers]]\n{1}  # ours\n\n# the cellar\n[[peers]]\n{2}\n# the end\n",
            "one",
            "{0}\n\n# the cellar\n[[peers]]\n{2}\n# the end\n",
        ),
        (
            "{0}\n[[peers]]\n{1}\n# the cellar\n[[peers]]\n{2}\n# the feed\n[feed]\n"
            "watch = true\n",
            "two",
            "{0}\n[[peers]]\n{1}\n# the cellar\n# the feed\n[feed]\nwatch = true\n",
        ),
        (  # the only one, with a table behind it
            "{0}\n[[peers]]\n{1}\n# the feed\n[feed]  # here\nwatch   =   true\n",
            "one",
            "{0}\n# the feed\n[feed]  # here\nwatch   =   true\n",
        ),
        (  # as a person may write them, too
            '{0}\npeers = [\n  {{ name = "one", id = "00000011", url = "stick:" }},  # ours\n]\n',
            "one",
            "{0}\n",
        ),
    ],
)
def test_what_a_person_wrote_stays(tmp_path: Path, text: str, removed: str, kept: str) -> None:
    head = "# by hand\nname='host'\n" + 'id = "0000000a"   # ours\ngroup = "g"\nepoch_ms = 1_000'
    rows = [f'name = "{name}"\nid = "000000{number}"\nurl = "stick:"'
            for name, number in (("one", 11), ("two", 12))]  # fmt: skip
    load(tmp_path, text.format(head, *rows))
    file = tmp_path / config.CONFIG_NAME
    before = file.read_text()
    config.remove_peer(tmp_path, removed)
    assert file.read_text() == kept.format(head, *rows)
    file.write_text(before)
    config.add_peer(tmp_path, Peer("x", b"xxxx", "stick:"))
    if "# the feed" in before:
        assert "# the feed\n[feed]" in file.read_text()
    config.remove_peer(tmp_path, "x")
    # An empty line may stay where the table was.
    assert re.sub(r"\n\n+", "\n", file.read_text()) == re.sub(r"\n\n+", "\n", before)


def test_two_that_add_a_peer_at_once_lose_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes when the first has read the file and not written it yet."""
    made = load(tmp_path, GOOD)
    b, c = Peer("b", b"bbbb", "stick:"), Peer("c", b"cccc", "stick:")
    second = threading.Thread(target=config.add_peer, args=(tmp_path, c))
    whole = config.load

    def slow(home: Path) -> Config:
        found = whole(home)
        if not second.ident:
            second.start()
            second.join(0.3)
        return found

    monkeypatch.setattr(edit, "load", slow)
    config.add_peer(tmp_path, b)
    second.join(10)
    assert {peer.name for peer in whole(tmp_path).peers} == {made.peers[0].name, "b", "c"}


def test_who_changes_the_file_for_ever_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(tmp_path, GOOD)
    monkeypatch.setattr(edit_lock, "WAIT_S_MAX", 0.05)
    with changing(tmp_path):
        for change in (
            lambda: config.add_peer(tmp_path, Peer("b", b"bbbb", "stick:")),
            lambda: config.remove_peer(tmp_path, "a"),
        ):
            with pytest.raises(ConfigError, match="another command changes its configuration"):
                change()
    assert config.remove_peer(tmp_path, "a").name == "a"


def test_peers_in_one_list_are_changed_too(tmp_path: Path) -> None:
    head, _, rows = GOOD.partition("[[peers]]\n")
    inline = head + "peers = [{" + ", ".join(rows.split("\n")[:-1]) + "}]\n"
    peer = load(tmp_path, inline).peers[0]
    extra = Peer("b", b"bbbb", "stick:")
    config.add_peer(tmp_path, extra)
    assert config.load(tmp_path).peers == (peer, extra)
    config.remove_peer(tmp_path, peer.name)
    assert config.load(tmp_path).peers == (extra,)
    config.remove_peer(tmp_path, "b")
    assert (tmp_path / config.CONFIG_NAME).read_text() == head


def test_a_change_that_says_something_else_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(tmp_path, GOOD)
    monkeypatch.setattr(edit.tomlkit, "dumps", lambda _document: GOOD)
    for change in (
        lambda: config.remove_peer(tmp_path, "a"),
        lambda: config.add_peer(tmp_path, Peer("b", b"bbbb", "stick:")),
    ):
        with pytest.raises(ConfigError, match="edit it and restart"):
            change()
        assert (tmp_path / config.CONFIG_NAME).read_text() == GOOD


def test_a_public_group_is_the_topics(tmp_path: Path) -> None:
    public = GOOD.replace('group = "orchard"', 'group = "#frost"\nclient = "public"')
    assert public != GOOD
    settings = load(tmp_path, public)
    made = bytearray(32)
    group_id_into(made, PUBLIC_CLIENT_ID, topic_descriptor("#frost"), 32)
    assert family.group_id(settings) == bytes(made)
    assert load(tmp_path, config.render(settings)) == settings
    with pytest.raises(ConfigError, match="group: must be at most 255 bytes"):
        load(tmp_path, public.replace("#frost", "é" * 128))


def test_a_pipe_in_the_place_of_a_configuration_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / config.CONFIG_NAME)
    with pytest.raises(ConfigError, match="is no ordinary file; move it away"):
        config.load(tmp_path)


def test_a_configuration_that_cannot_be_looked_at_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read \(File name too long\)"):
        config.load(tmp_path / ("x" * 300))
