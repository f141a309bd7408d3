# host only: boards have neither a byte budget nor a policy
"""A live link of a host: what may leave in an epoch, and a mode that is chosen by measurements."""

from drupelet.base.errors import E_PEER
from drupelet.base.events import CODE_OFFERED
from drupelet.base.limits import FRAME_SIZE_MIN
from drupelet.base.time_ms import epochs_since
from drupelet.engine.exchange import Exchange
from drupelet.engine.members import SHARED
from drupelet.engine.states import GOT_OFFER
from drupelet.link.link import Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.link.ports import BudgetPort, PolicyPort

_MESSAGE = 1  # a kind of `count_record`


class HostExchange(Exchange):
    """An exchange that reports to a policy, if there is one."""

    policy: "PolicyPort | None" = None

    def acked(self, row: int) -> None:
        """See Exchange."""
        outbox = self.outbox
        sends = outbox.sends(row)
        is_answer = sends > 0 and outbox.is_open(row) and self.sees(outbox.group(row))
        if is_answer and self.policy is not None:
            self.policy.on_acked(epochs_since(self.epoch, outbox.epoch(row)) if sends == 1 else -1)
        Exchange.acked(self, row)

    def _note_held(self, handle: int, event: int) -> None:
        if event == GOT_OFFER and self.policy is not None:
            self.policy.on_incoming(True)
        Exchange._note_held(self, handle, event)

    def reack_if_known(self, id: bytearray) -> bool:
        """See Exchange."""
        duplicates = self.core.duplicates
        is_known = Exchange.reack_if_known(self, id)
        if self.policy is not None and self.core.duplicates != duplicates:
            self.policy.on_incoming(True)
        return is_known

    def after_accept(self, outcome: int, group: int) -> None:
        """See Exchange."""
        if self.policy is not None and outcome != E_PEER:
            self.policy.on_incoming(False)
        Exchange.after_accept(self, outcome, group)

    def requested(self, row: int) -> None:
        """See Exchange."""
        if self.sees(self.outbox.group(row)) != SHARED or not self._revive_or_drop(row):
            return
        if self.policy is not None:
            self.policy.on_requested()
        Exchange.requested(self, row)

    def _note_sent(self, row: int, event: int, code: int) -> None:
        if self.policy is not None:
            is_heard = self.pace.is_heard_since(self.outbox.epoch(row))
            self.policy.on_send(code == CODE_OFFERED, self.outbox.sends(row), is_heard)
        Exchange._note_sent(self, row, event, code)

    def count_record(self, sent: bool, kind: int, size: int) -> None:
        """See Exchange."""
        if self.policy is not None and sent and kind == _MESSAGE:
            self.policy.on_written(size)
        Exchange.count_record(self, sent, kind, size)


class HostLink(Link):
    """A live link with a byte budget and a policy, both None at first; for `Node.link`."""

    budget: "BudgetPort | None" = None
    make_exchange = HostExchange
    exchange: HostExchange

    def set_mode(self, mode: int) -> None:
        """See Link; a policy is let go."""
        self.exchange.policy = None
        Link.set_mode(self, mode)

    def poll_into(self, frame: bytearray, now_ms: int) -> int:
        """See Link; 0 also while the budget has no room for a frame."""
        if self._budget_ms(now_ms) and not self.closed:
            self.turn(now_ms)
            return 0
        return Link.poll_into(self, frame, now_ms)

    def _next_frame(self, frame: bytearray, limit: int) -> int:
        budget = self.budget
        if budget is None:
            return Link._next_frame(self, frame, limit)
        size = Link._next_frame(self, frame, budget.room(self.core.now_ms, limit))
        if size:
            budget.spend(size)
        return size

    def _budget_ms(self, now_ms: int) -> int:
        """Return the ms until the budget has room for a frame; 0: it has."""
        return self.budget.wait_ms(now_ms, FRAME_SIZE_MIN) if self.budget is not None else 0

    def _due_ms(self, now_ms: int) -> int:
        return Link._due_ms(self, now_ms) or self._budget_ms(now_ms)

    def _begin_epoch(self, epoch: int) -> None:
        Link._begin_epoch(self, epoch)
        policy = self.exchange.policy
        if policy is not None:
            Link.set_mode(self, policy.begin_epoch())
