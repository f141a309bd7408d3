"""The rateless sketch: what it decodes, what it costs, and what hostile bytes cannot do."""

import random
from collections.abc import Iterable
from hashlib import blake2s

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drupelet.base.errors import E_PEER, CapacityError
from drupelet.base.limits import SKETCH_ELEMENTS_MAX, SKETCH_SYMBOLS_MAX
from drupelet.wire.protobuf_bytes import varint
from drupelet.wire.sketch import solve
from drupelet.wire.sketch.sketch import (
    DONE,
    LIST,
    MORE,
    SYMBOL_SIZE,
    SYMBOLS,
    WAIT,
    Coder,
    Element,
    Sketch,
    first_symbols,
    linear_symbols,
)
from drupelet.wire.sketch.solve import Decoder

FRAME_SIZE = 1000  # room for one record in a frame of 1,024 bytes
SALT = b"salt"
# 20 ids of the bytes 1, 2 ... 20, salt 01020304: the first record (docs/SPEC.md).
VECTOR_RECORD = (
    "000102030414001414141414141414aab9997d0202020202020202b689aab6"
    "1111111111111111c60f86e209090909090909091d073258"
)
# What is around the records here: frame kind, and type, extended type and 16-bit size.
FRAME_HEADER_SIZE = 1
RECORD_HEADER_SIZE = 4
HELLO_SIZE = 1 + 12

prefixes = st.binary(min_size=8, max_size=8)
sets = st.sets(prefixes, max_size=60)
# Ids that have nothing in common within 8 bytes.
id_sets = sets.map(lambda prefixes: {prefix * 4 for prefix in prefixes})


def symbols_record(held: int, first: int, symbols: bytes, salt: bytes = SALT) -> bytes:
    return bytes((SYMBOLS,)) + salt + varint(held) + varint(first) + symbols


def short(ids: Iterable[bytes]) -> set[bytes]:
    return {id[:8] for id in ids}


def draw(rng: random.Random, count: int) -> list[bytes]:
    return [rng.randbytes(32) for _ in range(count)]


def exchange(theirs: list[bytes], ours: list[bytes], salt: bytes) -> tuple[Sketch, Decoder]:
    """Run the exchange without loss; `sketch` is of the side that lost state."""
    sketch, decoder = Sketch(theirs, salt), Decoder(ours)
    for _ in range(100):
        while record := sketch.next(FRAME_SIZE):
            assert len(record) <= FRAME_SIZE
            assert decoder.add(record) >= 0
        if sketch.verdict != WAIT:
            return sketch, decoder
        for answer in decoder.answers(FRAME_SIZE):
            assert len(answer) <= FRAME_SIZE
            assert sketch.hear(answer) >= 0
    raise AssertionError("no end")


def cost(held: int, missing: int, extra: int, rng: random.Random) -> tuple[int, int]:
    """Return all bytes of one recovery but the messages, and its round trips.

    Both have `held`, the side that lost state lacks `missing` and alone has `extra`. One HELLO
    each way, then a frame for every record behind the first one of each side.
    """
    ids = draw(rng, held + missing + extra)
    theirs, ours = ids[:held] + ids[held + missing :], ids[: held + missing]
    sketch, decoder = Sketch(theirs, rng.randbytes(4)), Decoder(ours)
    total, trips, records = 2 * HELLO_SIZE, 0, 0
    while sketch.verdict == WAIT:
        trips += 1
        before = records
        while record := sketch.next(FRAME_SIZE):
            records += 1
            total += FRAME_HEADER_SIZE + RECORD_HEADER_SIZE + len(record)
            decoder.add(record)
        assert records > before
        for answer in decoder.answers(FRAME_SIZE):
            total += FRAME_HEADER_SIZE + RECORD_HEADER_SIZE + len(answer)
            sketch.hear(answer)
    if sketch.verdict == LIST:
        return total + FRAME_HEADER_SIZE + RECORD_HEADER_SIZE + 8 * len(theirs), trips + 1
    assert set(decoder.surplus) == set(ids[held : held + missing])
    assert set(decoder.missing) == short(sketch.wanted) == short(ids[held + missing :])
    return total, trips


# --- symbols ---


def naive_indices(prefix: bytes, salt: bytes, end: int) -> list[int]:
    """The mapping as docs/SPEC.md words it, by search."""
    mask = (1 << 64) - 1
    state = int.from_bytes(blake2s(prefix, key=salt, digest_size=12).digest()[4:], "big")
    indices, at = [], 0
    while at < end:
        indices.append(at)
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        r = ((z ^ (z >> 31)) >> 32) + 1
        goal = (at + 1) * (at + 2) << 32
        at += 1
        while at < end and (at + 1) * (at + 2) * r < goal:
            at += 1
    return indices


@settings(max_examples=50, deadline=None)
@given(prefixes, st.binary(min_size=4, max_size=4))
def test_an_element_maps_as_the_specification_says(prefix: bytes, salt: bytes) -> None:
    element = Element(int.from_bytes(prefix, "big"), salt)
    at, indices = 0, []
    while at < 300:
        indices.append(at)
        at = element.after(at)
    assert indices == naive_indices(prefix, salt, 300)


def test_density_falls_as_two_over_index_and_two() -> None:
    rng = random.Random(1)
    hits = [0] * 40
    for prefix in draw(rng, 4000):
        for at in naive_indices(prefix[:8], SALT, 40):
            hits[at] += 1
    for at, count in enumerate(hits):
        expected = 4000 * 2 / (at + 2)
        assert abs(count - expected) <= 5 * (expected * at / (at + 2)) ** 0.5


def test_symbols_of_a_known_set() -> None:
    sketch = Sketch([bytes((n,)) * 32 for n in range(1, 21)], b"\x01\x02\x03\x04")
    assert sketch.next(100) == bytes.fromhex(VECTOR_RECORD)


@settings(max_examples=60, deadline=None)
@given(sets, st.lists(st.integers(0, 30), max_size=6))
def test_every_first_part_of_the_stream_is_the_same(held: set[bytes], pieces: list[int]) -> None:
    whole = Coder(held, SALT).symbols(0, sum(pieces))
    coder = Coder(held, SALT)
    at = 0
    for piece in pieces:
        assert coder.symbols(at, piece) == whole[SYMBOL_SIZE * at : SYMBOL_SIZE * (at + piece)]
        assert coder.symbols(0, at) == whole[: SYMBOL_SIZE * at]
        at += piece


@settings(max_examples=60, deadline=None)
@given(sets, sets)
def test_symbols_of_two_sets_add_up_to_those_of_the_difference(
    one: set[bytes], other: set[bytes]
) -> None:
    left, right = Coder(one, SALT).symbols(0, 20), Coder(other, SALT).symbols(0, 20)
    both = bytes(a ^ b for a, b in zip(left, right, strict=True))
    assert both == Coder(one ^ other, SALT).symbols(0, 20)


# --- decoding ---


@settings(max_examples=150, deadline=None)
@given(id_sets, id_sets, id_sets, st.binary(min_size=4, max_size=4))
def test_what_is_decoded_is_the_difference(
    common: set[bytes], only_theirs: set[bytes], only_ours: set[bytes], salt: bytes
) -> None:
    theirs, ours = common | only_theirs, common | only_ours
    sketch, decoder = exchange(sorted(theirs), sorted(ours), salt)
    if decoder.verdict == DONE:
        assert sketch.wanted == theirs - ours
        assert set(decoder.missing) == short(theirs - ours)
        assert set(decoder.surplus) == ours - theirs
        assert len(decoder.missing) == len(set(decoder.missing))
    else:
        assert sketch.verdict == LIST
        assert not decoder.missing and not decoder.surplus


@pytest.mark.parametrize(
    ("held", "missing", "extra"),
    [(0, 1, 40), (1, 0, 30), (1, 29, 30), (300, 5, 20), (300, 20, 5), (300, 40, 40)],
)
def test_symbols_without_end_decode_any_difference(held: int, missing: int, extra: int) -> None:
    # The sender's symbols alone, one at a time: nothing is asked, so no list is cheaper.
    rng = random.Random(held + 31 * missing)
    for _ in range(5):
        ids = draw(rng, held + missing + extra)
        coder = Coder(short(ids[: held + extra]), SALT)
        decoder = Decoder(ids[:held] + ids[held + extra :])
        for at in range(200):
            # The decoder weighs symbols against a list of `held` prefixes; keep it curious.
            decoder.verdict = MORE if decoder.verdict == LIST else decoder.verdict
            decoder.add(symbols_record(held + extra, at, coder.symbols(at, 1)))
            if decoder.verdict == DONE:
                break
        assert set(decoder.missing) == short(ids[held : held + extra])
        assert set(decoder.surplus) == set(ids[held + extra :])


def test_equal_sets_need_one_record() -> None:
    ids = draw(random.Random(2), 500)
    sketch, decoder = exchange(ids, ids[::-1], SALT)
    assert sketch.verdict == decoder.verdict == DONE
    assert not decoder.missing and not decoder.surplus and not sketch.wanted


def test_a_loss_of_any_size_decodes_from_the_linear_bound_on() -> None:
    rng = random.Random(3)
    for missing in (1, 17, 250, 490):
        ids = draw(rng, 500)
        count = linear_symbols(500) + 1
        decoder = Decoder(ids)
        coder = Coder(short(ids[missing:]), SALT)
        record = symbols_record(500 - missing, 0, coder.symbols(0, count))
        assert decoder.add(record) == DONE
        assert set(decoder.surplus) == set(ids[:missing]) and not decoder.missing


def test_few_ids_are_listed() -> None:
    assert first_symbols(0) == first_symbols(5) == 0
    assert Sketch([], SALT).verdict == LIST
    assert Sketch([], SALT).next(FRAME_SIZE) == b""
    assert first_symbols(100) == 4
    assert first_symbols(1000) == 13


def test_more_ids_than_the_limit_are_refused() -> None:
    many = [at.to_bytes(8, "big") * 4 for at in range(SKETCH_ELEMENTS_MAX + 1)]
    with pytest.raises(CapacityError):
        Sketch(many, SALT)
    with pytest.raises(CapacityError):
        Decoder(many)


# --- budgets (docs/DESIGN.md 20) ---


@pytest.mark.parametrize(
    ("held", "missing", "extra", "median_max", "p95_max"),
    [
        (1000, 10, 0, 225, 225),
        (1000, 5, 5, 300, 400),
        (1000, 1, 0, 225, 225),
        (1000, 100, 0, 225, 225),
        (100, 1, 0, 105, 105),
        (100, 10, 0, 105, 105),
        (100, 100, 0, 105, 105),
    ],
)
def test_a_cold_recovery_keeps_its_budget(
    held: int, missing: int, extra: int, median_max: int, p95_max: int
) -> None:
    rng = random.Random(held * 1000 + missing)
    runs = 100 if missing + extra == 10 else 30
    drawn = [cost(held, missing, extra, rng) for _ in range(runs)]
    totals = sorted(total for total, _ in drawn)
    trips = sorted(trips for _, trips in drawn)
    assert totals[runs // 2] <= median_max
    assert totals[runs * 95 // 100] <= p95_max
    assert trips[runs // 2] == 1 and trips[runs * 95 // 100] <= 2


def test_sets_that_share_little_cost_half_a_list_more_than_the_list() -> None:
    rng = random.Random(4)
    for _ in range(10):
        total, trips = cost(100, 150, 100, rng)
        assert total <= 8 * 200 * 3 // 2 + 150 and trips <= 8


# --- loss, repetition and order ---


def test_lost_repeated_and_swapped_records_do_no_harm() -> None:
    rng = random.Random(5)
    for _ in range(20):
        ids = draw(rng, 440)
        sketch, decoder = Sketch(ids[:420], rng.randbytes(4)), Decoder(ids[20:])
        sent: list[bytes] = []
        heard: list[bytes] = []
        for _ in range(400):
            while record := sketch.next(100):
                sent.append(record)
                if rng.random() < 0.6:
                    decoder.add(record)
            decoder.add(rng.choice(sent))
            for answer in decoder.answers(60):
                heard.append(answer)
                if rng.random() < 0.6:
                    assert sketch.hear(answer) >= 0
            assert sketch.hear(rng.choice(heard)) >= 0
            if sketch.verdict != WAIT:
                break
            sketch.again()
        assert sketch.verdict == DONE
        assert sketch.wanted == set(ids[:20])
        assert set(decoder.surplus) == set(ids[420:])


def test_a_part_of_a_done_settles_nothing() -> None:
    ids = draw(random.Random(6), 300)
    sketch, decoder = Sketch(ids, SALT), Decoder(ids[20:])
    while sketch.verdict == WAIT and decoder.verdict == MORE:
        while record := sketch.next(FRAME_SIZE):
            decoder.add(record)
        answers = decoder.answers(12 + 8 * 3)
        if decoder.verdict == MORE:
            sketch.hear(answers[0])
    assert len(answers) == 7
    for answer in answers[:-1]:
        assert sketch.hear(answer) == WAIT
    assert sketch.hear(answers[0]) == WAIT
    assert sketch.hear(answers[-1]) == DONE
    assert sketch.wanted == set(ids[:20])


def test_a_shared_prefix_of_two_messages_is_never_acknowledged() -> None:
    ids = draw(random.Random(14), 200)
    twin = ids[0][:8] + bytes(24)
    sketch, decoder = exchange(ids, [twin, *ids[3:]], SALT)
    # To the decoder only ids[1] and ids[2] are missing; the fold tells that there is more.
    assert decoder.verdict == DONE and set(decoder.missing) == short(ids[1:3])
    assert sketch.verdict == LIST and sketch.must_full
    assert Sketch([twin, *ids], SALT).verdict == LIST
    decoder = Decoder([twin, *ids])
    sketch = Sketch(ids, SALT)
    assert decoder.add(sketch.next(FRAME_SIZE)) == LIST
    assert sketch.hear(decoder.answers(FRAME_SIZE)[0]) == LIST


# --- hostile bytes ---


def test_symbols_that_fit_no_set_end_in_a_list() -> None:
    rng = random.Random(7)
    ids = draw(rng, 200)
    for _ in range(5):
        decoder = Decoder(ids)
        for at in range(SKETCH_SYMBOLS_MAX):
            if decoder.add(symbols_record(200, at, rng.randbytes(12))) != MORE:
                break
        assert decoder.verdict == LIST and decoder.known <= 200
        assert decoder.answers(FRAME_SIZE) == [bytes((LIST,)) + SALT]


def test_an_element_that_comes_back_ends_in_a_list() -> None:
    # Symbol 0 holds one element, symbol 1 tells that it is there twice: no set does.
    element = next(e for e in map(bytes, ([n] * 8 for n in range(9))) if maps_to(e, 1))
    one = element + blake2s(element, key=SALT, digest_size=12).digest()[:4]
    ids = draw(random.Random(8), 50)
    decoder = Decoder(ids)
    own = Coder(short(ids), SALT).symbols(0, 2)
    peeled = bytes(a ^ b for a, b in zip(own, one + bytes(12), strict=True))
    assert decoder.add(symbols_record(51, 0, peeled)) == LIST
    assert not decoder.missing


def maps_to(prefix: bytes, index: int) -> bool:
    return index in naive_indices(prefix, SALT, index + 1)


def test_an_element_where_it_does_not_map_is_none() -> None:
    ids = draw(random.Random(15), 50)
    element = next(e for e in map(bytes, ([n] * 8 for n in range(99))) if not maps_to(e, 2))
    stray = bytes(24) + element + blake2s(element, key=SALT, digest_size=12).digest()[:4]
    own = Coder(short(ids), SALT).symbols(0, 3)
    decoder = Decoder(ids)
    symbols = bytes(a ^ b for a, b in zip(own, stray, strict=True))
    assert decoder.add(symbols_record(51, 0, symbols)) in (MORE, LIST)
    assert not decoder.decoded


def test_a_pile_of_foreign_elements_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    # 4,000 elements of a set of its own: found ones, guesses and equations all stay bounded.
    monkeypatch.setattr(solve, "SKETCH_PAIRS_MAX", 10_000)
    rng = random.Random(9)
    coder = Coder(short(draw(rng, 4000)), SALT)
    decoder = Decoder(draw(rng, 3000))
    pairs_left = decoder.pairs_left
    assert decoder.add(symbols_record(4000, 0, coder.symbols(0, 80))) in (MORE, LIST)
    assert len(decoder.decoded) <= 2 * 80 + 16
    assert 0 < pairs_left - decoder.pairs_left <= 10_000


def test_wrong_counts_and_salts_are_the_peers_fault() -> None:
    ids = draw(random.Random(10), 100)
    coder = Coder(short(ids), SALT)
    decoder = Decoder(ids[1:])
    one = coder.symbols(0, 1)
    assert decoder.add(symbols_record(SKETCH_ELEMENTS_MAX + 1, 0, one)) == E_PEER
    assert decoder.add(symbols_record(100, SKETCH_SYMBOLS_MAX, one)) == E_PEER
    assert decoder.add(symbols_record(100, 0, b"")) == E_PEER
    assert decoder.add(symbols_record(100, 0, one[:-1])) == E_PEER
    assert decoder.add(b"") == decoder.add(b"\x00sal") == E_PEER
    assert decoder.known == 0 and not decoder.salt
    far = draw(random.Random(11), 100)
    assert decoder.add(symbols_record(100, 0, Coder(short(far), SALT).symbols(0, 4))) == MORE
    assert not decoder.is_for(symbols_record(100, 4, one, b"othr"))
    assert decoder.add(symbols_record(100, 4, one, b"othr")) == E_PEER
    assert decoder.add(symbols_record(99, 4, one)) == E_PEER
    assert decoder.add(symbols_record(100, 9, one)) == MORE  # a gap: ignored
    assert decoder.known == 4


def test_answers_that_no_decoder_gives_change_nothing() -> None:
    ids = draw(random.Random(12), 100)
    sketch = Sketch(ids, SALT)
    sketch.next(FRAME_SIZE)
    done, more = bytes((DONE,)) + SALT + bytes(4), bytes((MORE,)) + SALT
    for answer in (
        b"",
        done,
        done + b"\x01" + bytes(8),  # a prefix that we do not have: a false solution
        done + b"\x01" + ids[0][:8] + ids[1][:8],  # more than it says
        done + varint(101),
        done + b"\x01" + ids[0][:7],
        more + b"\x05\x08",  # has symbols that were never sent
        more + b"\x04\x04",
        more + b"\x04" + varint(SKETCH_SYMBOLS_MAX + 1),
        more + b"\x04\x08\x00",
        bytes((LIST,)) + SALT + b"\x00",
        bytes((9,)) + SALT,
    ):
        assert sketch.hear(answer) == E_PEER, answer.hex()
        assert sketch.verdict == WAIT and not sketch.wanted and not sketch.next(FRAME_SIZE)
    assert sketch.hear(done[:1] + b"othr" + bytes(5)) == WAIT
    assert sketch.hear(more + b"\x04" + varint(SKETCH_SYMBOLS_MAX)) == LIST


def test_whatever_bytes_arrive_end_in_a_code() -> None:
    rng = random.Random(13)
    ids = draw(rng, 40)
    coder = Coder(short(ids), SALT)
    good = [symbols_record(40, at, coder.symbols(at, 2)) for at in (0, 2, 4)]
    good += [
        bytes((MORE,)) + SALT + b"\x00\x08",
        bytes((DONE,)) + SALT + bytes(4) + b"\x01" + ids[0][:8],
    ]
    decoder, sketch = Decoder(ids[3:]), Sketch(ids, SALT)
    for round_ in range(100_000):
        if round_ % 50 == 0:
            decoder, sketch = Decoder(ids[3:]), Sketch(ids, SALT)
            sketch.next(FRAME_SIZE)
        record = bytearray(rng.choice(good))
        for _ in range(rng.randrange(3)):
            record[rng.randrange(len(record))] = rng.randrange(256)
        if rng.random() < 0.2:
            del record[rng.randrange(len(record)) :]
        assert decoder.add(record) in (MORE, DONE, LIST, E_PEER)
        assert sketch.hear(record) in (WAIT, DONE, LIST, E_PEER)
        assert decoder.known <= 40 and len(sketch.wanted) <= 40
