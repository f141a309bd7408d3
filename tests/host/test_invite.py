"""`invite`, `join`, `confirm`: keys for a host on another machine, by a stick and four words."""

import hashlib
import hmac
import json
import os
import re
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from drupelet_host.base import clock
from drupelet_host.cli import exit_codes
from drupelet_host.home import config, private_files
from drupelet_host.home.config import Peer
from drupelet_host.keys import invitation_bytes, invite
from drupelet_host.keys.invitation_bytes import Invitation, Reply
from drupelet_host.keys.key_folder import KeysError, look
from drupelet_host.keys.secret import Secret
from drupelet_host.view import doctor
from host.command_line import assert_refused
from host.conftest import COMMAND, Home, wait_for
from spec import spec_text

MakeHome = Callable[..., Home]
A, B, C = 0xA0000001, 0xB0000002, 0xC0000003
B_ID = B.to_bytes(4)


@pytest.fixture
def homes(make_home: MakeHome, tmp_path: Path) -> tuple[Home, Home, Path]:
    """Two homes that do not know each other, and a stick."""
    (tmp_path / "usb").mkdir()
    return make_home("alice", A), make_home("bob", B), tmp_path / "usb"


def done(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout


def words_of(home: Home, *words: str) -> str:
    return str(json.loads(done(home.run(*words, "--json")))["our_words"])


def confirm(home: Home, name: str, words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "confirm", name, "--home", str(home.path)],
        input=words + "\n", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def keys_column(home: Home) -> list[tuple[str, str]]:
    rows = json.loads(done(home.run("peers", "--json")))
    return [(row["name"], row["keys"]) for row in rows]


def files_with(folder: Path, secret: bytes) -> list[Path]:
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    forms = (secret, secret.hex().encode())
    return [path for path, content in files.items() if any(form in content for form in forms)]


def test_two_machines_and_a_stick(homes: tuple[Home, Home, Path]) -> None:
    alice, bob, usb = homes
    output = done(alice.run("invite", "bob", "--to", str(usb / "bob.invite")))
    assert "invited until" in output and "has keys" not in output
    assert stat.S_IMODE((usb / "bob.invite").stat().st_mode) == 0o600
    assert keys_column(alice) == [("bob", "invited")]
    bob_words = words_of(bob, "join", str(usb / "bob.invite"))
    assert keys_column(bob) == [("alice", "joined, unproved")]
    assert keys_column(alice) == [("bob", "invited")]
    alice_words = words_of(alice, "join", str(usb / "bob.reply"))
    assert len(alice_words.split()) == len(bob_words.split()) == 4
    assert alice_words != bob_words, "nobody can type what the own screen shows"
    assert keys_column(alice) == [("bob", "joined, unproved")]
    for home, peer in ((alice, B_ID), (bob, alice.id)):
        assert look(home.path / "keys", peer) == [], "no chain before the words"
        (check,) = [c for c in doctor.examine(home.path) if c.name == "keys"]
        assert check.state == doctor.WARN and "drupelet confirm" in check.remedy
    keys = [invite.pairings(config.load(home.path))[0].private.reveal() for home in (alice, bob)]
    assert "bob has keys" in done(confirm(alice, "bob", bob_words))
    assert keys_column(alice) == [("bob", "sealed")]
    assert "alice has keys" in done(confirm(bob, "alice", f"  {alice_words.upper()} "))
    for secret in keys:
        assert not files_with(alice.path.parent, secret), "the private keys are gone"
    assert not list(alice.path.parent.rglob("*.pairing"))
    notes = [row["note"] for row in json.loads(done(bob.run("peers", "--json")))]
    assert notes == ["the peer made these keys"]
    for home, peer in ((alice, B_ID), (bob, alice.id)):
        assert all(state.packs for state in look(home.path / "keys", peer)), "two hosts"
    # And now they sync.
    alice.put("for bob")
    bob.put("for alice")
    for home in (alice, bob, alice):
        done(home.run("stick", str(usb)))
    for home in (alice, bob):
        assert {row["text"] for row in home.log()} == {"for bob", "for alice"}


def test_it_is_good_once(homes: tuple[Home, Home, Path], make_home: MakeHome) -> None:
    alice, bob, usb = homes
    carol = make_home("carol", C)
    file = str(usb / "i")
    done(alice.run("invite", "bob", "--to", file))
    done(bob.run("join", file, "--reply", str(usb / "b")))
    done(carol.run("join", file, "--reply", str(usb / "c")))
    bob_words = words_of(alice, "join", str(usb / "b")) and words_of(
        bob, "join", file, "--reply", "-"
    )
    refused = alice.run("join", str(usb / "c"))
    assert_refused(refused, "bob (b0000002) has joined with this invitation already", "copied it")
    assert words_of(alice, "join", str(usb / "b")), "the same reply once more changes nothing"
    done(confirm(alice, "bob", bob_words))
    for reply in ("b", "c"):
        assert_refused(alice.run("join", str(usb / reply)), "answers no open invitation")


def test_it_ends(homes: tuple[Home, Home, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob, usb = homes
    done(alice.run("invite", "bob", "--to", str(usb / "i"), "--days", "1"))
    done(bob.run("join", str(usb / "i")))
    reply = invite.parse_text("", invite.read_file(usb / "i.reply"))
    given = invite.parse_text("", invite.read_file(usb / "i"))
    assert isinstance(reply, Reply) and isinstance(given, Invitation)
    later_ms = clock.wall_ms() + 2 * 86_400_000
    monkeypatch.setattr(clock, "wall_ms", lambda: later_ms)
    with pytest.raises(KeysError, match="has ended"):
        invite.answered(config.load(alice.path), reply)
    assert not list((alice.path / "keys").glob("*.pairing")), "and its private key is gone"
    with pytest.raises(KeysError, match="has ended"):
        invite.accept(config.load(bob.path), given, "stick:", False)


def test_it_is_withdrawn(homes: tuple[Home, Home, Path]) -> None:
    """Before and after the other end joined; its file then gives keys to nobody."""
    alice, bob, usb = homes
    file = str(usb / "i")
    done(alice.run("invite", "bob", "--to", file))
    [waiting] = invite.pairings(config.load(alice.path))
    assert "bob: withdrawn" in done(alice.run("invite", "bob", "--withdraw"))
    assert not files_with(alice.path, waiting.private.reveal()), "its private key is gone"
    assert keys_column(alice) == []
    done(bob.run("join", file))  # nothing tells it; the reply is what is refused
    assert_refused(alice.run("join", str(usb / "i.reply")), "answers no open invitation")
    none_waits = "bob: no invitation and no join waits; there are: none"
    assert_refused(
        alice.run("invite", "bob", "--withdraw"), none_waits, status=exit_codes.NOT_THERE
    )
    # Who joined ends it at its own end.
    answer = json.loads(done(bob.run("invite", "alice", "--withdraw", "--json")))
    assert answer == {"peer": "alice", "state": "withdrawn"} and keys_column(bob) == []
    # With the reply taken in, too: the right words come too late.
    done(alice.run("invite", "bob", "--to", str(usb / "j")))
    bob_words = words_of(bob, "join", str(usb / "j"))
    words_of(alice, "join", str(usb / "j.reply"))
    done(alice.run("invite", "bob", "--withdraw"))
    assert_refused(
        confirm(alice, "bob", bob_words),
        "nobody of that name has joined",
        status=exit_codes.NOT_THERE,
    )
    assert look(alice.path / "keys", B_ID) == []


def test_what_withdraw_refuses(homes: tuple[Home, Home, Path]) -> None:
    alice, _, usb = homes
    (alice.path / "out.pairing").touch()
    assert_refused(
        alice.run("invite", "../out", "--withdraw"),
        "no invitation and no join waits",
        status=exit_codes.NOT_THERE,
    )
    assert (alice.path / "out.pairing").exists()
    for more in ([], ["--to", str(usb / "x"), "--withdraw"]):
        refused = alice.run("invite", "bob", *more)
        assert refused.returncode == 2 and "either --to FILE, or" in refused.stderr
    assert not (usb / "x").exists()


def test_who_stands_in_between_is_found_by_the_words(
    homes: tuple[Home, Home, Path], make_home: MakeHome
) -> None:
    """Mallory swaps both files: each end pairs with it, and the words tell."""
    alice, bob, usb = homes
    to_bob = make_home("m", A + 1)
    to_bob.path.joinpath("drupelet.toml").write_text(
        alice.path.joinpath("drupelet.toml").read_text()
    )  # pretends to be alice
    to_alice = make_home("n", B + 1)
    to_alice.path.joinpath("drupelet.toml").write_text(
        bob.path.joinpath("drupelet.toml").read_text()
    )
    done(alice.run("invite", "bob", "--to", str(usb / "i1")))
    done(to_alice.run("join", str(usb / "i1")))
    done(to_bob.run("invite", "bob", "--to", str(usb / "i2")))
    bob_words = words_of(bob, "join", str(usb / "i2"))
    alice_words = words_of(alice, "join", str(usb / "i1.reply"))
    assert_refused(confirm(alice, "bob", bob_words), "those are not its words", "invite")
    assert_refused(confirm(bob, "alice", alice_words), "those are not its words")
    for home in (alice, bob):
        assert not list((home.path / "keys").glob("*.live"))


def test_what_join_and_confirm_refuse(homes: tuple[Home, Home, Path], make_home: MakeHome) -> None:
    alice, bob, usb = homes
    file = usb / "i"
    done(alice.run("invite", "bob", "--to", str(file)))
    assert_refused(alice.run("join", str(file)), "an invitation of this home")
    assert_refused(alice.run("invite", "bob", "--to", str(file)), "is there already")
    assert_refused(alice.run("invite", "alice", "--to", str(usb / "x")), "is this home itself")
    assert_refused(alice.run("invite", "../x", "--to", str(usb / "x")), "is no name of a member")
    assert_refused(
        confirm(bob, "alice", "x"),
        "nobody of that name has joined; there are: none",
        status=exit_codes.NOT_THERE,
    )
    assert_refused(bob.run("join", str(usb)), "no ordinary file")
    assert_refused(
        bob.run("join", str(usb / "none")), "cannot be read", status=exit_codes.NOT_THERE
    )
    (usb / "junk").write_bytes(os.urandom(100))
    assert_refused(bob.run("join", str(usb / "junk")), "damaged")
    other = make_home("carol", C)
    path = other.path / "drupelet.toml"
    path.write_text(path.read_text().replace('"orchard"', '"vineyard"'))
    assert_refused(other.run("join", str(file)), "group 'orchard', ours is 'vineyard'")
    # What it was invited under before is another device's here.
    known = make_home("dora", C + 1, Peer("alice", B_ID, "stick:"))
    assert_refused(known.run("join", str(file)), "another member has that name here")
    # The name was kept for a device that is known: nobody else joins in its place.
    done(alice.run("peer", "add", "bob", f"{C + 2:08x}", "stick:"))
    done(alice.run("invite", "bob", "--to", str(usb / "j")))
    done(bob.run("join", str(usb / "j")))
    assert_refused(alice.run("join", str(usb / "j.reply")), "not from the one that was invited")


@pytest.mark.parametrize("form", ["text", "words"])
def test_without_a_file(homes: tuple[Home, Home, Path], form: str) -> None:
    """On a screen and typed in: the line that a QR code holds, or words."""
    alice, bob, _ = homes
    option = ["--words"] if form == "words" else ["--qr"]

    def shown(result: subprocess.CompletedProcess[str]) -> str:
        lines = done(result).splitlines()
        first, *rest = lines
        assert first.startswith("DRUPELET:")
        if form == "text":
            assert any("█" in line or "▄" in line for line in rest), "a QR code"
            return first
        return "\n".join(
            line for line in rest if all(len(word) == 5 for word in line.split()) and line.strip()
            and not line.startswith(" ")
        )  # fmt: skip

    def typed(home: Home, text: str, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, "join", "-", "--home", str(home.path), *more],
            input=text, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    reply = shown(typed(bob, shown(alice.run("invite", "bob", "--to", "-", *option)), *option))
    assert "joined, unproved" in done(typed(alice, reply))
    slip = reply.replace("bab", "bob") if form == "words" else reply.replace("A", "B", 1)
    assert slip == reply or typed(alice, slip).returncode == 1


def test_an_agent_takes_up_who_was_confirmed(homes: tuple[Home, Home, Path]) -> None:
    alice, bob, usb = homes
    alice.start()
    url = f"stick://{usb}"
    done(alice.run("invite", "bob", "--to", str(usb / "i"), "--url", url))
    bob_words = words_of(bob, "join", str(usb / "i"))
    alice_words = words_of(alice, "join", str(usb / "i.reply"))
    done(confirm(alice, "bob", bob_words))
    done(confirm(bob, "alice", alice_words))
    wait_for(lambda: any(row["name"] == "bob" for row in alice.status()["peers"]), "the peer")
    bob.put("for alice")
    done(bob.run("stick", str(usb)))
    done(alice.run("stick", str(usb)))
    assert [row["text"] for row in alice.log()] == ["for alice"]


def test_a_cut_after_the_chains_were_written_begins_none_again(
    homes: tuple[Home, Home, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob, usb = homes
    done(alice.run("invite", "bob", "--to", str(usb / "i")))
    bob_words = words_of(bob, "join", str(usb / "i"))
    words_of(alice, "join", str(usb / "i.reply"))
    with monkeypatch.context() as patch:
        patch.setattr(private_files, "remove", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            invite.confirm(config.load(alice.path), "bob", bob_words)
    assert list((alice.path / "keys").glob("*.pairing"))
    alice.put("for bob")
    done(alice.run("stick", str(usb)))  # an epoch of the chain for sticks is used
    before = {path: path.read_bytes() for path in (alice.path / "keys").glob("*.[lb]*e")}
    assert max(state.epoch for state in look(alice.path / "keys", B_ID)) > 0
    done(confirm(alice, "bob", bob_words))
    after = {path: path.read_bytes() for path in before}
    assert before == after and not list((alice.path / "keys").glob("*.pairing"))


def test_a_stick_without_modes_takes_it(
    homes: tuple[Home, Home, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAT refuses to take the bits of others away; a key folder must not."""
    alice, _, usb = homes

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchmod", refused)
    invite.write_text(usb / "i", b"\x01\x01body")
    with pytest.raises(PermissionError):
        private_files.create(alice.path / "x", b"")


def test_keys_are_renewed_by_an_invitation(homes: tuple[Home, Home, Path]) -> None:
    alice, bob, usb = homes
    for time, again in enumerate(([], ["--again"])):
        file = usb / f"{time}.invite"
        done(alice.run("invite", "bob", "--to", str(file), *again))
        bob_words = words_of(bob, "join", str(file), *again)
        alice_words = words_of(alice, "join", str(file.with_suffix(".reply")))
        done(confirm(alice, "bob", bob_words))
        done(confirm(bob, "alice", alice_words))
        ours = look(alice.path / "keys", B_ID)
        assert {s.kid for s in ours} == {s.kid for s in look(bob.path / "keys", alice.id)}
        assert_refused(alice.run("invite", "bob", "--to", str(usb / "x")), "has keys already")
        assert_refused(bob.run("join", str(file)), "has keys already")


def test_the_bytes_are_those_of_the_specification() -> None:
    """docs/SPEC.md 8.3: any slip is found, and every length is even."""
    for name in ("a", "bo", "c" * 32):
        given = Invitation(b"\xa0\0\0\1", name, "gö", bytes(range(32)), 0x1234, 1_800_000_000, 16)
        data = invitation_bytes.sealed(given.body())
        assert len(data) % 2 == 0
        assert invitation_bytes.parse(data) == given
        assert invitation_bytes.from_text(invitation_bytes.to_text(given.body())) == given
        assert invitation_bytes.from_text(invitation_bytes.to_words(data)) == given
        for at in range(len(data)):
            with pytest.raises(KeysError):
                invitation_bytes.parse(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :])
            with pytest.raises(KeysError):
                invitation_bytes.parse(data[:at])
    for size in range(160):
        with pytest.raises(KeysError):
            invitation_bytes.parse(os.urandom(size))
        with pytest.raises(KeysError):
            invitation_bytes.parse(bytes((1, 1 + size % 2)) + os.urandom(size))
    assert invitation_bytes.to_words(bytes((127, 0, 0, 1))) == "lusab babad", (
        "of the proquint paper"
    )


INVITER_KEY, JOINER_KEY = bytes(range(32)), bytes(range(32, 64))


def derived(given: bytes, unproved: bytes, secret: bytes) -> tuple[bytes, str, str]:
    """Proof, inviter's words and joiner's words, from the formulas of docs/SPEC.md alone."""
    transcript = hashlib.sha256(given + unproved).digest()
    key = hmac.digest(bytes(32), secret, "sha256")  # HKDF without salt, RFC 5869
    keys, block = b"", b""
    for count in range(1, 4):
        info = b"drupelet invitation 1" + transcript
        block = hmac.digest(key, block + info + bytes((count,)), "sha256")
        keys += block
    root, confirmation = keys[:32], keys[32:64]
    ends = b"\xb0\0\0\2", b"\xa0\0\0\1"  # the joiner sends in rows 0 and 4, receives in 2 and 6
    chains = [
        hmac.digest(root, b"DRP1 ck" + bytes((carrier_class,)) + b"".join(pair), "sha256")
        for carrier_class in (0, 1) for pair in (ends, ends[::-1])
    ]  # fmt: skip
    chains.append(hmac.digest(root, b"DRP1 topic", "sha256"))
    answers = [hmac.digest(ck, b"proof" + transcript[:16], "sha256")[:16] for ck in chains]
    proof = hmac.digest(confirmation, b"".join(answers), "sha256")[:16]
    return proof, invitation_bytes.to_words(keys[64:72]), invitation_bytes.to_words(keys[72:80])


def test_the_example_of_the_specification() -> None:
    page = spec_text()
    section = page[page.index("### 8.3") : page.index("## 9 ")]
    example = dict(re.findall(r"^(\w+)  +(.+)$", section.split("```")[-2], flags=re.M))
    publics = [
        X25519PrivateKey.from_private_bytes(key).public_key() for key in (INVITER_KEY, JOINER_KEY)
    ]
    given = Invitation(
        A.to_bytes(4), "alice", "orchard", publics[0].public_bytes_raw(), 0x1230, 1_800_000_000, 8
    )
    unproved = Reply(given.digest(), B_ID, "bob", publics[1].public_bytes_raw())
    secret = X25519PrivateKey.from_private_bytes(JOINER_KEY).exchange(publics[0])
    proof, inviter_words, joiner_words = derived(given.body(), unproved.body(), secret)
    assert example == {
        "invitation": invitation_bytes.sealed(given.body()).hex(),
        "Z": secret.hex(),
        "proof": proof.hex(),
        "reply": invitation_bytes.sealed(replace(unproved, proof=proof).body()).hex(),
        "inviter": inviter_words,
        "joiner": joiner_words,
    }
    # Both ends of the program say the same of it.
    reply = invitation_bytes.parse(bytes.fromhex(example["reply"]))
    assert isinstance(reply, Reply)
    for joiner, key, words in (
        (False, INVITER_KEY, inviter_words),
        (True, JOINER_KEY, joiner_words),
    ):
        pairing = invite.Pairing("x", joiner, given, Secret(key), reply, "stick:")
        assert invite.proof_of(pairing) == reply.proof
        assert pairing.our_words == words


def test_a_key_of_small_order_is_refused(homes: tuple[Home, Home, Path]) -> None:
    alice, bob, _ = homes
    invitation = Invitation(alice.id, "alice", "orchard", bytes(32), 0x1234, 1 << 39, 8)
    with pytest.raises(KeysError, match="none that may be used"):
        invite.accept(config.load(bob.path), invitation, "stick:", False)
    assert not list((bob.path / "keys").glob("*.pairing"))
