"""What a host tells of revoked devices counts once the peer has answered (docs/SPEC.md 11.7)."""

import pytest

from drupelet.base.limits import SEAL_CONTROL_MS, SEAL_JUMP, SEAL_REVOKE_SENDS
from drupelet.seal.issue import Issuer
from drupelet.seal.seal import TYPE_CONTROL
from drupelet_host.base.aead import Aead
from seal_ends import Witness, meet, pair


@pytest.fixture
def ends():
    aead = Witness(Aead())
    yield pair(aead)
    assert aead.reused == 0


def test_who_is_away_is_told_of_a_revocation_when_it_is_back(ends):
    a, b = ends
    meet(a, b)
    issuer = Issuer(a.seal)
    issuer.revoke(b"CCCC")
    epoch = a.seal.out_epoch
    for n in range(100):
        if n % 9 == 0:
            a.seal.renew = True
        a.seal.prepare()
        while text := issuer.due(n * SEAL_CONTROL_MS):
            a.send(text, TYPE_CONTROL)  # nobody is there
        issuer.settle()
    assert issuer.revoked == {b"CCCC\0\0": SEAL_REVOKE_SENDS}
    # Not an epoch for each time that it was told in vain.
    assert a.seal.out_epoch - epoch <= 12 + SEAL_JUMP
    # Nor does what the peer answered before count.
    b.boot()
    meet(a, b)
    for n in range(20):
        a.seal.prepare()
        while text := issuer.due(n):
            b.take(a.send(text, TYPE_CONTROL))
        b.take(a.send(b"?"))
        a.take(b.send(b"!"))
    assert len(b.keys.revoked) >= SEAL_REVOKE_SENDS - 1 and issuer.revoked == {}


def test_an_answer_from_before_is_none(ends):
    a, b = ends
    meet(a, b)
    assert a.seal.answered == a.seal.out_epoch
    issuer = Issuer(a.seal)
    issuer.revoke(b"CCCC")
    issuer.due(0)
    issuer.settle()
    assert issuer.revoked == {b"CCCC\0\0": SEAL_REVOKE_SENDS}
    issuer.waiting_epoch = 99  # of a chain that there is no more
    issuer.settle()
    assert issuer.waiting_epoch == 0
