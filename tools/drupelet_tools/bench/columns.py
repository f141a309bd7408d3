"""The columns of each `drupelet bench`, with what they mean: its help, its table, its JSON."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """A column by its name in JSON, with its heading and its meaning."""

    name: str
    meaning: str
    head: str = ""  # of the table, where the name is long
    text: bool = False


def explain(about: str, columns: Sequence[Column]) -> str:
    """The help of a command: what it does, then a line for each column."""
    width = max(len(column.name) for column in columns) + 2
    lines = [f"{column.name:<{width}}{column.meaning}" for column in columns]
    return f"{about}\n\n\b\nColumns:\n" + "\n".join(lines)


ROOMS = (
    Column("room", "a folder of the core, the host or the carriers, or a module", text=True),
    Column("modules", "its modules; of the core those that a board can load"),
    Column("micro", "code lines of it in the micro set"),
    Column("small", "code lines of it in the small set, on a plain cable"),
    Column("full", "code lines of it in the full set"),
    Column("may_import", "the rooms that its modules may import", "may import", text=True),
)
HOST_ROOMS = (
    ROOMS[0],
    ROOMS[1],
    Column(
        "code_lines",
        "outside of the core: lines that are not blank, comment or docstring",
        "lines",
    ),
    ROOMS[-1],
)
RAM = (
    Column("config", "peers/offered pool/messages that the tables are made for", text=True),
    Column("set", "the firmware set that is loaded", text=True),
    Column("interpreter", "what ran it; -i386 has a Cortex-M's object sizes", text=True),
    Column("heap", "bytes of heap that it was started with; over: the set needs more than it may"),
    Column("core_state", "bytes of node, tables, one link to each peer and one frame buffer",
           "core state"),
    Column("largest_slab", "bytes of the largest single table, the store's included", "slab"),
    Column("code_bytes", "bytes of heap that the set's modules take as .mpy", "code"),
    Column("free_after_boot", "bytes free with code, node, store, black box, carrier", "free"),
    Column("alloc_per_record", "most bytes that a call with such a record allocated", "record"),
    Column("alloc_per_epoch", "bytes that an idle epoch allocates", "epoch"),
    Column("alloc_hash", "bytes that one message id allocates (SHA-256 and its digest)", "hash"),
    Column("alloc_per_segment", "bytes that a new log segment on LittleFS allocates", "segment"),
    Column("alloc_per_connect", "bytes that a connection to an MQTT broker allocates", "connect"),
    Column("alloc_per_stick_visit",
           "bytes that a visit with a bundle each way allocates, ids' hashes apart", "visit"),
    Column("seal_per_peer", "bytes that a sealed link keeps, per peer and carrier class", "seal"),
    Column("cipher_per_peer", "bytes of the AES objects that the device keeps for it", "cipher"),
    Column("profile", "the wire profile; all: the largest figure of the rows below", text=True),
    Column("record", "record type; piece: of a long body; invalid: damaged frames", text=True),
    Column("direction", "in: received, out: written", text=True),
    Column("records", "records seen under heap_lock; for `all`, of all kinds"),
    Column("code_lines", "lines of the set that are not blank, comment or docstring", "lines"),
    Column("link_state", "bytes of core_state that each link takes"),
    Column("store_state", "bytes of the flash log's tables"),
    Column("beside_state", "bytes of black box and carrier buffers"),
    Column("locked", "whether it came through under heap_lock: nothing allocated"),
    Column("limits", "column -> its limit on 32 bits (docs/DESIGN.md 20)"),
    Column("over", "columns beyond their limit", text=True),
)  # fmt: skip

ANEW = (
    Column("held", "messages that A holds"),
    Column("missing", "of those, how many B misses; it holds the others, and neither knows"),
    Column("offers", "bytes both ways, without the missing messages: compact-1 interactive"),
    Column("batch", "the same: compact-1 batch, which sends all"),
    Column("sketch", "the same: B sends a sketch of what it holds"),
    Column("filters", "the same: Bloom filters both ways, until B has everything"),
    Column("offers_s", "epochs of a second until B had everything", "offers s"),
    Column("batch_s", "the same", "batch s"),
    Column("sketch_s", "the same", "sketch s"),
    Column("filters_s", "the same; a contact is six epochs", "filters s"),
)

WIRE = (
    Column("scenario", "transfer: A sends; in_sync: nothing is new; wake: one reading of a"
           " sleeper; cold: B misses some; backlog: B was away while A posted all",
           text=True),
    Column("profile", "the wire profile, or what stands beside it", text=True),
    Column("mode", "batch: sent at once; interactive: offered first", text=True),
    Column("messages", "messages that are sent"),
    Column("body", "bytes of a message's body"),
    Column("held", "messages that A holds when the contact begins"),
    Column("missing", "of those, how many B misses"),
    Column("sealed", "whether the frames are encrypted and authenticated"),
    Column("total_bytes", "the link's own bytes, both directions, everything counted; cold: the"
           " median, without what B misses", "total"),
    Column("bytes_per_message", "total_bytes / messages; cold: / missing", "per message"),
    Column("carrier", "whose framing the next column has", text=True),
    Column("carrier_bytes_per_message", "the same with the carrier's framing; MQTT: one leg",
           "on carrier"),
    Column("p95_bytes", "cold: the 95th percentile of total_bytes", "p95"),
    Column("payload_bytes", "cold: median bytes of the messages that B misses", "their bytes"),
    Column("frames", "frames, both directions"),
    Column("visits", "backlog: visits of the stick until nothing is owed"),
    Column("duplicates", "backlog: messages that came to B more than once, copies", "twice"),
    Column("seeds", "cold: runs, each with other messages missing"),
    Column("budget", "most bytes per message (cold: in all) that docs/DESIGN.md 20 grants"),
    Column("over", "whether the budget is broken"),
    Column("source", "measured: in this run; published: taken from elsewhere, see note",
           text=True),
    Column("note", "what a figure counts, where it does not say itself", text=True),
)  # fmt: skip

BOARD = (
    Column("board", "m3: a Cortex-M3 without an operating system, in QEMU; rp2: the emulated Pico",
           text=True),
    Column("set", "the firmware set that is frozen into its image", text=True),
    Column("image_bytes", "bytes of flash that MicroPython and the set take", "image"),
    Column("heap", "bytes of heap; m3: what the set is for; rp2: what the image leaves"),
    Column("used_after_boot", "bytes of it in use when the board's loop begins", "used"),
    Column("free_after_boot", "bytes of it free then", "free"),
    Column("modules_heap", "bytes that the loaded modules take, frozen as they are", "modules"),
    Column("stack_peak", "deepest stack, in bytes, while messages go both ways", "stack peak"),
    Column("heap_peak", "most bytes of the heap in use at once meanwhile, with a collection before"
           " each allocation, on rp2 after each 512 bytes", "heap peak"),
    Column("alloc_per_record", "most bytes that a frame with one record allocates, in or out",
           "record"),
    Column("alloc_per_epoch", "most bytes that a poll allocates when nothing is to be sent",
           "epoch"),
    Column("kinsn_publish", "thousand instructions for a reading of 100 bytes, flash included;"
           " the mean of its calls, as below", "publish"),
    Column("kinsn_receive", "to take in a frame with a message of 100 bytes", "receive"),
    Column("kinsn_ack", "to take in a frame with one acknowledgement", "ack"),
    Column("kinsn_idle", "for the poll in an epoch that looks at everything and sends nothing",
           "idle"),
    Column("kinsn_seal_100", "to seal a frame of 100 bytes", "seal"),
    Column("boot_ms", "ms of the board's time until its loop begins", "boot ms"),
    Column("flash_programs_per_message", "pages of flash programmed, per message in or out",
           "programs"),
    Column("flash_erases_per_message", "blocks of flash erased, likewise", "erases"),
    Column("heap_min", "the smallest heap, to 1 KiB, in which the set exchanges its messages,"
           " found by trying", "heap min"),
    Column("why_not", "column -> why this board cannot give it"),
)  # fmt: skip

CPU = (
    Column("interpreter", "what ran it; -i386 is 32-bit MicroPython", text=True),
    Column("profile", "the wire profile, the hash, the cipher, or the black box", text=True),
    Column("work", "encode, parse: a codec alone; deliver: a message from node to node, with all"
           " that both ends do and a store in RAM; hash, seal, open: that alone; event: one of the"
           " black box, with its part of the block", text=True),
    Column("record", "record type; of the black box, the call", text=True),
    Column("bytes", "bytes of the record on the wire, of the body, or of what is hashed"),
    Column("per_second", "records (hashes) in a second", "per second"),
    Column("us", "microseconds for one", "µs"),
    Column("sha256_us", "microseconds of the builtin SHA-256 of as many bytes, in the same run",
           "sha256 µs"),
    Column("ratio", "us / sha256_us", "ratio"),
    Column("pack_into_us", "microseconds of struct.pack_into of the same event, in the same run",
           "pack_into µs"),
    Column("ratio_to_pack_into", "us / pack_into_us", "x pack_into"),
    Column("alloc_per_event", "bytes of heap that one event allocates", "alloc"),
)  # fmt: skip

INGEST = (
    Column("work", "tables: the summary tables, engines side by side; scale: other sizes; files:"
           " the same bytes in few and many files; export: without and with the table of single"
           " events, the difference is the export", text=True),
    Column("engine", "numpy: the ingest's own functions in one process; spark: the same in"
           " workers; polars, duckdb: the same tables made their way, from the columns that"
           " numpy reads", text=True),
    Column("events", "events in the black boxes"),
    Column("files", "packs that they lie in"),
    Column("cpu_s", "CPU seconds of the whole process tree, start-up apart"),
    Column("startup_cpu_s", "CPU seconds before: imports, and for spark the JVM and a first job",
           "start-up"),
    Column("wall_s", "seconds, start-up apart"),
    Column("peak_mb", "highest resident memory of the process tree; shared pages count for each"),
    Column("jvm_mb", "highest resident memory of the JVM in it; 0: there is none"),
    Column("ratio_to_numpy", "cpu_s / that of numpy in the same run", "x numpy"),
    Column("us_per_event", "microseconds of CPU for one event", "µs/event", text=True),
)  # fmt: skip

LAKE = (
    Column("work", "ingest: of a day, the mean of the first, of days 10 to 20 (early), of the last"
           " ten (late) and of all days, and once of all days at once; compact: once, after all"
           " days; query: every table read, from opening the lake on, where it grew, compacted,"
           " and made at once", text=True),
    Column("segments", "segments that this row's ingests took in, or that the lake has"),
    Column("cpu_ms", "milliseconds of CPU, all threads"),
    Column("wall_ms", "milliseconds"),
    Column("files", "files and packs of the lake that count, afterwards; with a grown lake for all"
           " ingests"),
    Column("megabytes", "their size", "MB"),
    Column("log_files", "files of the Delta log, checkpoints among them"),
)  # fmt: skip

FLEET = (
    Column("work", "ingest: of all logs at once, without Spark; compact: afterwards; report: the"
           " index with a page for each hundred devices; query: Spark SQL over the days of one"
           " device, Spark's start included", text=True),
    Column("devices", "devices; each has a segment of one block a day"),
    Column("device_days", "devices times days"),
    Column("cpu_s", "CPU seconds of the process and all that it started"),
    Column("wall_s", "seconds"),
    Column("peak_mb", "highest memory of the process and all that it started; shared pages count"
           " for each", "peak MB"),
    Column("ms_per_device_day", "cpu_s / device_days, in ms", "ms/device-day"),
    Column("in_mb", "size of the logs", "logs MB"),
    Column("lake_mb", "size of the lake afterwards", "lake MB"),
)  # fmt: skip

AGENT = (
    Column("work", "stick-write: all are posted to an agent, then it visits a stick; stick-read:"
           " the other one's visit; mqtt-live: posted to one agent while both are up;"
           " mqtt-backlog: posted before the other one came; start: until an agent serves that has"
           " so many; idle: both are up for --idle-minutes and nobody has anything to send; log:"
           " a command shows them as text; put: a command leaves one; load: --devices publish"
           " --per-second together for --load-minutes, each a member of its home's group, while"
           " the broker is killed and started again",
           text=True),
    Column("messages", "messages, of 100 bytes each"),
    Column("cpu_s", "CPU seconds of the agents; mqtt, load: of all"),
    Column("wall_s", "seconds; mqtt, load: until the senders know that all arrived, and load: the"
           " other devices of each home have them, too"),
    Column("messages_per_s", "messages / wall_s", "per second"),
    Column("bytes_per_message", "stick: bytes of all files on it afterwards; mqtt: between the"
           " sender and the broker, both directions; load: of all devices, with the copies that"
           " those of a home get of each other's messages", "B/message"),
    Column("rss_mb", "highest resident memory of an agent since it started", "MB"),
    Column("ratio", "cpu_s / plain_cpu_s"),
    Column("plain_cpu_s", "CPU seconds of the plain peer in the same run, for as many messages:"
           " paho at QoS 1, one committed INSERT per message at each end; stick: of its receiver",
           "plain cpu_s"),
    Column("plain_wall_s", "seconds of the plain peer", "plain wall_s"),
    Column("write_kb", "KB that an agent wrote to the disk (write_bytes of /proc/PID/io), of the"
           " one that wrote more", "KB written"),
    Column("wakes_per_s", "voluntary context switches of an agent for each second, of the one that"
           " woke more often", "wakes/s"),
    Column("devices", "load: devices, each with a connection of its own"),
    Column("homes", "load: homes that they are divided among, each with an agent"),
    Column("restarts", "load: how often the broker was killed and started again"),
    Column("rss_growth_mb", "load: by how much the highest resident memory of an agent grew after"
           " the first tenth of the time, of the one that grew most", "MB more"),
)  # fmt: skip


def kinsn_columns(samples: dict[str, list[int]]) -> Row:
    """Means in thousands of what a board counted: instructions of each call, by its kind."""
    kinds = [column.name.removeprefix("kinsn_") for column in BOARD if "kinsn_" in column.name]
    return {
        f"kinsn_{kind}": round(statistics.mean(samples[kind]) / 1000, 1)
        if samples.get(kind)
        else None
        for kind in kinds
    }
