"""What agents took since a moment, as a row of `drupelet bench agent`."""

import time

from drupelet_tools.bench.agent_home import AgentHome
from drupelet_tools.bench.columns import AGENT, Row


class Meter:
    """CPU time of agents and wall time since this meter was made.

    Of an agent that starts later, all of its CPU time counts.
    """

    def __init__(self, *homes: AgentHome) -> None:
        self._homes = homes
        self._before_s = {home.name: home.cpu_s for home in homes}
        self._written_before = {home.name: home.written_bytes for home in homes}
        self._wakes_before = {home.name: home.wakes for home in homes}
        self._started_s = time.monotonic()

    def row(self, work: str, messages: int, size: int | None) -> Row:
        """The row so far. size: bytes on the carrier."""
        wall_s = time.monotonic() - self._started_s
        homes = self._homes
        cpu_s = sum(home.cpu_s - self._before_s[home.name] for home in homes)
        written = max((h.written_bytes - self._written_before[h.name] for h in homes), default=0)
        wakes = max((h.wakes - self._wakes_before[h.name] for h in homes), default=0)
        return dict.fromkeys(column.name for column in AGENT) | {
            "work": work,
            "messages": messages,
            "cpu_s": round(cpu_s, 2),  # as fine as the system counts it
            "wall_s": round(wall_s, 2),
            "messages_per_s": round(messages / wall_s, 1),
            "bytes_per_message": None if size is None else round(size / messages, 1),
            "rss_mb": round(max((home.peak_mb for home in homes), default=0.0), 1),
            "write_kb": round(written / 1024, 1),
            "wakes_per_s": round(wakes / wall_s, 2),
        }
