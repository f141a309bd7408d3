# host only: sets of thousands of ids
"""Reconciles the messages of two hosts on a `compact-1` link by a rateless sketch each way.

After DONE both sides count every message that both hold as acknowledged (`on_ack`). The engine
then offers or sends the rest, which is exactly what the other side lacks.
"""

from drupelet.base.errors import E_PEER, CapacityError
from drupelet.wire.sketch.sketch import (
    DONE,
    HEAD_SIZE,
    HEAD_SIZE_MAX,
    LIST,
    PREFIX_SIZE,
    SYMBOLS,
    WAIT,
    Sketch,
)
from drupelet.wire.sketch.solve import Decoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.engine.exchange import Exchange


class Reconciler:
    """The sketches of one link; `ids_of(exchange)` lists the 32-byte ids shared with its peer.

    `must_list`: the sketch that we began failed; the caller offers everything and clears it.
    `must_full`: it failed because two messages have the same prefix. The codec then writes FULL,
    and both sides offer each other everything again, because the peer may have acknowledged the
    other message with that prefix.
    """

    def __init__(self, ids_of: "Callable[[Exchange], list[bytes]]") -> None:
        self.must_list = False
        self.must_full = False
        self._ids_of = ids_of
        self._ids: "list[bytes]" = []
        self._sketch: "Sketch | None" = None
        self._decoder: "Decoder | None" = None
        self._is_answer_due = False
        self._answers: "list[bytes]" = []
        self._id = bytearray(32)

    def begin(self, exchange: "Exchange", salt: bytes) -> None:
        """Begin a sketch of what we hold now; `salt`: 4 random bytes, new for each sketch."""
        self.must_list = self.must_full = False
        self._sketch = None
        self._ids = self._ids_of(exchange)
        try:
            self._sketch = Sketch(self._ids, salt)
        except CapacityError:
            self.must_list = True
            return
        self._close(exchange)

    def again(self) -> None:
        """Send again what is not confirmed; called when the back-off passed without an answer."""
        if self._sketch is not None:
            self._sketch.again()

    def is_open(self) -> bool:
        """Whether a sketch that we began waits for its answer."""
        return self._sketch is not None

    def take(self, exchange: "Exchange", buf: bytearray, at: int, size: int) -> bool:
        """Handle the SKETCH record in buf[at:at+size]; False if it is malformed."""
        record = bytes(buf[at : at + size])
        if size < HEAD_SIZE:
            return False
        if record[0] == SYMBOLS:
            return self._take_symbols(exchange, record)
        if self._sketch is None:
            return record[0] <= LIST  # an answer to an earlier sketch
        code = self._sketch.hear(record)
        self._close(exchange)
        return code != E_PEER

    def _close(self, exchange: "Exchange") -> None:
        sketch = self._sketch
        if sketch is None or sketch.verdict == WAIT:
            return
        self._sketch = None
        if sketch.verdict == DONE:
            self._settle(exchange, self._ids, sketch.wanted)
        else:
            self.must_list = True
            self.must_full = sketch.must_full

    def _take_symbols(self, exchange: "Exchange", record: bytes) -> bool:
        decoder = self._decoder
        is_new = decoder is None or not decoder.is_for(record)
        if decoder is None or is_new:
            try:
                decoder = Decoder(self._ids_of(exchange))
            except CapacityError:
                self._answers = [bytes((LIST,)) + record[1:HEAD_SIZE]]
                return True
        was_done = decoder.verdict == DONE
        code = decoder.add(record)
        if code == E_PEER:
            return False
        if is_new:
            self._decoder = decoder
        if code == DONE and not was_done:
            self._settle(exchange, decoder.ids, set(decoder.surplus))
        self._answers = []
        self._is_answer_due = True
        return True

    def put_into(self, buf: bytearray, at: int, limit: int) -> int:
        """Write the next SKETCH record to buf[at:limit]; return its end, `at` if none is due."""
        size_max = limit - at
        if size_max < HEAD_SIZE_MAX + PREFIX_SIZE:
            return at
        if self._is_answer_due and self._decoder is not None:
            self._answers = self._decoder.answers(size_max)
            self._is_answer_due = False
        if self._answers:
            if len(self._answers[0]) > size_max:
                return at
            record = self._answers.pop(0)
        elif self._sketch is not None:
            record = self._sketch.next(size_max)
        else:
            return at
        buf[at : at + len(record)] = record
        return at + len(record)

    def _settle(self, exchange: "Exchange", ids: "list[bytes]", others: "set[bytes]") -> None:
        for id in ids:
            self._id[:] = id
            if id in others:
                exchange.on_request(self._id, 0)  # the peer is known to lack it: skip the offer
            else:
                exchange.on_ack(self._id, 0)
