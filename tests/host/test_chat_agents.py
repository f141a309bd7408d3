"""`drupelet chat`: agents over a real broker and a stick, and what one who left does not see."""

import itertools
import json
import os
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from drupelet_host.broker import Broker
from drupelet_host.clients import chat_notices
from drupelet_host.clients.chat_notices import ChatId, ChatNotice, KnownNotices, decode_notice
from drupelet_host.home.config import Peer
from drupelet_host.member.chats import CHATS_MAX, TEXT_SIZE_MAX
from drupelet_tools.sim.broker import Mosquitto
from host.conftest import COMMAND, Home, share_keys, wait_for

IDS = {"ann": 0xA0000001, "ben": 0xA0000002, "cid": 0xA0000003}
CHAT = ChatId(b"\xa0\x00\x00\x01\x00\x00\x00\x00", bytes(12))


def chat(home: Home, *words: str) -> str:
    """Run `drupelet chat`; what it printed."""
    done = home.run("chat", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(home: Home, *words: str, status: int) -> str:
    """The one line with which `drupelet chat` is refused."""
    done = home.run("chat", *words)
    assert (done.returncode, done.stdout) == (status, "") and done.stderr.count("\n") == 1
    return done.stderr


def read(home: Home, name: str = "family") -> list[str]:
    """Person, and what it did or said, of each message."""
    lines = chat(home, "read", name, "--json").splitlines()
    return [
        f"{one['person']} {one.get('text', one['kind'])} {one.get('whom', '')}".strip()
        for one in map(json.loads, lines)
    ]


def states(home: Home, name: str = "family") -> dict[str, str]:
    """Name -> state of everybody in a chat."""
    return {one["name"]: one["state"] for one in json.loads(chat(home, "members", name, "--json"))}


def standing(home: Home) -> dict[str, str]:
    """Chat -> where it stands for the home."""
    return {one["chat"]: one["state"] for one in json.loads(chat(home, "list", "--json"))}


def bodies(home: Home) -> list[bytes]:
    """Every body in the home's store, whatever group and state it has."""
    with closing(sqlite3.connect(home.path / "store.db")) as connection:
        return [row[0] for row in connection.execute("SELECT body FROM log")]


def houses(make_home: Callable[..., Home], url: str, names: str = "ann ben cid") -> list[Home]:
    """Homes that all have keys for each other."""
    every = names.split()
    homes = []
    for own in every:
        peers = [
            Peer(other, IDS[other].to_bytes(4), url, "interactive", 50)
            for other in every
            if other != own
        ]
        homes.append(make_home(own, IDS[own], *peers))
    for one, other in itertools.combinations(homes, 2):
        share_keys(one, other)
    return homes


def test_three_agents_over_mosquitto(make_home: Callable[..., Home], tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    broker.start()
    try:
        ann, ben, cid = houses(make_home, f"mqtt://127.0.0.1:{broker.port}/t")
        for home in (ann, ben, cid):
            home.start("--wait")
        chat(ann, "create", "family")
        chat(ann, "say", "family", "alone")
        chat(ann, "invite", "family", "ben")
        wait_for(lambda: standing(ben) == {"family": "invited"}, "an invitation")
        assert standing(cid) == {} and not any(b"alone" in body for body in bodies(ben))
        chat(ben, "join", "family")
        wait_for(lambda: states(ann).get("ben") == "member", "ben in the chat")
        # An agent that is killed in the middle goes on where it was.
        ben.kill()
        chat(ann, "say", "family", "while ben was dead")
        ben.start("--wait")
        wait_for(lambda: "ann while ben was dead" in read(ben), "what was said meanwhile")
        chat(ben, "invite", "family", "cid")
        wait_for(lambda: standing(cid) == {"family": "invited"}, "an invitation of ben's")
        chat(cid, "join", "family")
        wait_for(lambda: standing(cid) == {"family": "member"}, "cid in the chat")
        chat(cid, "say", "family", "-5 degrees")
        for home in (ann, ben, cid):
            wait_for(lambda home=home: "cid -5 degrees" in read(home), "cid's words")
        told = [event for event in ann.events("chat") if event.get("text") == "-5 degrees"]
        assert [(event["chat"], event["person"]) for event in told] == [("family", "cid")]
        # Who has left gets nothing more; those who stay see that it left, and go on.
        chat(ben, "leave", "family")
        for home in (ann, cid):
            wait_for(lambda home=home: states(home)["ben"] == "left", "ben gone")
        chat(ann, "say", "family", "about ben")
        wait_for(lambda: "ann about ben" in read(cid), "what is said without ben")
        chat(cid, "say", "family", "to ann")
        wait_for(lambda: "cid to ann" in read(ann), "an answer")
        ann.put("for all")
        wait_for(lambda: any(entry["text"] == "for all" for entry in ben.log()), "a reading")
        ann.settle()
        assert not any(b"about ben" in body or b"to ann" in body for body in bodies(ben))
        assert "you left it" in refusal(ben, "say", "family", "still here", status=1)
        expected = [
            "ann alone", "ann invite ben", "ben join", "ann while ben was dead", "ben invite cid",
            "cid join", "cid -5 degrees", "ben leave",
        ]  # fmt: skip
        assert read(ben) == expected and read(ann) == [*expected, "ann about ben", "cid to ann"]
        assert sorted(read(cid)) == sorted(read(ann))
        # The same after all have been started again.
        for home in (ann, ben, cid):
            home.stop()
            home.start("--wait")
        assert states(cid) == {"ann": "member", "ben": "left", "cid": "member"} == states(ann)
        assert chat(ann, "read", "family", "--limit", "1").endswith("cid: to ann\n")
        chat(ben, "forget", "family")
        assert standing(ben) == {} and not any(b"degrees" in body for body in bodies(ben))
        # Invited once more, it gets what was said without it, and nothing that it removed.
        chat(ann, "invite", "family", "ben")
        wait_for(lambda: standing(ben) == {"family": "invited"}, "another invitation")
        chat(ben, "join", "family")
        wait_for(lambda: standing(ben) == {"family": "member"}, "ben again")
        wait_for(lambda: "ann about ben" in read(ben), "what was said without ben")
        chat(ben, "say", "family", "back")
        wait_for(lambda: "ben back" in read(cid), "ben's words")
        again = ["ann invite ben", "ben join", "ben back"]
        assert [line for line in read(ben) if line not in expected] == [
            "ann about ben", "cid to ann", "ben back",
        ]  # fmt: skip
        assert read(ann)[-3:] == again and "cid -5 degrees" not in read(ben)
    finally:
        broker.stop(True)


def test_two_homes_and_a_stick(make_home: Callable[..., Home], tmp_path: Path) -> None:
    ann, ben = houses(make_home, "stick:", "ann ben")
    (tmp_path / "usb").mkdir()

    def carry(*homes: Home) -> None:
        for home in homes:
            done = home.run("stick", str(tmp_path / "usb"))
            assert "safe to unplug" in done.stdout, done.stderr

    chat(ann, "create", "family")
    chat(ann, "invite", "family", "ben")
    chat(ann, "say", "family", "hello")
    carry(ann, ben)
    assert "first `drupelet chat join family`" in refusal(ben, "say", "family", "x", status=1)
    chat(ben, "join", "family")
    assert "waits for the messages" in refusal(ben, "say", "family", "x", status=1)
    carry(ben, ann, ben)
    assert standing(ben) == {"family": "member"}
    chat(ben, "say", "family", "hi")
    carry(ben, ann)
    assert read(ann) == read(ben) == ["ann invite ben", "ann hello", "ben join", "ben hi"]
    # Whose last word did not get out counts as one who left.
    chat(ben, "leave", "family")
    chat(ben, "forget", "family")
    chat(ben, "create", "family")
    carry(ben, ann)
    assert states(ann) == {"ann": "member", "ben": "left"}
    # A second chat of the same name; declined, nothing of it is left on the stick.
    chat(ann, "create", "other")
    for name in ("family", "other"):
        chat(ann, "invite", name, "ben")
    carry(ann, ben)
    assert standing(ben) == {"family": "member", "family-2": "invited", "other": "invited"}
    assert json.loads(chat(ben, "leave", "other", "--json"))["state"] == "declined"
    chat(ben, "join", "family-2")
    carry(ben, ann)
    assert states(ann, "other") == {"ann": "member", "ben": "declined"}
    chat(ann, "say", "other", "nobody listens")
    chat(ann, "say", "family", "welcome back")
    carry(ann, ben)
    assert not any(b"nobody listens" in body for body in bodies(ben))
    assert standing(ben) == {"family": "member", "family-2": "member"}
    assert "ann welcome back" in read(ben, "family-2")
    assert not any("hello" in line for line in read(ben, "family-2"))


def test_what_is_refused_is_one_line(make_home: Callable[..., Home], broker: Broker) -> None:
    url = broker.start() + "/t"
    board = Peer("well", b"\xc0\x00\x00\x01", url, "batch", 50, "esp32")
    ann = make_home("ann", IDS["ann"], board, Peer("ben", IDS["ben"].to_bytes(4), "stick:"))
    assert standing(ann) == {}
    for is_running in (False, True):
        if is_running:
            ann.start("--wait")
        for name in ("", "../x", "a b", "x" * 33, "\x1b[2J", "\udcff", "{0}"):
            assert "a name has 1 to 32 letters" in refusal(ann, "create", name, status=2), name
        if not is_running:
            chat(ann, "create", "family")
        assert "choose another" in refusal(ann, "create", "family", status=1)
        for peer in ("nobody", "", "\udcff"):
            assert "no such peer" in refusal(ann, "invite", "family", peer, status=4)
        assert "is a board" in refusal(ann, "invite", "family", "well", status=1)
        assert "no invitation" in refusal(ann, "join", "other", status=is_running or 4)
        assert "is joined already" in refusal(ann, "join", "family", status=1)
        for verb in ("leave", "forget", "say", "read", "members"):
            words = (verb, "other", *(["x"] if verb == "say" else []))
            status = 1 if is_running and verb not in ("read", "members") else 4
            assert "no such chat" in refusal(ann, *words, status=status)
        huge = "x" * (TEXT_SIZE_MAX + 1)
        for text in (huge, "", "\udcff"):
            assert refusal(ann, "say", "family", text, status=1)
        done = ann.run("chat", "say", "family", "-", input=huge)
        assert done.returncode == 1 and "split it" in done.stderr and done.stderr.count("\n") == 1
        chat(ann, "say", "family", "y" * TEXT_SIZE_MAX)
    for row in range(CHATS_MAX - 1):
        chat(ann, "create", f"c{row}")
    assert "at most 8 chats" in refusal(ann, "create", "c9", status=1)
    # What was forgotten makes room, however often.
    for row in range(4):
        for verb in ("leave", "forget", "create"):
            chat(ann, verb, "c0")
        if row == 1:
            ann.stop()
            ann.start("--wait")
    assert len(standing(ann)) == CHATS_MAX
    assert read(ann) == ["ann " + "y" * TEXT_SIZE_MAX] * 2
    for _ in range(6):
        chat(ann, "say", "family", "y" * TEXT_SIZE_MAX)
    words = [*COMMAND, "chat", "read", "--home", str(ann.path), "--json", "family"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()  # as `head` does
        assert (process.wait(60), process.stderr.read()) == (0, b"")


def test_a_damaged_entry_is_one_line(make_home: Callable[..., Home]) -> None:
    ann = make_home("ann", IDS["ann"])
    chat(ann, "create", "family")
    for value in (b"{", b"[]", b"\xff", b'{"name":"x","founder":"!","salt":""}'):
        with closing(sqlite3.connect(ann.path / "store.db", isolation_level=None)) as connection:
            connection.execute("UPDATE meta SET value = ? WHERE key GLOB 'chat.*'", (value,))
        for words in (("list",), ("create", "other")):
            assert "restore a backup" in refusal(ann, *words, status=3)


def test_a_group_of_another_family_has_no_chats(make_home: Callable[..., Home]) -> None:
    ann = make_home("ann", IDS["ann"])
    path = ann.path / "drupelet.toml"
    path.write_text('family = "mvds"\n' + path.read_text())
    assert 'family = "bsp"' in refusal(ann, "create", "family", status=2)
    assert standing(ann) == {}


INVITATION = ChatNotice(chat_notices.INVITED, b"ben_", CHAT, b"ann_", "family")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xff" * 40, INVITATION.encode()[:-7], INVITATION.encode() + bytes(300),
        ChatNotice(4, b"ben_", CHAT).encode(), ChatNotice(1, b"be", CHAT).encode(),
        ChatNotice(1, b"ben_", ChatId(b"short", bytes(12))).encode(),
        ChatNotice(1, b"ben_", CHAT, invitation=bytes(32)).encode(),
        ChatNotice(2, b"ben_", CHAT, invitation=bytes(31)).encode(),
    ],
)  # fmt: skip
def test_what_is_no_notice_is_passed_over(content: bytes) -> None:
    known = KnownNotices(b"ben_")
    assert known.take(b"m" * 32, False, bytes(8), b"\x00" + content) is None
    assert not known.invitations


def test_notices_are_read_back_and_odd_names_are_none() -> None:
    assert decode_notice(INVITATION.encode()) == INVITATION
    odd = ChatNotice(1, b"ben_", CHAT, b"ann_", "\x1b[2J")
    assert decode_notice(odd.encode()).name == ""


def test_nobody_else_answers_for_us_or_has_the_last_word_for_ever() -> None:
    known = KnownNotices(b"ben_")
    assert known.take(b"m" * 32, False, bytes(8), b"\x00" + INVITATION.encode()) is not None
    answer = ChatNotice(chat_notices.DECLINED, b"ben_", CHAT, b"ann_", "", b"m" * 32)
    assert known.take(b"n" * 32, False, bytes(8), b"\x00" + answer.encode()) is None
    assert known.invitation_to(CHAT) == b"m" * 32
    of_cid = b"\x00" + ChatNotice(chat_notices.DECLINED, b"cid_", CHAT).encode()
    assert known.take(b"o" * 32, False, b"\x7f" + bytes(7), of_cid) is None
    assert known.is_present(CHAT, b"cid_") is None
    assert known.take(b"p" * 32, True, bytes(7) + b"\x01", b"\x00" + answer.encode()) is not None
    assert not known.invitations and known.is_present(CHAT, b"ben_") is False


def test_what_others_pile_up_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_notices, "NOTICES_KNOWN_MAX", 20)
    known = KnownNotices(b"ben_")
    for _ in range(60):
        chat_id = ChatId(os.urandom(8), os.urandom(12))
        for kind, device in ((1, b"ben_"), (2, b"cid_")):
            notice = ChatNotice(kind, device, chat_id)
            known.take(os.urandom(32), False, b"\x00" * 7 + b"\x01", b"\x00" + notice.encode())
    assert len(known.invitations) == 20
    sizes: list[Any] = [len(value) for value in vars(known).values() if isinstance(value, dict)]
    assert max(sizes) == 20
