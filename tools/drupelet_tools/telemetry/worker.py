"""What a Spark worker does with one group of devices; imports no Spark.

Read the segments, decode and sum up each device, write the tables and a pack of the segments
that are new under names that no other attempt uses, and tell the driver what was written.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from drupelet_tools.telemetry.decode import Copy, Damage, decode, read_header
from drupelet_tools.telemetry.inputs import Source, append_to_pack, content_crc
from drupelet_tools.telemetry.lake import TABLES, Part, write_table
from drupelet_tools.telemetry.summary import Row, Tables, quarantine_row, summarise


def run_group(lake: str, plan: str, attempt: str) -> dict[str, Any]:
    """Do the work list `plan` (a file in the lake) and return its part as a manifest entry.

    The plan is a list of devices: {"device", "old": source rows that the lake has already,
    "new": sources}. `attempt` must be unique among all attempts at anything.
    """
    root = Path(lake)
    work = json.loads((root / plan).read_text("utf-8"))
    writer = _Writer(root, attempt)
    for entry in work:
        writer.device(entry["device"], entry["old"], [Source(**new) for new in entry["new"]])
    return asdict(writer.close())


class _Writer:
    """Collects the rows of a group and writes them as one part."""

    def __init__(self, root: Path, attempt: str) -> None:
        self.root = root
        self.part = Part(id=attempt, devices=[], live=[])
        self.pack = bytearray()
        self.pack_path = f"packs/{attempt}.dbxpack"
        self.tables: Tables = {table: [] for table in TABLES}
        self.repeated = 0

    def device(self, device: str, old: list[Row], new: list[Source]) -> None:
        """Decode one device from all its segments, old and new."""
        self.part.devices.append(device)
        sources = list(old)
        contents = [self._old_bytes(row) for row in old]
        seen = {(row["content_crc"], row["size"]) for row in old}
        for source in new:
            data = source.read()
            key = (content_crc(data), len(data))
            if key in seen:
                self.repeated += 1
                continue
            seen.add(key)
            sources.append(self._source_row(device, source, data))
            contents.append(data)
        self._sum_up(sources, contents)
        self.tables["sources"] += sources

    def _old_bytes(self, row: Row) -> bytes:
        return Source(str(self.root / row["pack"]), row["pack_offset"], row["size"]).read()

    def _source_row(self, device: str, source: Source, data: bytes) -> Row:
        header = source.reason or read_header(data)
        known = None if isinstance(header, str) else header
        return {
            "device": device,
            "boot": known and known.boot,
            "number": known and known.number,
            "header_crc": known and known.crc,
            "content_crc": content_crc(data),
            "size": len(data),
            "damaged": known is None,
            "file": source.path,
            "offset": source.offset,
            "pack": self.pack_path,
            "pack_offset": append_to_pack(self.pack, data),
            "reason": source.reason,
        }

    def _sum_up(self, sources: list[Row], contents: list[bytes]) -> None:
        copies = []
        for row, data in zip(sources, contents, strict=True):
            header = row["reason"] or read_header(data)
            if isinstance(header, str):
                damage = Damage(
                    row["device"], None, None, None, row["file"], row["offset"], header
                )
                self.tables["quarantine"].append(quarantine_row(damage))
            else:
                copies.append(Copy(row["file"], data, header, row["offset"]))
        if not copies:
            return
        log = decode(copies)
        for table, rows in summarise(log).items():
            self.tables[table] += rows
        damaged = {(damage.file, damage.boot, damage.number) for damage in log.damages}
        for row in sources:
            row["damaged"] = (row["file"], row["boot"], row["number"]) in damaged

    def close(self) -> Part:
        """Write everything; nothing of it counts before the driver names it."""
        self.part.live = list(self.part.devices)
        self.part.counts = {table: len(rows) for table, rows in self.tables.items()}
        self.part.counts["events"] = sum(row["events"] for row in self.tables["segments"])
        self.part.counts["repeated"] = self.repeated
        if self.pack:
            self.part.pack = self.pack_path
            (self.root / self.pack_path).write_bytes(self.pack)
        for table, rows in self.tables.items():
            write_table(self.root / self.part.path(table), table, rows)
        return self.part
