"""Fixtures of the carriers' tests."""

import pytest

from drupelet_host.base.aead import Aead
from seal_ends import Witness, pair
from transports.sealed_bundles import Member


@pytest.fixture
def members(tmp_path):
    """Two devices at one stick; no nonce is used twice."""
    aead = Witness(Aead())
    ends = pair(aead, carrier_class=1)
    yield [Member(tmp_path, end) for end in ends]
    assert aead.reused == 0
