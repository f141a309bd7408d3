"""`share_with` of a public group: each agent hands its log to a few peers at a time.

Nobody coordinates. In each period an agent draws at random to whom it offers messages. To all
others it only answers: it acknowledges, asks, and sends what they ask for. A message goes on from
member to member, and over some periods everybody has drawn everybody.
"""

import random
from collections.abc import Callable, Sequence

from drupelet import host_api
from drupelet.base.time_ms import elapsed_ms
from drupelet_host.agent.carrier_lines import Line
from drupelet_host.member.status import UP


class RandomSharing:
    """Call `turn` in each turn of the agent. draw: a number 0 <= n < its argument."""

    def __init__(
        self, share_with: int, period_ms: int,
        draw: Callable[[int], int] | None = None,
    ) -> None:  # fmt: skip
        self._share_with = share_with
        self._period_ms = period_ms
        self._draw = draw or random.SystemRandom().randrange
        self._begun_ms = -1
        self.names: list[str] = []  # the peers of this period

    def turn(self, lines: Sequence[Line], now_ms: int) -> None:
        """Draw anew when the period is over, and in place of who is not reached any more."""
        if self._begun_ms < 0 or elapsed_ms(now_ms, self._begun_ms) >= self._period_ms:
            self._begun_ms = now_ms
            self.names = []
        reached = [line.peer.name for line in lines if line.state == UP]
        self.names = drawn(reached, self._share_with, self._draw, self.names)
        for line in lines:
            host_api.set_quiet(line.live.link, line.peer.name not in self.names)


def drawn(
    names: Sequence[str], count: int, draw: Callable[[int], int], kept: Sequence[str] = ()
) -> list[str]:
    """So many of the names, or all there are; those of `kept` first, the others at random."""
    chosen = [name for name in kept if name in names]
    rest = [name for name in names if name not in chosen]
    while rest and len(chosen) < count:
        chosen.append(rest.pop(draw(len(rest))))
    return chosen
