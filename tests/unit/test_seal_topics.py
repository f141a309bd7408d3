"""Where a broker finds a link: both ends tell the same names from what they keep."""

import re

from drupelet.base.errors import OK
from drupelet.seal.record import FLAG_ISSUER, FLAG_WAITING, NAME, RENAMED, row_of
from drupelet.seal.seal import CLASS_LIVE, Seal, SealContext
from drupelet.seal.topic_names import topics
from drupelet_host.base.aead import Aead
from seal_ends import A_ID, B_ID, KID, ROOT, Bytes, RamKeys, install


def seal_of(keys: RamKeys) -> Seal:
    seal = Seal(SealContext(Aead(), Bytes(1), bytes(4)), keys, CLASS_LIVE)
    assert seal.load() == OK
    return seal


def both(root: bytes = ROOT) -> list[RamKeys]:
    ends = [RamKeys(A_ID, B_ID), RamKeys(B_ID, A_ID)]
    for keys in ends:
        assert install(keys, root, KID, 0, FLAG_ISSUER) == OK
    return ends


def test_each_sends_where_the_other_listens_and_nothing_else_tells_it() -> None:
    a, b = both()
    (in_a,), out_a = topics(seal_of(a))
    (in_b,), out_b = topics(seal_of(b))
    assert (in_a, in_b) == (out_b, out_a) and in_a != in_b
    for name in (in_a, in_b):
        assert re.fullmatch(rb"[A-Za-z0-9_-]{8}", name)
    others = {topics(seal_of(keys))[1] for n in range(200) for keys in both(bytes([n]) * 32)}
    assert len(others) == 400 and not others & {in_a, in_b}
    assert all(re.fullmatch(rb"[A-Za-z0-9_-]{8}", name) for name in others)


def test_while_a_rotation_is_under_way_the_names_of_both_roots_are_listened_to() -> None:
    a, b = both()
    (old_in,), old_out = topics(seal_of(a))
    root = bytes(range(32, 64))
    assert install(a, root, KID, 1, FLAG_WAITING) == OK
    inboxes, out = topics(seal_of(a))  # the issuer, before the peer was heard: also after a boot
    assert len(inboxes) == 2 and old_in in inboxes and out == old_out
    assert install(b, root, KID, 1, FLAG_ISSUER) == OK
    inboxes_b, out_b = topics(seal_of(b))  # the device: it sends under the new root
    assert out_b in inboxes and out_b != old_in and old_out in inboxes_b


def test_a_pair_from_before_there_were_names_keeps_its_key_ids() -> None:
    a, b = both()
    for keys in (a, b):
        assert keys.drop(row_of(NAME, 0, 0)) == OK
    (in_a,), out_a = topics(seal_of(a))
    (in_b,), out_b = topics(seal_of(b))
    assert (in_a, in_b) == (out_b, out_a)
    assert {in_a, in_b} == {b"%04x" % KID, b"%04x" % (KID | 1)}


def test_no_key_stays_in_the_shared_record() -> None:
    seal = seal_of(both()[0])
    assert seal.flags & RENAMED, "a carrier that is opened asks for them"
    topics(seal)
    assert seal.context.record[16:48] == bytes(32)
