"""A seed as an SDS channel: the kind `channel` of `drupelet sim run` (docs/simulator.md 1 and 2).

It checks that every participant gets every message once and in one order (S2, L1), and S14: a
participant's Lamport value never decreases, and stays 2^32 below the end of its 64 bits.
"""

import hashlib
from random import Random

from drupelet_tools.sim.channels import Participant, Plan, World
from drupelet_tools.sim.oracle import Violation
from drupelet_tools.sim.run import MS_PER_YEAR, Result

LAMPORT_MAX = (1 << 64) - (1 << 32)


class _Watched(World):
    """A world that checks the participant's Lamport clock after each frame."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.checks = 0
        self.delivered = 0
        self.hash = hashlib.blake2s()
        self._values = [0] * plan.participants

    def _poll(self, participant: Participant) -> None:
        super()._poll(participant)
        self._check(participant)

    def _receive(self, participant: Participant, frame: bytearray, size: int) -> None:
        self.hash.update(frame[:size])
        super()._receive(participant, frame, size)
        self._check(participant)

    def _note_delivery(self, participant: Participant, number: int) -> None:
        twice = self.result.twice
        super()._note_delivery(participant, number)
        self.delivered += twice == self.result.twice

    def _check(self, participant: Participant) -> None:
        number = self.all.index(participant)
        value = int.from_bytes(participant.channel.clock.value, "little")
        self.checks += 1
        if not self._values[number] <= value < LAMPORT_MAX:
            text = f"its Lamport value was {self._values[number]}, and is {value}"
            raise Violation("S14", f"p{number:03}", text)
        self._values[number] = value


def draw_channel(seed: int) -> Plan:
    """Draw a channel of some participants, seldom online, on a lossy line."""
    random = Random(f"channel {seed}")
    return Plan(
        participants=3 + random.randrange(10),
        messages=10 + random.randrange(60),
        online=random.choice((0.2, 0.5, 1.0)),
        loss=random.choice((0.0, 0.1, 0.3, 0.6)),
        seed=seed,
        size=random.choice((8, 60, 300)),
        # The shorter time publishes faster than acknowledgements come.
        publish_ms=random.choice((300_000, 4 * 3_600_000)),
    )


def run_channel(seed: int) -> Result:
    """Run a seed until every participant has every message."""
    plan = draw_channel(seed)
    world = _Watched(plan)
    result = Result(seed, "channel")
    try:
        channel_result = world.run()
        result.duplicated = channel_result.twice
        if channel_result.twice:
            raise Violation("S2", "world", f"{channel_result.twice} messages came twice")
        if channel_result.done_ms < 0:
            raise Violation("L1", "world", f"not complete after {plan.until_ms} ms")
        if not channel_result.equal:
            raise Violation("S2", "world", "the logs have different orders")
    except Violation as violation:
        result.violation, result.name = str(violation), violation.name
    delivered = world.delivered
    result.device_years = plan.participants * world.now_ms / MS_PER_YEAR
    result.published = world.result.content
    result.deliveries = delivered - result.published
    result.lost = plan.messages * plan.participants - delivered
    result.invariant_checks = world.checks
    result.frames = world.result.frames
    result.digest = world.hash.hexdigest()[:32]
    return result
