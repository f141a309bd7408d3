"""Every bound of the core, each with its reason; the assertions prove the arithmetic.

A constant that another file uses has no underscore. `docs/limits.md` is made from this file.
"""

from drupelet.base.compat import const

# --- ids and messages (specs: BSP v1 sections 1.3, 2.2, 2.3) ---
# BSP v1 section 1.3: HASH_LEN of BLAKE2s; SHA-256 has the same size.
ID_SIZE = const(32)
# What compact-1 writes of an id where its reader can tell the rest.
ID_PREFIX_SIZE = const(8)
# BSP v1 section 2.3: milliseconds since the Unix epoch as a 64-bit integer.
TIMESTAMP_SIZE = const(8)
# BSP v1 section 2.3: 2^15 bytes.
BODY_SIZE_MAX = const(32768)
# BSP v1 section 2.2: 2^15 bytes.
DESCRIPTOR_SIZE_MAX = const(32768)
# What precedes the body in a MESSAGE payload: group id and timestamp (BSP v1 section 3).
CONTENT_HEADER_SIZE = const(40)
# Most ids that a message names as dependencies: 8 x 32 B fit beside any reading in a frame. An
# MVDS peer names every message without a child, and the same one many times over: of those the
# first eight that differ are kept. They are not hashed, and the others come by themselves; only
# the order behind those is lost. Where ids are hashed, more than eight make a message invalid.
DEPENDENCIES_MAX = const(8)

# --- frames and records ---
# One frame on any carrier: a Pico W holds two such buffers per link in 128 KB.
FRAME_SIZE_MAX = const(1024)
# One frame on a host's carrier that has no smaller limit, with one message for a peer that may
# know no segments: the longest body and all that MVDS puts around it.
HOST_FRAME_SIZE_MAX = const(65536)
# Smallest frame that still carries one segment piece; LoRa SF7 allows 222 B.
FRAME_SIZE_MIN = const(64)
# BSP v1 section 3: version, type, 16-bit length.
RECORD_HEADER_SIZE = const(4)
# Payload length is a 16-bit integer: whole ids in one record.
RECORD_IDS_MAX = const(2047)
# Frame kind byte in front of the records (docs/SPEC.md 2).
FRAME_HEADER_SIZE = const(1)
# SEGMENT header: kind, 8-byte content id, total size, offset (docs/SPEC.md 3).
SEGMENT_HEADER_SIZE = const(13)
# On a line that loses pieces, those that end so few bytes behind what the peer has go twice.
PIECE_SIZE = const(512)
# A long message that the peer says nothing about so often lets the next one go.
SEGMENT_TRIES_MAX = const(4)
# More frames than this on a link per epoch would starve the other links of a board. Of a long
# message as many pieces may be under way.
FRAMES_PER_EPOCH_MAX = const(64)

# --- tables (defaults of a board; a host hands in larger numbers) ---
# Peers of a board: a holder mask is one byte on flash.
PEERS_MAX = const(8)
# Groups of a board: readings, telemetry and two more.
GROUPS_MAX = const(4)
# Offered ids of all peers together; docs/DESIGN.md 20 has the budget of all tables.
OFFERS_MAX = const(64)
# Messages that are on their way at the same time, to all peers together, and as many that wait for
# a parent; the rest waits on flash.
MESSAGES_MAX = const(64)
# Messages on their way to one peer, at least: with one, what the peer asks for again and what
# comes next would put each other out.
OUTBOX_ROWS_MIN = const(2)
# Ids that one peer offers, at least: fewer keep out of a batch of offers all but the newest.
INBOX_OFFERS_MIN = const(4)
# Missing parents that are asked for once in a payload, though several messages wait for them.
ASKED_TAGS_MAX = const(8)
# Messages from one peer that may wait for a parent; of more, a message is refused and not
# acknowledged, so nothing is lost. Half of a host's slots: the rest is for other peers. A board's
# table is smaller.
PENDING_PER_PEER_MAX = const(512)
# A peer of MVDS that was asked so often whether it reads segments, was heard each time since, over
# 126 epochs, and never showed it: what is too long for it no longer holds a full log.
OVERSIZE_ASKS_MAX = const(6)
# Incoming messages longer than a frame that may be incomplete at once, one per peer at most.
PARTS_MAX = const(2)
# Part file in which a long message of our own is put together.
PART_PUBLISH = const(0)
# Part file in which a black-box segment is put together.
PART_BOX = const(1)
# First part file for what comes in; there are PARTS_MAX of them.
PART_INCOMING = const(2)

# --- compact-1 (docs/SPEC.md 3.5) ---
# Group indices of one generation: a board has 4 groups, a host may use another generation.
COMPACT_GROUPS_MAX = const(16)
# Bytes of bits in one ACK or REQUEST: 256 numbers, as many as four payloads of a board leave open.
COMPACT_COVER_SIZE = const(32)
# A HELLO that nobody answers is repeated after 2, 4 ... 64 epochs, then the peer is off.
HELLO_SENDS_MAX = const(6)
# A peer that answers nothing for so many epochs is spoken to in bsp-1: two rounds of resending.
COMPACT_SILENT_EPOCHS = const(8)
# It is asked again after so many epochs, then after twice as many ...
COMPACT_PROBE_EPOCHS = const(64)
# ... but at least this often: under half of what an epoch number tells apart.
COMPACT_PROBE_EPOCHS_MAX = const(8192)

# --- bsp-0, hosts only (docs/SPEC.md) ---
# A link over whose better rival nothing came for so many epochs speaks again: eight resends.
BSP0_RIVAL_EPOCHS = const(16)
# A peer that goes on over a link that lost for more epochs than this has no other way to us.
BSP0_INSISTS_MAX = const(4)

# --- sketch, hosts only (docs/SPEC.md, SKETCH) ---
# Ids in one sketch: two seconds of a host for the record that decodes it.
SKETCH_ELEMENTS_MAX = const(65536)
# Symbols of one sketch: 48 KB, about 3,000 differences.
SKETCH_SYMBOLS_MAX = const(4096)
# Own ids for which a loss is solved as linear equations: 0.2 s of a host.
SKETCH_LINEAR_MAX = const(2048)
# Guesses per record when two ids are left in a symbol: 2 us each.
SKETCH_PAIRS_MAX = const(262144)

# --- channels: SDS (docs/SPEC.md 12) ---
# A message id: 64 hex digits, and the 0x that some write in front. One byte tells a length.
CHANNEL_MESSAGE_ID_MAX = const(66)
# A participant's id, and a channel's: a public key in hex is as long as a hash.
CHANNEL_NAME_MAX = const(66)
# A sender that a row of the wanted table has room for; a longer one is left out of our request.
CHANNEL_SENDER_MAX = const(32)
# Entries of a causal history: the JavaScript peer sends up to 200; more is refused whole.
CHANNEL_HISTORY_MAX = const(256)
# Entries of a repair request that are looked at; specs/sds.md recommends to send 3 at most.
CHANNEL_REQUESTS_MAX = const(8)
# Entries of our own repair requests, as recommended.
CHANNEL_REQUESTS_SENT = const(3)
# Causal entries of our own messages, as recommended.
CHANNEL_CAUSAL = const(2)
# Messages of our own that nobody acknowledged yet: 16 make 272 B.
CHANNEL_OUT_MAX = const(16)
# Resends, others being heard before each, after which a message is theirs to ask for: where three
# in ten frames are lost, all nine of a message are in 1 of 50,000.
CHANNEL_RESENDS_MAX = const(8)
# Messages that wait for what they depend on: 16 make 512 B.
CHANNEL_IN_MAX = const(16)
# Ids of the log that are in RAM, 20 B each; the rest is in the store.
CHANNEL_IDS_MAX = const(100)
# Missing messages that we ask for at the same time, 125 B each: twice what one request holds.
CHANNEL_WANTED_MAX = const(6)
# Rows of these for messages that came when no row for waiting ones was free: the last ones of two
# senders. More where there is room.
CHANNEL_REFUSED_MAX = const(2)
# Messages that others asked for and that we may send again.
CHANNEL_ASKED_MAX = const(8)
# Repairs that we send in one period of the channel, whatever is asked for.
CHANNEL_REPAIRS_MAX = const(3)
# Dependencies that were given up; the oldest is forgotten.
CHANNEL_LOST_MAX = const(8)
# More entries of our causal history: what came again, and what nothing depends on yet.
CHANNEL_HEADS_MAX = const(4)
# Events that wait for the client; when they are full, content is refused until it takes some.
CHANNEL_EVENTS_MAX = const(16)
# Files of a channel's messages, all open: one less than a board's files may have open.
CHANNEL_FILES_MAX = const(6)
# Publishers whose sender keys a board holds, 130 B and an AES object each.
CHANNEL_MEMBERS_MAX = const(16)
# A Lamport value this far ahead of a trusted clock is not adopted; without one, no message moves
# the clock further: 24 hours.
CHANNEL_AHEAD_MS_MAX = const(86400000)

# --- clients (docs/SPEC.md 15) ---
# Exploding messages that are watched at once, about 100 B each; more wait for a row.
EXPLODING_MAX = const(64)

# --- epochs and back-off ---
# `now_ms` is modulo this, so that it stays a small int on 32-bit boards.
NOW_MODULUS_MS = const(1 << 30)
# The longest wait that elapsed_ms can tell from a time in the past: 3.1 days.
WAIT_MS_MAX = const(1 << 28)
# Resend after 2, 4, 8 ... epochs, at most after this many (BSP: exponential and capped).
BACKOFF_EPOCHS_MAX = const(64)
# A peer that was heard at most so many epochs ago is there: a line that loses 3 of 10 frames keeps
# eight questions in a row without an answer in 1 of 200 cases. On a topic that is two of the
# longest waits of an acknowledgement and its repetition.
HEARD_EPOCHS_MAX = const(16)
# Epoch numbers are kept in 16 bits per peer and message.
EPOCH_MODULUS = const(1 << 16)
# Generations of link numbers, modulo 2^16, that a boot is from the one before it: 2^16 divided by
# the golden ratio, so that those of many boots lie far apart. Each wake and reset takes the next.
GENERATIONS_APART = const(40503)
# MVDS: where the back-off falls back to from its bound. Not to the base: a peer that is away for
# weeks would cost half as many sends again.
BACKOFF_FALL_EPOCHS = const(8)
# A send count is one byte, and this is the highest.
SEND_COUNT_MAX = const(254)
# The length field of a LoRa frame is one byte.
LORA_FRAME_SIZE_MAX = const(255)
# How far two clocks may run apart, in millionths: 500 each, five times a bad watch crystal, and
# the 1 that (1 + 500 ppm) / (1 - 500 ppm) is more than 1,000.
DRIFT_PPM_MAX = const(1001)
# Periods without a WAKE of a peer after which it is searched again.
CONTACTS_MISSED_MAX = const(4)
# On a topic, acknowledgements and answers for others leave after a random 0 .. this - 1 epochs:
# those of ten listeners seldom collide, and it is short of the first repetition (2 epochs) twice.
TOPIC_DELAY_EPOCHS_MAX = const(4)
# What went out on a topic so often without being acknowledged goes by the pair's own link, too.
TOPIC_SENDS_MAX = const(4)
# A sender key is handed over again after this, unless it is confirmed; doubled each time ...
SENDER_KEY_MS = const(2000)
# ... up to this: an absent member costs a frame of 100 bytes every 4 minutes.
SENDER_KEY_MS_MAX = const(256000)
# A boot costs a board about half a second of full power: shorter pauses are light sleep.
DEEP_SLEEP_MS_MIN = const(1000)
# Longest period of a wake plan, 18 hours: what is missed of it stays below what elapsed_ms tells.
WAKE_PERIOD_MS_MAX = const(1 << 26)

# --- choice of a link's mode (docs/SPEC.md 10.4) ---
# Counts are halved here, so that what was longer ago than about as many events is forgotten.
POLICY_EVENTS_MAX = const(64)
# Fewer events than this say nothing about a share.
POLICY_EVENTS_MIN = const(8)
# A mode that was chosen stays for so many epochs: one exchange takes three.
POLICY_STAY_EPOCHS = const(8)
# Each change doubles that up to here: two modes of about the same cost do not alternate for ever.
POLICY_STAY_EPOCHS_MAX = const(256)

# --- sealed links (docs/SPEC.md 11) ---
# Key epochs have three bytes on the wire: 478 years of one cold boot every 15 minutes.
SEAL_EPOCH_MAX = const((1 << 24) - 1)
# What a seal adds to a frame of an epoch that the peer has not confirmed: head 7, salt 8, tag 8.
SEAL_OVERHEAD_MAX = const(23)
# Steps that a board follows a chain forward at once: both jumps of a sender and 500 epochs that
# never arrived; about a second of an RP2040. What is further away takes more frames.
SEAL_STEPS_MAX = const(1024)
# The same for a host, 0.3 s.
SEAL_STEPS_HOST_MAX = const(65536)
# A skip of more epochs than this is a long one ...
SEAL_SKIP_FREE = const(2)
# ... and there is at most one in this time: who forges frames gets no more of our time.
SEAL_SKIP_MS = const(10000)
# After so many epochs that the peer never said to have seen, a sender may have been set back to
# an older copy of itself, and steps ahead of what it may have used ...
SEAL_JUMP_AFTER = const(8)
# ... by so many epochs.
SEAL_JUMP = const(256)
# Frames with a wrong tag that are tried in a slice of 64 ms; in the rest of it nothing is. A board
# takes 62 in a second, each about a millisecond of an ESP32: 6 % of its time. Frames that are of
# no epoch open here have a fourth of that for themselves, for each costs a read of the flash.
SEAL_FORGED_PER_SLICE = const(4)
# The same for a host, 20 us each: 8 % of its time, and as many frames as a busy broker passes on.
SEAL_FORGED_PER_SLICE_HOST = const(255)
# After so many wrong tags a key is not used any more: 2^16 tries against 2^64 tags, in a u16.
SEAL_FORGED_MAX = const(65535)
# An epoch of ours ends after 30 days: in units of 65,536 ms, awake, or asleep with a snapshot.
SEAL_AGE_MAX = const(39550)
# Epochs that were followed by a newer one and are kept for stragglers, of all peers of a board
# together: 67 B each. Only a peer that goes on to another epoch leaves one behind.
SEAL_OLD_MAX = const(2)
# The same for a host: as many peers may have come back at once.
SEAL_OLD_HOST_MAX = const(64)
# A status that somebody should hear soon leaves by itself, but not more often than this.
SEAL_TELL_MS = const(2000)
# While nothing authentic comes, each time after twice as long, up to this: each costs a write.
SEAL_TELL_MS_MAX = const(1 << 21)
# That our log is begun anew is told in the epoch that is open: it costs air only, a frame of 40
# bytes, and who comes back after an absence hears of it about a minute later.
SEAL_ANEW_MS_MAX = const(1 << 16)
# A REKEY or REVOKE is told again in each epoch, or after this time.
SEAL_CONTROL_MS = const(60000)
# Revoked devices that a host tells of at once.
SEAL_REVOKED_MAX = const(16)
# How often it tells each peer: seven may be lost.
SEAL_REVOKE_SENDS = const(8)

# --- store ---
# One LittleFS erase block on common NOR flash.
SEGMENT_SIZE = const(4096)
# 256 KB of log: about 1,500 readings, a fortnight of 15-minute epochs for one board.
SEGMENTS_MAX = const(64)
# Bodies longer than this live in a file of their own and travel as segments; with record header,
# frame kind and the longest seal (23 B) the record still fits one frame.
INLINE_SIZE_MAX = const(952)
# Files of long bodies kept at once; settled ones are removed first.
BODY_FILES_MAX = const(32)
# Read-back and hash scratch: a multiple of both hash block sizes (64 B).
SCRATCH_SIZE = const(64)
# What a board saves before it sleeps fits the RTC memory of an ESP8266 (492 B).
WAKE_STATE_SIZE_MAX = const(492)
# RTC memory that a board uses at most, the black box included: what MicroPython gives on an ESP32.
RTC_SIZE_MAX = const(2048)
# The form for watchdog scratch registers: 28 B on an RP2040.
SNAPSHOT_SHORT_SIZE = const(28)
# The key state of one sealed link in a snapshot (docs/SPEC.md 11.6).
SNAPSHOT_KEYS_SIZE = const(94)
# Pending messages (dependencies missing) that the store tracks: never more than message slots.
PENDING_MAX = const(64)
# Deleted messages that some sharer is not known to have: a row in RAM is 8 B.
KEPT_MAX = const(32)
# Groups and peers that a store has ever numbered; a row in RAM is 8 B.
MEMBERS_MAX = const(32)
# Files that a store has open at once: two each of the message log, the meta log and the ids, four
# parts, one while it makes another.
FILES_OPEN_MAX = const(11)
# Segments that new data never takes: one for pending messages of a segment that is to go, and one
# whose room the meta log has.
SEGMENTS_SPARE = const(2)
# Segments of the meta log that stay: the one that is written, and the one before it, which has a
# copy of almost all in case of damage.
META_SEGMENTS = const(2)
# One segment in so many of the others, so many at most, and one more are kept for what enters from
# peers: neither our own messages nor those that wait for a parent go there. Two full members would
# wait for each other: each for room at the other to have its oldest segment taken. Of fewer than
# six segments none is kept.
OWN_SHARE = const(4)
# Ids in RAM as bits: 2 KiB keep a search for an unknown id off the flash in 99 of 100 cases with
# 1,600 messages in the log (4 bits each). A power of two, at most 8,192.
FILTER_SIZE = const(2048)
# Ids of what left a full log: a segment of them for so many of the log. With 9 bytes per id and
# the spare ones below, more than four whole logs of readings (126 B each): 9,100 ids for 64.
GONE_SHARE = const(4)
# And so many segments more: what a late message depends on is as old in a small log.
GONE_SPARE = const(8)
# Ids that are written in one flash program, if so many are settled.
GONE_BATCH = const(16)
# Handles from here on are no places: they tell of an id that is gone. A quarter of a segment. So a
# log takes 1 GiB of records in its life, and then no more; a new one is begun on empty flash.
GONE_HANDLE = const((1 << 30) - 1024)
# A part file is flushed after this many bytes: what a power cut costs of a transfer. (One of MVDS
# begins anew: its id does not cover all of it.)
PART_FLUSH_SIZE = const(4096)

# --- black box (docs/SPEC.md 6) ---
BLOCK_SIZE = const(512)  # one flash page of an SD card
EVENT_SIZE = const(12)  # dt, code, a, b, c
EVENTS_PER_BLOCK = const(41)  # what fits behind the block header
BLOCK_HEADER_SIZE = const(16)  # magic, count, number, boot, time, crc
BOX_HEADER_SIZE = const(32)  # one per black-box segment
BOX_BLOCKS_MAX = const(8)  # blocks in one segment: 4 KiB and a header
# Files of the ring that segments wait in: 30 whole ones, the one that is written, and a gap that
# tells the oldest. With 7 blocks each 8,600 events, a week of 15-minute epochs, in 128 KB.
BOX_SLOTS = const(32)
# Segments that wait in the log for a peer: the rest stays in the ring, so that readings keep their
# room in the log and all body files but these.
BOX_MESSAGES_MAX = const(4)
COUNTERS_MAX = const(146)  # cumulative counters: 18 common ones, 32 for each of four carriers

# --- the owner's program on a board (docs/app.md) ---
# A payload that `sample` returns or `delivered` is given. It is in the heap in one piece: a board
# with 128 KB still finds 4 KB in one piece days after its boot, but not 32.
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
