"""Keys for a host on another machine: invited, joined, and only then, the words compared, keyed.

    inviter  `invite`   an invitation file, and keys/<name>.pairing here          "invited"
    joiner   `join`     a reply file, and keys/<name>.pairing there, read back    "joined"
    inviter  `join`     the reply's proof holds                                   "joined"
    both     `confirm`  the other end's four words; now the chains are written    "has keys"

Until `confirm` no end has a chain that anything could be sealed with. The private key of a pairing
lies in the key folder (0600) and is overwritten at its end.
"""

import hmac
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from drupelet.base.errors import OK, CapacityError, DrupeletError, StorageError
from drupelet.seal.record import FLAG_ISSUER, FLAG_PACKS, FLAG_TAG16, install
from drupelet_host.base import clock
from drupelet_host.base.errors import DamagedError
from drupelet_host.home import config, private_files
from drupelet_host.home.config import Config, Peer
from drupelet_host.home.toml_table import is_name, shown
from drupelet_host.keys.invitation_bytes import (
    TEXT_SIZE_MAX,
    Invitation,
    InvitationError,
    Pair,
    Reply,
    from_text,
    from_words,
    new_key,
    pair,
    parse,
    sealed,
    to_text,
)
from drupelet_host.keys.key_folder import ROWS_OF, KeysError
from drupelet_host.keys.provision import HomeKeys, RamKeys, has_keys, kids_of, new_kid, write_side
from drupelet_host.keys.secret import Secret

# Invitations and joins that wait: as many as peers; each holds a key id.
PAIRINGS_MAX = config.PEERS_CONFIGURED_MAX
_DAY_S = 86_400
_SUFFIX = ".pairing"
_LOCK_NAME = "pairings.lock"
_FILE_SIZE_MAX = 8192
# As QR text or words; an invitation's longest is 6 letters for 2 bytes.
_TEXT_SIZE_MAX = 3 * (3 * TEXT_SIZE_MAX)

INVITED = "invited"
JOINED = "joined, unproved"


@dataclass(frozen=True)
class Pairing:
    """One that is under way, as its file has it. `url`: of a peer that is not configured yet."""

    name: str
    joiner: bool
    invitation: Invitation
    private: Secret
    reply: Reply | None
    url: str

    @property
    def state(self) -> str:
        """INVITED or JOINED."""
        return JOINED if self.reply is not None else INVITED

    @property
    def peer_id(self) -> bytes:
        """The other end's id; b"" before it replied."""
        if self.joiner:
            return self.invitation.id
        return self.reply.id if self.reply is not None else b""

    def pair(self) -> Pair:
        """What both ends share; only once there is a reply."""
        assert self.reply is not None
        return pair(self.invitation, self.reply, self.private, self.joiner)

    @property
    def our_words(self) -> str:
        """What the user here says to the other end's."""
        shared = self.pair()
        return shared.joiner_words if self.joiner else shared.inviter_words


def pairings(settings: Config) -> list[Pairing]:
    """Every one of a home, by name; raises PrivateError or StorageError."""
    folder = settings.keys_path
    private_files.check(folder)
    paths = sorted(folder.glob("*" + _SUFFIX)) if folder.is_dir() else []
    return [_load(path) for path in paths]


def _load(path: Path) -> Pairing:
    content = private_files.read(path, _FILE_SIZE_MAX)
    try:
        kept = json.loads(content)
        invitation = parse(bytes.fromhex(kept["invitation"]))
        reply = parse(bytes.fromhex(kept["reply"])) if kept["reply"] else None
        pairing = Pairing(
            path.name.removesuffix(_SUFFIX), bool(kept["joiner"]), invitation,  # type: ignore[arg-type]
            Secret(bytes.fromhex(kept["private"])), reply, str(kept["url"]),  # type: ignore[arg-type]
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, KeysError):
        raise DamagedError(f"{path}: damaged; remove it, then invite anew") from None
    if not isinstance(invitation, Invitation) or isinstance(reply, Invitation):
        raise DamagedError(f"{path}: damaged; remove it, then invite anew")
    return pairing


def _save(settings: Config, pairing: Pairing) -> None:
    kept = {
        "joiner": pairing.joiner,
        "invitation": sealed(pairing.invitation.body()).hex(),
        "private": pairing.private.reveal().hex(),
        "reply": sealed(pairing.reply.body()).hex() if pairing.reply is not None else "",
        "url": pairing.url,
    }
    private_files.replace(_path(settings, pairing.name), json.dumps(kept).encode())


def _path(settings: Config, name: str) -> Path:
    return settings.keys_path / (name + _SUFFIX)


@contextmanager
def _changing(settings: Config) -> Iterator[list[Pairing]]:
    """What is under way, while no other command changes it; what has expired is gone."""
    private_files.make_folder(settings.keys_path)
    with private_files.locked(settings.keys_path / _LOCK_NAME):
        waiting = []
        for pairing in pairings(settings):
            if pairing.invitation.expires_s < _now_s():
                private_files.remove(_path(settings, pairing.name))
            else:
                waiting.append(pairing)
        yield waiting


def _now_s() -> int:
    return max(0, clock.wall_ms() // 1000)


# --- the steps ---


def invite(
    settings: Config, name: str, url: str, days: int, tag_size: int, again: bool
) -> Invitation:
    """Make an invitation and keep its private key; an earlier one for the name is void."""
    peer = _configured(settings, name)
    if not is_name(name):
        raise KeysError(
            f"{shown(name)}: is no name of a member; use letters, digits, '.', '-', '_'"
        )
    if name == settings.name or (peer is not None and peer.id == settings.id):
        raise KeysError(f"{name}: is this home itself")
    if peer is not None and has_keys(settings, peer.id) and not again:
        raise KeysError(
            f"{name}: has keys already; `drupelet rotate {name}` renews them from afar, --again"
            " replaces them"
        )
    with _changing(settings) as waiting:
        others = [pairing for pairing in waiting if pairing.name != name]
        if len(others) >= PAIRINGS_MAX:
            raise CapacityError(
                f"{PAIRINGS_MAX} invitations and joins wait already; confirm some with"
                " `drupelet confirm`, or end some with `drupelet invite NAME --withdraw`"
            )
        taken = kids_of(settings.keys_path) | {pairing.invitation.kid for pairing in others}
        key, public = new_key()
        invitation = Invitation(
            settings.id, settings.name, settings.group, public, new_kid(taken),
            _now_s() + days * _DAY_S, tag_size,
        )  # fmt: skip
        invitation.body()  # a group that is too long is refused before anything is kept
        _save(settings, Pairing(name, False, invitation, key, None, url))
    return invitation


def withdraw(settings: Config, name: str) -> None:
    """Forget what is under way with a peer, its private key first; or NotThereError."""
    with _changing(settings) as waiting:
        names = [pairing.name for pairing in waiting]
        if name not in names:
            raise config.NotThereError(
                f"{name}: no invitation and no join waits; there are: {', '.join(names) or 'none'}"
            )
        private_files.remove(_path(settings, name))


def accept(settings: Config, invitation: Invitation, url: str, again: bool) -> Pairing:
    """Join with an invitation: keep what it takes, read it back, and prove it in the reply.

    The same invitation again gives the same reply: one that was lost is written again.
    """
    if invitation.id == settings.id:
        raise KeysError("is an invitation of this home; `drupelet join` it at the other machine")
    if invitation.expires_s < _now_s():
        raise KeysError(
            "the invitation has ended, by the clock of this machine; ask for a new one, or set it"
        )
    if invitation.group != settings.group:
        raise KeysError(
            f"it invites into group {shown(invitation.group)}, ours is {shown(settings.group)}:"
            " nothing would arrive; make `group` in drupelet.toml the same"
        )
    name = _name_for(settings, invitation.id, invitation.name)
    if has_keys(settings, invitation.id) and not again:
        raise KeysError(f"{name}: has keys already; --again replaces them")
    with _changing(settings) as waiting:
        for pairing in waiting:
            if pairing.joiner and pairing.invitation == invitation:
                return pairing
        others = [pairing for pairing in waiting if pairing.name != name]
        if len(others) >= PAIRINGS_MAX:
            raise CapacityError(f"{PAIRINGS_MAX} invitations and joins wait already; confirm some")
        taken = kids_of(settings.keys_path) | {pairing.invitation.kid for pairing in others}
        if invitation.kid in taken:
            raise KeysError(
                f"{name}: another peer of this home has its key id; ask for another invitation"
            )
        key, public = new_key()
        reply = Reply(invitation.digest(), settings.id, settings.name, public)
        pairing = Pairing(name, True, invitation, key, reply, url)
        proof_of(pairing)  # refuses a public key that is none before anything is kept
        _save(settings, replace(pairing, reply=replace(reply, proof=proof_of(pairing))))
        kept = _load(_path(settings, name))
        assert kept.reply is not None
        # What goes out is proved by what was read back.
        proved = replace(kept, reply=replace(kept.reply, proof=proof_of(kept)))
        _save(settings, proved)
    return proved


def proof_of(pairing: Pairing) -> bytes:
    """The proof over the joiner's records: by the joiner, or what the inviter expects."""
    chains = _records(pairing, of_joiner=True)
    try:
        return pairing.pair().proof([bytes(chains.records[row]) for row in sorted(chains.records)])
    finally:
        chains.wipe()


def _records(pairing: Pairing, of_joiner: bool) -> RamKeys:
    """The chains with which one end begins (docs/SPEC.md 11.2)."""
    assert pairing.reply is not None
    invitation, reply = pairing.invitation, pairing.reply
    ids = (reply.id, invitation.id) if of_joiner else (invitation.id, reply.id)
    chains = RamKeys(*ids)
    flags = FLAG_PACKS  # only hosts join by invitation
    flags |= FLAG_TAG16 if invitation.tag_size == 16 else 0
    flags |= FLAG_ISSUER if of_joiner else 0  # the inviter may rotate and revoke them later
    code = install(chains, pairing.pair().root.reveal(), invitation.kid, 0, flags)
    assert code == OK, "RamKeys keeps everything"
    return chains


def answered(settings: Config, reply: Reply) -> Pairing:
    """Take in the reply to an invitation of ours, once; what is kept waits for `confirm`."""
    with _changing(settings) as waiting:
        ours = [pairing for pairing in waiting if not pairing.joiner]
        pairing = next((p for p in ours if p.invitation.digest() == reply.digest), None)
        if pairing is None:
            raise KeysError(
                "answers no open invitation of this home: that was used already, has ended, was"
                " replaced by a newer one, or is another home's"
            )
        name = pairing.name
        if pairing.reply is not None and pairing.reply != reply:
            raise KeysError(
                f"{name}: {pairing.reply.name} ({pairing.reply.id.hex()}) has joined with this"
                f" invitation already, and it is good once; if you gave it to one only, somebody"
                f" copied it: `drupelet invite {name}` anew"
            )
        peer = _configured(settings, name)
        if reply.id == settings.id or (peer is not None and peer.id != reply.id):
            raise KeysError(
                f"{name}: the reply is from {reply.id.hex()}, not from the one that was invited;"
                " look at `drupelet id` there"
            )
        if peer is None:
            _refuse_other_name(settings, reply.id, name)
        pairing = replace(pairing, reply=reply)
        if not hmac.compare_digest(proof_of(pairing), reply.proof):
            raise KeysError(
                f"{name}: the reply does not prove that it holds the keys; repeat `drupelet join`"
                " there"
            )
        _save(settings, pairing)
    return pairing


def confirm(settings: Config, name: str, words: str) -> Pairing:
    """Compare the other end's words; if they are right, write the keys and know the peer."""
    with _changing(settings) as waiting:
        pairing = next((p for p in waiting if p.name == name and p.reply is not None), None)
        if pairing is None:
            raise config.NotThereError(
                f"{name}: nobody of that name has joined; there are:"
                f" {', '.join(p.name for p in waiting if p.reply is not None) or 'none'}"
            )
        shared = pairing.pair()
        expected = shared.inviter_words if pairing.joiner else shared.joiner_words
        if not hmac.compare_digest(from_words(words), from_words(expected)):
            raise KeysError(
                f"{name}: those are not its words; hear them once more, letter by letter. If they"
                " stay different, somebody else joined: begin anew with `drupelet invite`"
            )
        if _configured(settings, name) is None:
            _refuse_other_name(settings, pairing.peer_id, name)
            config.add_peer(
                settings.home,
                Peer(name, pairing.peer_id, pairing.url, epoch_ms=settings.epoch_ms, board="host"),
            )
        _install(settings, pairing)
        private_files.remove(_path(settings, name))
    return pairing


def _install(settings: Config, pairing: Pairing) -> None:
    """Write the chains of our side and read them back.

    A cut may have come after they were written: what has begun is not begun again.
    """
    chains = _records(pairing, of_joiner=pairing.joiner)
    ours = HomeKeys(settings.keys_path, settings.id, pairing.peer_id)
    kid = pairing.invitation.kid
    written_classes = {state.carrier_class for state in ours.states() if state.kid & ~3 == kid}
    steps = [rows for number, rows in enumerate(ROWS_OF) if number not in written_classes]
    try:
        try:
            write_side(ours, chains, steps)
        except KeysError:
            ours.put_back()
            raise
        ours.forget_rotation()
    finally:
        ours.finish()
        chains.wipe()


def _configured(settings: Config, name: str) -> Peer | None:
    return next((peer for peer in settings.peers if peer.name == name), None)


def _name_for(settings: Config, id: bytes, name: str) -> str:
    """What a peer is called here; raises KeysError when its own name is another one's."""
    known = settings.names().get(id.hex())
    if known is not None:
        return known
    if name in settings.names().values():
        raise KeysError(
            f"{name}: another member has that name here; rename it in drupelet.toml, then join"
        )
    if not is_name(name):
        raise InvitationError("it names no member; make a new invitation")
    return name


def _refuse_other_name(settings: Config, id: bytes, name: str) -> None:
    known = settings.names().get(id.hex())
    if known is not None and known != name:
        raise KeysError(f"{name}: its id {id.hex()} is that of {known}; invite {known} instead")


# --- files, and what is typed ---


def write_text(path: Path, body: bytes) -> None:
    """A new file with an invitation or a reply, for its owner only where files have modes.

    The same text may be there already. Raises KeysError or StorageError.
    """
    text = (to_text(body) + "\n").encode()
    try:
        private_files.create(path, text, has_modes=False)
    except FileExistsError:
        with suppress(DrupeletError):
            if read_file(path).encode() == text:
                return
        raise KeysError(f"{path}: is there already; name another file, or remove it") from None
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror})") from None


def read_file(path: Path) -> str:
    """The text of an invitation or a reply; raises StorageError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise StorageError(f"{path}: is no ordinary file; name the invitation or reply")
            content = os.read(fd, _TEXT_SIZE_MAX + 1)
        finally:
            os.close(fd)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read ({error.strerror})") from None
    return _decoded(str(path), content)


def read_typed() -> str:
    """What is typed or piped in, to its end."""
    return _decoded("standard input", sys.stdin.buffer.read(_TEXT_SIZE_MAX + 1))


def _decoded(where: str, content: bytes) -> str:
    if len(content) > _TEXT_SIZE_MAX or not content.isascii():
        raise InvitationError(f"{where}: is no invitation and no reply, or damaged; copy it again")
    return content.decode()


def parse_text(where: str, text: str) -> Invitation | Reply:
    """As `from_text`; what is wrong is told with where it came from."""
    try:
        return from_text(text)
    except InvitationError as error:
        raise InvitationError(f"{where}: {error}") from None
