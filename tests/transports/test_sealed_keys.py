"""Bundles that bring new roots and revocations, and the answers that they want."""

import pytest

from drupelet.base.errors import E_STORAGE, OK
from drupelet.seal.issue import Issuer, rekey
from drupelet_host.agent.issuing_visit import IssuingVisit
from seal_ends import A_ID, B_ID, KID
from transports.sealed_bundles import Member, bundles

ROOT = bytes(range(100, 132))


class IssuingMember(Member):
    """It tells the other what `issuer` has to say."""

    issuer: Issuer

    def go(self, out=(), save=True):
        self.link.due += out
        assert self.stick.present()
        visit = self.visit = IssuingVisit(
            self.stick, {B_ID: self.end.seal}, bytearray(1024), self.clock, lambda: None,
            bytearray(1024),
        )  # fmt: skip
        visit.issuers[B_ID] = self.issuer
        visit.take_in(self.link, B_ID)
        code = visit.hand_out(self.link, B_ID)
        assert not save or visit.saved() == OK
        return code


@pytest.fixture
def issuing(members):
    a, b = members
    a.__class__ = IssuingMember
    a.issuer = Issuer(a.end.seal)
    return a, b


def rotate(a):
    assert rekey(a.end.keys, ROOT, KID, 1, 0) == OK
    a.issuer.rekey(ROOT, 1)


def test_a_new_root_is_answered_by_who_has_nothing_else_to_say(issuing, tmp_path):
    a, b = issuing
    a.go([b"x"])
    b.go([b"y"])
    a.go()
    b.go()
    rotate(a)
    a.go()
    assert not a.issuer.rekeyed
    b.go()
    assert b.visit.bundles_out == 1
    a.go()
    assert a.issuer.rekeyed and a.end.seal.generation_in == 1
    for _ in range(3):
        for member in issuing:
            member.go()
            assert member.visit.bundles_out == 0
    assert len(bundles(tmp_path)) <= 2


def test_an_answer_that_was_lost_is_written_again_when_the_root_is_told_again(issuing):
    a, b = issuing
    rotate(a)
    a.go()
    b.stick.writer = lambda *_: pytest.fail("a bundle")  # the power goes while it is written
    with pytest.raises(pytest.fail.Exception):
        b.go()
    del b.stick.writer
    b.end.boot()
    b.link.bundle_in = 1
    a.go()
    b.go()
    assert b.visit.bundles_out == 1
    a.go()
    assert a.issuer.rekeyed


@pytest.mark.parametrize("reboots", [False, True])
def test_a_revocation_that_cannot_be_kept_now_is_read_again(issuing, reboots):
    a, b = issuing
    a.issuer.revoke(b"CCCC", KID, sends=1)
    a.go([b"x"])
    a.go([b"z"])  # a bundle behind it, which says it again: nobody has answered
    keys = b.end.keys
    obey = keys.revoke
    keys.revoke = lambda *_: E_STORAGE
    b.go()
    assert b.link.bundle_in == 0 and b.visit.bundles_in == 0
    keys.revoke = obey
    if reboots:
        b.end.boot()
    b.go()
    assert keys.revoked == [b"CCCC" + KID.to_bytes(2)] * 2
    assert b.link.bundle_in == 2 and b.link.got == [b"x", b"z"]
    assert A_ID == b.end.keys.peer_id
