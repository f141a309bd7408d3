"""What a filter of nim-sds says when it was received (docs/spec/wire.md 12.5)."""

import pytest

from drupelet.wire.sds.nim import NimBloom, read_filter


@pytest.mark.parametrize(("kind", "size"), [(1, 8), (5, 4)])
def test_a_field_of_a_kind_that_no_filter_has_changes_nothing(kind: int, size: int) -> None:
    """FIXED64 and FIXED32 stand for other fields of a later version."""
    bloom = NimBloom(100, 0.001, 4, 10, True)
    bloom.add(b"a message")
    stranger = bytes((1 << 3 | kind,)) + bytes(size)
    received = read_filter(bloom.wire() + stranger)
    assert received is not None
    assert received.words == bytes(bloom.words)
    assert received.has(b"a message", True)
    assert not received.has(b"another one", True)
