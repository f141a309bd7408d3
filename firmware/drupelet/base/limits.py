"""Every bound of the core, with its reason; the assertions prove the arithmetic.

A constant that another file uses has no underscore. `docs/limits.md` is made from this file.
"""

from drupelet.base.compat import const

# --- ids and messages (BSP v1 sections 1.3, 2.2, 2.3) ---
# BSP v1 section 1.3: HASH_LEN of BLAKE2s; SHA-256 has the same size.
ID_SIZE = const(32)
# Bytes of an id that compact-1 writes where its reader can find the rest.
ID_PREFIX_SIZE = const(8)
# BSP v1 section 2.3: milliseconds since the Unix epoch as a 64-bit integer.
TIMESTAMP_SIZE = const(8)
# BSP v1 section 2.3: 2^15 bytes.
BODY_SIZE_MAX = const(32768)
# BSP v1 section 2.2: 2^15 bytes.
DESCRIPTOR_SIZE_MAX = const(32768)
# Bytes before the body in a MESSAGE payload: group id and timestamp (BSP v1 section 3).
CONTENT_HEADER_SIZE = const(40)
# Most ids that a message names as dependencies: 8 x 32 B fit beside any reading in a frame. An
# MVDS peer names every message without a child, some of them repeatedly: the first eight different
# ones are kept. MVDS ids do not cover them, and the other messages come anyway; only their order
# is lost. Where the id covers dependencies, more than eight make a message invalid.
DEPENDENCIES_MAX = const(8)

# --- frames and records ---
# A frame on any carrier of a board: a Pico W has two such buffers per link in its 128 KB.
FRAME_SIZE_MAX = const(1024)
# A frame on a host's carrier without a smaller limit of its own: one message for a peer that may
# know no segments, with the longest body and all that MVDS adds to it.
HOST_FRAME_SIZE_MAX = const(65536)
# Smallest frame that still carries one segment piece; LoRa SF7 allows 222 B.
FRAME_SIZE_MIN = const(64)
# BSP v1 section 3: version, type, 16-bit length.
RECORD_HEADER_SIZE = const(4)
# Most ids in one record, whose payload length is a 16-bit integer.
RECORD_IDS_MAX = const(2047)
# Frame kind byte in front of the records (docs/SPEC.md 2).
FRAME_HEADER_SIZE = const(1)
# SEGMENT header: kind, 8-byte content id, total size, offset (docs/SPEC.md 3).
SEGMENT_HEADER_SIZE = const(13)
# On a line that loses pieces, those that end at most so many bytes after the peer's run are sent
# twice.
PIECE_SIZE = const(512)
# After so many questions without an answer about a long message, the next long one is sent.
SEGMENT_TRIES_MAX = const(4)
# Most frames of a link per epoch: more would starve the other links of a board. Also the most
# pieces of a long message that are sent before the peer is asked.
FRAMES_PER_EPOCH_MAX = const(64)

# --- tables (defaults of a board; a host hands in larger numbers) ---
# Peers of a board: the set of peers that hold a message is one byte on flash.
PEERS_MAX = const(8)
# Groups of a board: readings, telemetry and two more.
GROUPS_MAX = const(4)
# Offered ids of all peers together; docs/DESIGN.md 20 has the budget of all tables.
OFFERS_MAX = const(64)
# Rows of the outboxes of all peers, and as many pending messages; the rest waits on flash.
MESSAGES_MAX = const(64)
# Fewest outbox rows of a peer: with one row, a message that the peer requests again and the next
# one in the log would evict each other.
OUTBOX_ROWS_MIN = const(2)
# Fewest offered ids of a peer: with fewer, only the newest of a batch of offers would be kept.
INBOX_OFFERS_MIN = const(4)
# Parents that one payload requests once, although several messages wait for them.
ASKED_TAGS_MAX = const(8)
# Pending messages from one peer; a further one is refused and not acknowledged, so it is not lost.
# Half of a host's rows: the rest is for other peers. A board has fewer rows than this.
PENDING_PER_PEER_MAX = const(512)
# An MVDS peer that was asked so often, over 126 epochs, if it reads segments, was heard after each
# time, and never showed it: messages that are too long for it no longer hold a full log.
OVERSIZE_ASKS_MAX = const(6)
# Incoming long messages that may be incomplete at the same time, one per peer at most.
PARTS_MAX = const(2)
# The part file in which a long message of our own is assembled.
PART_PUBLISH = const(0)
# The part file in which a black-box segment is assembled.
PART_BOX = const(1)
# The first of PARTS_MAX part files for incoming messages.
PART_INCOMING = const(2)

# --- compact-1 (docs/SPEC.md 3.5) ---
# Group indices of one generation: a board has 4 groups, a host may use another generation.
COMPACT_GROUPS_MAX = const(16)
# Bytes of the bit set in an ACK or REQUEST: 256 numbers, what four payloads leave open.
COMPACT_COVER_SIZE = const(32)
# A HELLO without an answer is repeated after 2, 4 ... 64 epochs, then the peer counts as away.
HELLO_SENDS_MAX = const(6)
# A peer that has not answered for this many epochs, two rounds of resends, is sent bsp-1.
COMPACT_SILENT_EPOCHS = const(8)
# It is asked for compact-1 again after this many epochs, then after twice as many ...
COMPACT_PROBE_EPOCHS = const(64)
# ... up to this: less than half the range of epoch numbers.
COMPACT_PROBE_EPOCHS_MAX = const(8192)

# --- bsp-0, hosts only (docs/SPEC.md) ---
# A link that gave way to a better one sends again after that one was silent for so many epochs:
# eight resends.
BSP0_RIVAL_EPOCHS = const(16)
# A peer that uses a link that lost to its rival for more epochs than this has no other one.
BSP0_INSISTS_MAX = const(4)

# --- sketch, hosts only (docs/SPEC.md, SKETCH) ---
# Ids in one sketch: the record that decodes it costs a host two seconds.
SKETCH_ELEMENTS_MAX = const(65536)
# Symbols of one sketch: 48 KB, enough for about 3,000 differences.
SKETCH_SYMBOLS_MAX = const(4096)
# Most own ids for which a loss is solved as linear equations: 0.2 s of a host.
SKETCH_LINEAR_MAX = const(2048)
# Guesses per record when two ids are left in a symbol: 2 us each.
SKETCH_PAIRS_MAX = const(262144)

# --- channels: SDS (docs/SPEC.md 12) ---
# A message id: 64 hex digits, and the prefix 0x that some peers write. A length is one byte.
CHANNEL_MESSAGE_ID_MAX = const(66)
# A participant's id, and a channel's: a public key in hex is as long as a hash.
CHANNEL_NAME_MAX = const(66)
# The longest sender in a row of the wanted table; a longer one is left out of our request.
CHANNEL_SENDER_MAX = const(32)
# Entries of a causal history: the JavaScript peer sends up to 200; more is refused whole.
CHANNEL_HISTORY_MAX = const(256)
# Entries of a repair request that are read; specs/sds.md recommends sending 3 at most.
CHANNEL_REQUESTS_MAX = const(8)
# Entries of our own repair requests, as recommended.
CHANNEL_REQUESTS_SENT = const(3)
# Causal entries of our own messages, as recommended.
CHANNEL_CAUSAL = const(2)
# Our own messages that nobody has acknowledged yet: 16 take 272 B.
CHANNEL_OUT_MAX = const(16)
# Resends of a message, before each of which others were heard; after that, others have to request
# it. If three in ten frames are lost, all nine copies are lost in 1 of 50,000 cases.
CHANNEL_RESENDS_MAX = const(8)
# Messages that wait for dependencies: 16 take 512 B.
CHANNEL_IN_MAX = const(16)
# Ids of the log that are in RAM, 20 B each; the rest is in the store.
CHANNEL_IDS_MAX = const(100)
# Missing messages that are requested at the same time, 125 B each: twice what one request holds.
CHANNEL_WANTED_MAX = const(6)
# Rows of the wanted table that are kept for messages that came while no row for waiting ones was
# free: the last ones of two senders. More if there is room.
CHANNEL_REFUSED_MAX = const(2)
# Messages that others requested and that we may send again.
CHANNEL_ASKED_MAX = const(8)
# Repairs that we send in one period of a channel, however many are requested.
CHANNEL_REPAIRS_MAX = const(3)
# Dependencies that were given up; when full, the oldest is forgotten.
CHANNEL_LOST_MAX = const(8)
# Further entries of our causal history: messages that came again, or that nothing depends on yet.
CHANNEL_HEADS_MAX = const(4)
# Events that wait for the client; when full, content is refused until it takes some.
CHANNEL_EVENTS_MAX = const(16)
# Files of a channel's messages, all open: one less than a board may have open.
CHANNEL_FILES_MAX = const(6)
# Publishers whose sender keys a board holds, 130 B and an AES object each.
CHANNEL_MEMBERS_MAX = const(16)
# A Lamport value further ahead of a trusted clock than this, 24 hours, is not adopted; without a
# trusted clock, no message moves ours further.
CHANNEL_AHEAD_MS_MAX = const(86400000)

# --- epochs and back-off ---
# `now_ms` is modulo this, so that it stays a small int on 32-bit boards.
NOW_MODULUS_MS = const(1 << 30)
# The longest wait, 3.1 days: `elapsed_ms` can still tell it from a time in the past.
WAIT_MS_MAX = const(1 << 28)
# The longest back-off (BSP: exponential and capped): resend after 2, 4, 8 ... 64 epochs.
BACKOFF_EPOCHS_MAX = const(64)
# A peer that was heard within this many epochs is there. If a line loses 3 of 10 frames, eight
# questions in a row stay without an answer in 1 of 200 cases. On a topic, that is two of the
# longest waits for an acknowledgement, and for its repetition.
HEARD_EPOCHS_MAX = const(16)
# Epoch numbers are kept in 16 bits per peer and message.
EPOCH_MODULUS = const(1 << 16)
# How far the generation of link numbers moves at a boot, modulo 2^16: 2^16 divided by the golden
# ratio, so that the generations of many boots are far apart. Each wake or reset takes the next
# one.
GENERATIONS_APART = const(40503)
# MVDS: the back-off returns to this from its bound. Returning to the base would cost half as many
# sends more for a peer that is away for weeks.
BACKOFF_FALL_EPOCHS = const(8)
# The highest send count, which is one byte.
SEND_COUNT_MAX = const(254)
# How far two clocks drift apart, in millionths: 500 each, five times a bad watch crystal, and 1,
# since (1 + 500 ppm) / (1 - 500 ppm) is slightly more than 1 + 1,000 ppm.
DRIFT_PPM_MAX = const(1001)
# Periods without a WAKE of a peer after which it is sought again.
CONTACTS_MISSED_MAX = const(4)
# On a topic, acknowledgements, and answers in place of the author, wait at random for fewer epochs
# than this: those of ten listeners seldom collide, and the longest wait is shorter than twice the
# first step of the back-off (2 epochs).
TOPIC_DELAY_EPOCHS_MAX = const(4)
# After this many sends on a topic without an ACK, a message goes by the peer's own link.
TOPIC_SENDS_MAX = const(4)
# A sender key that is not confirmed is handed over again after this; doubled each time ...
SENDER_KEY_MS = const(2000)
# ... up to this: an absent member costs a frame of 100 bytes every 4 minutes.
SENDER_KEY_MS_MAX = const(256000)
# Shorter pauses are light sleep: a boot costs a board about half a second of full power.
DEEP_SLEEP_MS_MIN = const(1000)
# The longest period of a wake plan, 18 hours: missed ones stay in the range of `elapsed_ms`.
WAKE_PERIOD_MS_MAX = const(1 << 26)

# --- sealed links (docs/SPEC.md 11) ---
# Key epochs are three bytes on the wire: 478 years of one cold boot every 15 minutes.
SEAL_EPOCH_MAX = const((1 << 24) - 1)
# What a seal adds to a frame while the peer has not confirmed the epoch: head 7, salt 8, tag 8.
SEAL_OVERHEAD_MAX = const(23)
# Steps that a board follows a chain forward at once: both jumps of a sender, and 500 epochs that
# never arrived; about a second of an RP2040. A sender further ahead needs several frames.
SEAL_STEPS_MAX = const(1024)
# The same for a host, 0.3 s.
SEAL_STEPS_HOST_MAX = const(65536)
# A skip of more epochs than this is a long skip ...
SEAL_SKIP_FREE = const(2)
# ... and there is one per this time at most: forged frames can cost us no more.
SEAL_SKIP_MS = const(10000)
# After this many epochs that the peer has not confirmed, a sender may have been restored from an
# older copy of itself. It then steps ahead of all epochs that it may have used ...
SEAL_JUMP_AFTER = const(8)
# ... by this many.
SEAL_JUMP = const(256)
# Frames with a wrong tag that are tried per 64 ms; in the rest of that time, no frame is. A board
# tries 62 per second, about a millisecond each on an ESP32: 6 % of its time. A fourth of that is
# for frames of epochs that are not open here, as each of these costs a read of the flash.
SEAL_FORGED_PER_SLICE = const(4)
# The same for a host, 20 us each: 8 % of its time, for as many frames as a busy broker delivers.
SEAL_FORGED_PER_SLICE_HOST = const(255)
# After so many wrong tags, a key is no longer used: 2^16 tries against 2^64 tags.
SEAL_FORGED_MAX = const(65535)
# Our epoch ends after 30 days, in units of 65,536 ms: awake, or asleep with a snapshot.
SEAL_AGE_MAX = const(39550)
# Superseded epochs that are kept for late frames, of all peers of a board together: 67 B each.
# Only a peer that begins another epoch leaves one.
SEAL_OLD_MAX = const(2)
# The same for a host, where so many peers may come back at once.
SEAL_OLD_HOST_MAX = const(64)
# Shortest time between two status frames that leave by themselves.
SEAL_TELL_MS = const(2000)
# While nothing authentic comes, that time doubles up to this: each costs a flash write.
SEAL_TELL_MS_MAX = const(1 << 21)
# The longest time between two announcements, in the open epoch, that our log is new: they cost a
# frame of 40 bytes each, and a peer that returns hears it about a minute later.
SEAL_ANEW_MS_MAX = const(1 << 16)
# A REKEY or REVOKE is repeated in each epoch, or after this time.
SEAL_CONTROL_MS = const(60000)
# Revoked devices that a host announces at the same time.
SEAL_REVOKED_MAX = const(16)
# How often it announces them to each peer: seven may be lost.
SEAL_REVOKE_SENDS = const(8)

# --- store ---
# One LittleFS erase block on common NOR flash.
SEGMENT_SIZE = const(4096)
# 256 KB of log: about 1,500 readings, two weeks of one board with an epoch of 15 minutes.
SEGMENTS_MAX = const(64)
# Longer bodies have a file of their own and are sent in segments; with record header, frame kind
# and the longest seal (23 B), a record of this size fits one frame.
INLINE_SIZE_MAX = const(952)
# Files of long bodies kept at once; settled ones are removed first.
BODY_FILES_MAX = const(32)
# Read-back and hash scratch: a multiple of both hash block sizes (64 B).
SCRATCH_SIZE = const(64)
# What a board saves before it sleeps: it fits the RTC memory of an ESP8266 (492 B).
WAKE_STATE_SIZE_MAX = const(492)
# RTC memory that a board uses, with the black box: what MicroPython gives on an ESP32.
RTC_SIZE_MAX = const(2048)
# The short form of a snapshot: the 28 B of watchdog scratch registers on an RP2040.
SNAPSHOT_SHORT_SIZE = const(28)
# The key state of one sealed link in a snapshot (docs/SPEC.md 11.6).
SNAPSHOT_KEYS_SIZE = const(94)
# Pending messages that a store tracks: not more than message rows.
PENDING_MAX = const(64)
# Deleted messages that some sharer may lack, 8 B of RAM each.
KEPT_MAX = const(32)
# Groups and peers that a store has numbered, dismissed ones included, 8 B of RAM each.
MEMBERS_MAX = const(32)
# Files that a store has open at once: two each of the message log, the meta log and the departed
# ids; four parts; one that is being made from another.
FILES_OPEN_MAX = const(11)
# Segments that new data never takes: one for the pending messages of a segment to be removed, and
# one whose room the meta log takes.
SEGMENTS_SPARE = const(2)
# Segments of the meta log that are kept: the one that is being written, and the one before it,
# which has a copy of almost everything in case of damage.
META_SEGMENTS = const(2)
# One segment in so many, so many at most, and one more are kept for messages that enter from
# peers: our own and pending messages do not go there. Otherwise two full members would wait for
# each other: each needs room at the other to have its oldest segment taken. With fewer than six
# segments, none is kept.
OWN_SHARE = const(4)
# Bytes of the Bloom filter of ids (4 bits each): 2 KiB save reading flash for 99 in 100 unknown
# ids, with 1,600 messages in the log. A power of two, at most 8,192.
FILTER_SIZE = const(2048)
# Ids whose place in the log is known without a search, 8 B of RAM each: a message depends on its
# author's last one, so two for each member of a group of PEERS_MAX.
RECENT_MAX = const(16)
# One segment of departed ids for so many segments of the log. With 9 bytes per id, and the further
# segments below, that is more than four whole logs of readings (126 B each): 9,100 ids for 64.
GONE_SHARE = const(4)
# Further segments of departed ids: the dependencies of a late message are as old in a small log.
GONE_SPARE = const(8)
# Ids that are written in one flash write, if so many are settled.
GONE_BATCH = const(16)
# Handles from here on are not places, but stand for a departed id. The room after it is a quarter
# of a segment. A log takes 1 GiB of records in its life, and then needs an empty flash.
GONE_HANDLE = const((1 << 30) - 1024)
# A part file is flushed after this many bytes, the most that a power cut costs of a transfer. An
# MVDS transfer begins again: its id does not cover all of it.
PART_FLUSH_SIZE = const(4096)

# --- black box (docs/SPEC.md 6) ---
BLOCK_SIZE = const(512)  # one flash page of an SD card
EVENT_SIZE = const(12)  # dt, code, a, b, c
EVENTS_PER_BLOCK = const(41)  # what fits after the block header
BLOCK_HEADER_SIZE = const(16)  # magic, count, number, boot, time, crc
BOX_HEADER_SIZE = const(32)  # one per black-box segment
BOX_BLOCKS_MAX = const(8)  # blocks in one segment: 4 KiB and a header
# Files of the ring in which segments wait: 30 complete ones, the one being written, and a gap that
# shows the oldest. With 7 blocks each, 8,600 events, a week of epochs of 15 minutes, in 128 KB.
BOX_SLOTS = const(32)
# Segments that wait in the log for a peer: the others stay in the ring, so that readings keep
# their room in the log, and all but these few body files.
BOX_MESSAGES_MAX = const(4)
COUNTERS_MAX = const(146)  # cumulative counters: 18 common ones, 32 for each of four carriers

# --- the owner's program on a board (docs/app.md) ---
# A payload that `sample` returns or `delivered` gets. It is one block of heap: a board with 128 KB
# still finds one of 4 KB days after its boot, but not of 32 KB.
APP_PAYLOAD_SIZE_MAX = const(4096)

assert CONTENT_HEADER_SIZE == ID_SIZE + TIMESTAMP_SIZE
assert RECORD_IDS_MAX == 65535 // ID_SIZE
assert CONTENT_HEADER_SIZE + BODY_SIZE_MAX <= 65535, "a content size is a 16-bit integer"
assert BODY_SIZE_MAX + FRAME_SIZE_MAX < HOST_FRAME_SIZE_MAX
assert INLINE_SIZE_MAX + CONTENT_HEADER_SIZE + RECORD_HEADER_SIZE + 1 + 23 <= FRAME_SIZE_MAX
assert FRAME_HEADER_SIZE + RECORD_HEADER_SIZE + ID_SIZE <= FRAME_SIZE_MIN
assert BLOCK_HEADER_SIZE + EVENTS_PER_BLOCK * EVENT_SIZE <= BLOCK_SIZE
assert SEGMENT_SIZE >= INLINE_SIZE_MAX + 72, "head and longest record fit one segment"
assert SEGMENTS_SPARE < SEGMENTS_MAX
assert SEGMENT_SIZE >= 16 + MEMBERS_MAX * (17 + ID_SIZE) + 8 + WAKE_STATE_SIZE_MAX, "one copy"
assert BACKOFF_EPOCHS_MAX < EPOCH_MODULUS // 2
