"""What a person gets wrong: one line with the remedy, nothing lost, nothing half done."""

import json
import os
import resource
import shutil
import signal
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from drupelet.base.limits import SEAL_JUMP
from drupelet_host.agent.brokers import Brokers
from drupelet_host.agent.carrier_lines import CARRIERS, Line
from drupelet_host.agent.loop import Agent, visit_alone
from drupelet_host.agent.stick_visit import StickError
from drupelet_host.base.output import Output
from drupelet_host.cli import app, command_tree, exit_codes
from drupelet_host.cli.common import id_of
from drupelet_host.home import config
from drupelet_host.home.config import ConfigError, Peer
from drupelet_host.keys import provision, rotate_revoke
from drupelet_host.keys.key_folder import KeysError, look
from drupelet_host.keys.sealing import Sealing
from drupelet_host.member import backup
from drupelet_host.member.backup import BackupError
from drupelet_host.member.member import Member
from drupelet_host.member.report_shapes import MemberReport
from drupelet_host.member.status import last_status
from drupelet_tools.sim.minimise import parse_spans
from host.chain_keys import home_keys
from host.command_line import assert_refused, run
from host.conftest import Home, share_keys

MakeHome = Callable[..., Home]
A, B = 0xA0000001, bytes.fromhex("b0000002")


def test_what_init_and_peer_add_refuse(make_home: MakeHome, tmp_path: Path) -> None:
    new = ["--home", str(tmp_path / "new"), "--group", "g"]
    assert_refused(
        run("init", *new, "--name", "a", "--id", "40 00 00 00"),
        "id: must be 8 hex",
        status=exit_codes.USAGE,
    )
    for nobody in ("00000000", "FFFFFFFF"):
        with pytest.raises(ConfigError, match="stands for nobody; choose another"):
            id_of(nobody)
    with pytest.raises(ConfigError, match="name: must not be empty"):
        config.add_peer(make_home("c", A + 1).path, Peer("", B, "stick:"))
    home = make_home("a", A)
    for url, why in (
        ("serial:///dev/x?baud=-5", "baud must be a number above 0"),
        ("loop:", "serial, mqtt and stick reach a peer"),
        ("uart:1?tx=4&rx=5", "is a board's own end of a line: write serial:///dev/"),
        ("console:", "is a board's own end of a line: write serial:///dev/"),
        ("serial:///dev/ttyUSB0?frame=9", "frame must be from 64 to 1024"),
        ("udp://239.0.0.1:7447", "serial, mqtt and stick reach a peer"),
    ):
        with pytest.raises(ConfigError, match=f"peer 1: url: .*{why}"):
            config.add_peer(home.path, Peer("b", B, url))
    assert_refused(
        home.run("peer", "add", "b", "zz", "stick:"),
        "8 hex digits (4 bytes), not",
        status=exit_codes.USAGE,
    )
    assert config.load(home.path).peers == ()


@pytest.mark.parametrize(
    "words",
    [
        ["status", "--home", ""],
        ["stick", ""],
        ["export-telemetry", ""],
        ["command", "b", "--key-to", ""],
    ],
)
def test_an_empty_path_is_not_the_folder_one_stands_in(words: list[str]) -> None:
    done = CliRunner().invoke(app.app, words)
    assert done.exit_code == 2
    assert "is empty; name a folder" in done.output


def test_nan_is_within_no_bounds() -> None:
    app.load_commands()
    floats = [
        (words, option.opts)
        for words, command, context in command_tree.walk(app.app)
        for option in command.params
        if "Float" in type(option.type).__name__ and refuses_no_nan(option, context)
    ]
    assert not floats


def refuses_no_nan(option: Any, context: Any) -> bool:
    context.resilient_parsing = False
    try:
        option.process_value(context, "nan")
    except typer.BadParameter:
        return False
    return True


def test_bytes_that_are_no_text(make_home: MakeHome, tmp_path: Path) -> None:
    bad, new = os.fsdecode(b"\xff"), tmp_path / "new"
    for words, key in (
        (["--name", "a", "--group", bad], "group"),
        (["--name", bad, "--group", "g"], "name"),
    ):
        done = run("init", "--home", str(new), *words)
        assert_refused(
            done, f"{key}: must be text in UTF-8, not '\\udcff'", status=exit_codes.USAGE
        )
        assert not new.exists()  # nothing that blocks the next try
    home = make_home("a", A)
    before = (home.path / config.CONFIG_NAME).read_bytes()
    for more in (
        ["b", "b0000002", "stick:", "--board", bad],
        ["b", "b0000002", f"stick:///{bad}"],
    ):
        assert_refused(
            home.run("peer", "add", *more), "must be text in UTF-8", status=exit_codes.USAGE
        )
    assert [path.name for path in home.path.iterdir()] == [config.CONFIG_NAME]
    assert (home.path / config.CONFIG_NAME).read_bytes() == before
    assert_refused(run("group", "topic", bad), r"topic '\udcff': must be text in UTF-8")
    for words in (["stick"], ["group", "push"], ["group", "pull"]):
        done = home.run(*words, f"{tmp_path}/{bad}")
        assert done.returncode == 2 and "must be text in UTF-8" in done.stderr
    # A folder may be called so, wherever it is ours alone.
    odd = tmp_path / bad
    strict = {
        "env": {**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
        "errors": "surrogateescape",
    }
    made = run("init", "--home", str(odd), "--name", "a", "--group", "g", **strict)
    assert made.returncode == 0 and made.stdout.startswith(f"{odd}/drupelet.toml: member a")


@pytest.mark.parametrize("locale", [{"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C"}])
def test_a_message_that_the_locale_has_no_letters_for(
    make_home: MakeHome, tmp_path: Path, locale: dict[str, str]
) -> None:
    """Anybody may write it: it must not end whoever shows it, least of all an agent."""
    home = make_home("a", A)
    home.put("frost \u2192 3 \u20ac")
    (tmp_path / "usb").mkdir()
    visit_alone(config.load(home.path), tmp_path / "usb")
    env = {**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", **locale}
    done = home.run("log", env=env, encoding="utf-8")
    assert done.returncode == 0 and "frost \u2192 3 \u20ac" in done.stdout


def test_a_name_that_would_break_the_file(tmp_path: Path) -> None:
    new = ["--home", str(tmp_path / "new")]
    done = run("init", *new, "--name", 'a"b', "--group", "g")
    assert_refused(done, "name: use 1 to 32 letters", status=exit_codes.USAGE)
    done = run("init", *new, "--name", "a", "--group", 20_000 * "\x01")
    assert_refused(
        done, f"would be longer than {config.CONFIG_SIZE_MAX} bytes", status=exit_codes.USAGE
    )
    assert not list(tmp_path.iterdir())


def test_keys_go_nowhere_without_a_folder(make_home: MakeHome) -> None:
    home = make_home("a", A, Peer("b", B, "stick:"))
    with pytest.raises(KeysError, match="--to is empty: no such folder"):
        provision.provision_peer(config.load(home.path), "b", "")
    assert not provision.has_keys(config.load(home.path), B)


def test_a_key_and_a_command_are_two_things(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("a", A, Peer("b", B, "stick:"))
    for words in (["b", "report"], []):
        words += ["--key-to", str(tmp_path), "--home", str(home.path)]
        done = CliRunner().invoke(app.app, ["command", *words])
        assert done.exit_code == 2
        assert "--key-to takes the board alone" in done.output
    assert not (tmp_path / "commands.key").exists()


def test_a_full_disk_leaves_no_half_of_a_home(tmp_path: Path) -> None:
    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))

    words = ["init", "--home", str(tmp_path / "h"), "--name", "a", "--group", 5000 * "g"]
    done = run(*words, preexec_fn=small)
    assert_refused(done, "drupelet.toml: cannot be made")
    assert not list((tmp_path / "h").iterdir())


def test_new_keys_heal_a_revoked_peer_whose_rotation_was_under_way(
    make_home: MakeHome, tmp_path: Path
) -> None:
    home = make_home("a", A, Peer("b", B, "stick:"))
    settings = config.load(home.path)
    flash = tmp_path / "flash"
    flash.mkdir()
    provision.provision_peer(settings, "b", f"flash:{flash}")
    for action in (rotate_revoke.rotate, rotate_revoke.revoke):
        sealing = Sealing(settings, 0)
        action(settings, sealing, "b")
        sealing.close()
    assert (settings.keys_path / f"{B.hex()}.tell").exists()
    provision.provision_peer(settings, "b", f"flash:{flash}")
    ours = look(settings.keys_path, B)
    assert [state.generation for state in ours] == [0, 0, 0, 0]
    assert not any(state.revoked or state.waiting for state in ours)
    # What the old root would renew is gone, here and on the flash.
    assert not (settings.keys_path / f"{B.hex()}.tell").exists()
    assert len(provision.FlashKeys(flash, B, settings.id).kids()) == 1


def test_a_revoked_peer_is_told_of_once(make_home: MakeHome) -> None:
    peer = Peer("b", B, "mqtt://127.0.0.1:1/t")
    home = make_home("a", A, peer)
    share_keys(home, make_home("b", int.from_bytes(B)))
    member = Member(config.load(home.path))
    try:
        member.sealing.revoke(B)
        told: list[str] = []
        line = Line(
            peer, member.live_link(peer, CARRIERS["mqtt"], 0), Brokers(),
            lambda line: told.append(line.state), member.drain_box, member.sealing.live, list,
        )  # fmt: skip
        for now_ms in range(0, 60_000, 500):
            line.maintain(now_ms)
    finally:
        member.store.close()
        member.sealing.close()
    assert told == ["revoked"]


@pytest.mark.parametrize("key", ["name", "id", "epoch_ms", "family", "learn"])
def test_a_long_value_is_not_told_in_full(tmp_path: Path, key: str) -> None:
    good = {"name": '"a"', "id": '"a0000001"', "group": '"g"', key: '"' + 5000 * "x" + '"'}
    (tmp_path / config.CONFIG_NAME).write_text("\n".join(f"{k} = {v}" for k, v in good.items()))
    with pytest.raises(ConfigError, match=key) as caught:
        config.load(tmp_path)
    assert len(str(caught.value)) < len(str(tmp_path)) + 200


@pytest.mark.parametrize(
    "text",
    [
        '{"peers": 5}',
        '{"peers": [5]}',
        '{"peers": [{"id": "b0000002", "seals": 3}]}',
        '{"peers": [{"id": ["b0000002"], "seals": {}}]}',
        '{"peers": [{"id": "b0000002", "seals": {}, "heard_ms": "x"}]}',
        '{"peers": [{"id": "b0000002", "seals": {}, "heard_ms": 1%s}]}' % ("0" * 400),
        '{"peers": [{"id": "b0000002", "seals": {}, "mode": [], "profile": 5}]}',
        '{"peers": [{"id": "b0000002", "seals": {"x": 1, "refused": "a"}}]}',
        '{"topics": [{"name": "", "url": "", "state": "", "reason": "", "told": 5,'
        ' "listeners": []}]}',
        '{"said_ms": "x"}',
        '{"counters": []}',
        '{"topics": [{}]}',
        '{"feed": {}}',
        '{"not_learned": [5]}',
        "[]",
        "{",
        200_000 * "[",
    ],
)
def test_a_status_of_something_else_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "status.json"
    path.write_text(text)
    assert last_status(path) == MemberReport()


def test_status_and_doctor_beside_a_status_of_something_else(make_home: MakeHome) -> None:
    home = make_home("a", A)
    home.put("one")
    path = config.load(home.path).status_path
    path.write_text('{"peers": 5}')
    assert home.run("status").returncode == 0
    feed = {"place": "folder:/x", "reason": "folder:/x: no such folder", "pushed": 2, "pulled": 1}
    path.write_text(json.dumps({"feed": feed, "not_learned": [{"id": "c", "reason": "no keys"}]}))
    said = home.run("status").stdout
    assert "feed folder:/x: 2 uploaded, 1 taken in; folder:/x: no such folder" in said
    assert "not learned: c: no keys" in said
    path.write_text('{"peers": [{"id": "b0000002", "seals": {"live": {}}}]}')
    assert "live: 0 forged, 0 replayed" in home.run("doctor").stdout


def test_a_full_stick_leaves_the_keys_as_they_were(
    make_home: MakeHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home("a", A, Peer("b", B, "stick:"))
    settings = config.load(home.path)
    flash = tmp_path / "flash"
    flash.mkdir()
    real = provision.FlashKeys.save
    # As a board behind a cable takes them: each for itself.
    one_each = [range(row, row + 1) for row in range(provision.ROWS)]
    monkeypatch.setattr(provision.FlashKeys, "steps", one_each)

    def full(self: provision.FlashKeys, records: dict[int, bytes | bytearray]) -> int:
        self.failure = "the stick is full"
        return real(self, records) if records.keys() <= writable else provision.E_STORAGE

    monkeypatch.setattr(provision.FlashKeys, "save", full)
    writable: set[int] = set()
    with pytest.raises(KeysError, match="is full; the keys from before, if any, still hold"):
        provision.provision_peer(settings, "b", f"flash:{flash}")
    assert not provision.has_keys(settings, B)
    assert not list((home.path / "keys").glob("b0000002.[lb]*[ed]"))
    # Without --again, as nothing is there.
    writable = set(range(provision.ROWS))
    provision.provision_peer(settings, "b", f"flash:{flash}")
    ours = home_keys(home, B)
    writable = set()
    with pytest.raises(KeysError, match="still hold"):
        provision.provision_peer(settings, "b", f"flash:{flash}", again=True)
    assert home_keys(home, B) == ours
    # What got half of the new keys cannot go on with the old ones.
    writable = {0}
    with pytest.raises(KeysError, match="repeat with --again"):
        provision.provision_peer(settings, "b", f"flash:{flash}", again=True)
    assert home_keys(home, B) != ours


def test_a_backup_cut_anywhere_or_changed_is_refused(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("a", A, Peer("b", B, "stick:"))
    home.put("one")
    (tmp_path / "flash").mkdir()
    provision.provision_peer(config.load(home.path), "b", f"flash:{tmp_path / 'flash'}")
    whole = tmp_path / "whole"
    backup.back_up(home.path, whole)
    content = whole.read_bytes()
    with tarfile.open(whole) as tar:
        last = tar.getmembers()[-1]
        inside = [info.offset_data for info in tar.getmembers()]
        offsets = [info.offset for info in tar.getmembers()]
    end = last.offset_data + last.size
    bad, new = tmp_path / "bad", tmp_path / "new"
    for size in (*offsets, *(at + 512 for at in offsets), *range(100, end, 7919)):
        bad.write_bytes(content[:size])
        with pytest.raises(BackupError, match="cannot be restored"):
            backup.restore(bad, new)
        assert not new.exists()
    for at in inside:
        bad.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(BackupError, match="cannot be restored"):
            backup.restore(bad, new)
        assert not new.exists()
    assert backup.restore(whole, new).name == "a"


def test_two_backups_at_once(
    make_home: MakeHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home("a", A)
    home.put("one")
    add_file = tarfile.TarFile.addfile
    said = []

    def meanwhile(tar: tarfile.TarFile, info: tarfile.TarInfo, file: Any = None) -> None:
        with pytest.raises(BackupError, match="another backup is being made; let it finish") as e:
            backup.back_up(home.path, tmp_path / "second")
        said.append(str(e.value))
        add_file(tar, info, file)

    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "addfile", meanwhile)
        backup.back_up(home.path, tmp_path / "first")
    assert said and not (tmp_path / "second").exists()
    assert backup.restore(tmp_path / "first", tmp_path / "new").name == "a"

    # Whatever writes to the copy: the checksum is of what is in the file.
    class Growing(tarfile.TarInfo):
        """The copy of a database grows as soon as its size has been noted."""

        def __init__(self, name: str = "") -> None:
            super().__init__(name)
            if (home.path / "backup.tmp").exists():
                with (home.path / "backup.tmp").open("ab") as copy:
                    copy.write(bytes(9))

    with monkeypatch.context() as patch:
        patch.setattr(tarfile, "TarInfo", Growing)
        backup.back_up(home.path, tmp_path / "grown")
    assert backup.restore(tmp_path / "grown", tmp_path / "third").name == "a"
    assert not (home.path / "backup.tmp").exists()


def test_ctrl_c_in_a_restore_leaves_nothing(
    make_home: MakeHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home("a", A)
    backup.back_up(home.path, tmp_path / "whole")

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(backup, "known_peers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        backup.restore(tmp_path / "whole", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_restore_cut_anywhere_is_no_home_or_a_whole_one(
    make_home: MakeHome, tmp_path: Path
) -> None:
    home = make_home("a", A, Peer("b", B, "stick:"))
    (tmp_path / "flash").mkdir()
    provision.provision_peer(config.load(home.path), "b", f"flash:{tmp_path / 'flash'}")
    home.put("one")
    whole, new = tmp_path / "whole", tmp_path / "new"
    backup.back_up(home.path, whole)

    def restore_until(step: int) -> bool:
        """In a process that ends before that step; True when it came to the end."""
        left = [step]

        def cut(do: Callable[..., object]) -> Callable[..., object]:
            def done(*args: object, **more: object) -> object:
                left[0] -= 1
                return do(*args, **more) if left[0] else os._exit(9)

            return done

        child = os.fork()
        if not child:
            for name in ("mkdir", "fsync", "rename", "replace", "unlink", "rmdir"):
                setattr(os, name, cut(getattr(os, name)))
            backup.restore(whole, new)
            os._exit(0)
        return os.waitpid(child, 0)[1] == 0

    def epochs() -> list[int]:
        return [state.epoch for state in look(new / "keys", B) if not state.receives]

    steps = 1
    while not restore_until(steps):
        if not (new / "drupelet.toml").exists():
            assert backup.restore(whole, new).name == "a"
        assert epochs() == [SEAL_JUMP, SEAL_JUMP], steps
        with pytest.raises(BackupError, match="is not empty"):
            backup.restore(whole, new)
        shutil.rmtree(new)
        steps += 1
    assert steps > 20 and not (new / "restore.tmp").exists()
    # Somebody's own files are never taken for what a restore left.
    (new / "drupelet.toml").unlink()
    with pytest.raises(BackupError, match="is not empty"):
        backup.restore(whole, new)
    (new / "restore.tmp").mkdir()
    (new / "notes.txt").touch()
    with pytest.raises(BackupError, match="is not empty"):
        backup.restore(whole, new)


def test_a_stick_whose_folders_lead_elsewhere(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("a", A, Peer("b", B, "stick:"))
    (tmp_path / "flash").mkdir()
    provision.provision_peer(config.load(home.path), "b", f"flash:{tmp_path / 'flash'}")
    elsewhere, usb = tmp_path / "elsewhere", tmp_path / "usb"
    elsewhere.mkdir()
    usb.mkdir()
    for inner in ("", "A0000001", "A0000001/B0000002", "B0000002"):
        link = usb / "DRUPELET" / inner
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(elsewhere)
        with pytest.raises(StickError, match=f"{link}: is a link and leads off the stick"):
            visit_alone(config.load(home.path), usb)
        if inner != "B0000002":
            link.unlink()
    assert_refused(home.run("stick", str(usb)), str(link), "leads off the stick; remove it")
    assert not list(elsewhere.iterdir())


def test_status_tells_when_a_stick_brought_something(make_home: MakeHome, tmp_path: Path) -> None:
    homes = [
        make_home("a", A, Peer("b", B, "stick:")),
        make_home("b", int.from_bytes(B), Peer("a", A.to_bytes(4), "stick:")),
    ]
    share_keys(*homes)
    homes[0].put("one")
    (tmp_path / "usb").mkdir()
    visit_alone(config.load(homes[0].path), tmp_path / "usb")
    agent = Agent(config.load(homes[1].path), Output(True))
    try:
        assert agent.status().peers[0].heard_ms == 0
        for _ in range(2):
            heard = agent.visit(tmp_path / "usb")["heard"]
            assert agent.status().peers[0].heard_ms > 0
        assert heard == []  # there was nothing new on it
    finally:
        agent.member.store.close()
        agent.member.sealing.close()
    peer = homes[1].status()["peers"][0]  # no agent said anything: what a stick carries
    assert (peer["profile"], peer["mode"]) == ("bsp-1", "batch")


def test_damaged_files_on_a_stick_are_told_of(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("a", A, Peer("b", B, "stick:"))
    (tmp_path / "flash").mkdir()
    provision.provision_peer(config.load(home.path), "b", f"flash:{tmp_path / 'flash'}")
    usb = tmp_path / "usb"
    folder = usb / "DRUPELET" / "A0000001" / "B0000002"
    folder.mkdir(parents=True)
    for number in (1, 2):
        (folder / f"{number:08X}.DRP").write_bytes(bytes(range(number, 90)))
    done = home.run("stick", str(usb))
    assert done.returncode == 0
    assert done.stdout.endswith("safe to unplug\n")
    assert done.stderr == "drupelet: 2 files damaged or for another, left alone\n"


@pytest.mark.parametrize("only", ["nonsense", "5-1", "-1", "1-99999999999", "1,,2", "1e3"])
def test_steps_that_are_none(only: str) -> None:
    with pytest.raises(ValueError, match="write steps as 1-4,7"):
        parse_spans(only)
