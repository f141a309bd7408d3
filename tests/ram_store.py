"""A store in plain Python, for tests of what stands on a store: every call of `StorePort`, no
flash, no files. What the real stores do is the contract suite's business."""

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.store.states import (
    STATE_DELETED,
    STATE_DELIVERED,
    STATE_INVALID,
    STATE_PENDING,
    STATE_PRIVATE,
)

IN_LOG = (STATE_DELIVERED, STATE_PRIVATE, STATE_DELETED)


class RamStore:
    """Messages in a dictionary: handle -> record."""

    def __init__(self):
        self.spool = self  # its parts are in RAM, too
        self.id = bytearray(32)
        self.timestamp = bytearray(8)
        self.group = self.source = self.size = self.state = self.edges_size = 0
        self.private = False
        self.saved = bytearray(492)
        self.saved_size = self.settled_handle = self.missing = 0
        self.settled = [0] * 8
        self.rows = {}
        self.handles = {}  # id -> handle
        self.absent_ids = set()
        self.order = []
        self.parts = {}
        self.members = {}
        self.descriptors = {}
        self.numbers = 0
        self.newest = 0

    def open(self):
        return 0

    def barrier(self):
        return OK

    # --- members ---

    def member(self, kind, key, at, size):
        key = (kind, bytes(key[at : at + size]))
        if key not in self.members:
            self.numbers += 1
            self.members[key] = self.numbers
        return self.members[key]

    def dismiss(self, kind, number):
        self.members = {key: n for key, n in self.members.items() if n != number}
        if kind == 1:
            self.descriptors.pop(number, None)
            for handle, row in list(self.rows.items()):
                if row["group"] == number:
                    del self.rows[handle]
                    self.handles.pop(row["id"], None)
            self.order = [handle for handle in self.order if handle in self.rows]
        return OK

    def descriptor_put(self, part, number):
        self.descriptors[number] = bytes(self.parts.pop(part))
        return OK

    def descriptor_size(self, number):
        return len(self.descriptors[number]) - 32 if number in self.descriptors else -1

    def descriptor_read_into(self, number, offset, buf, at, size):
        piece = self.descriptors[number][32 + offset : 32 + offset + size]
        buf[at : at + len(piece)] = piece
        return len(piece)

    def save(self, state, size):
        self.saved[:size] = state[:size]
        self.saved_size = size
        return OK

    # --- parts ---

    def part_open(self, part, _key, _at, _total):
        self.parts[part] = bytearray()
        return 0

    def part_append(self, part, buf, at, size):
        self.parts[part] += buf[at : at + size]
        return OK

    def part_size(self, part):
        return len(self.parts.get(part, b""))

    def part_read_into(self, part, offset, buf, at, size):
        piece = self.parts.get(part, b"")[offset : offset + size]
        buf[at : at + len(piece)] = piece
        return len(piece)

    def part_drop(self, part):
        self.parts.pop(part, None)
        return OK

    # --- messages ---

    def put(self, group, source, id, id_at, timestamp, ts_at, body, at, size, state):
        id = bytes(id[id_at : id_at + 32])
        assert id not in self.handles
        self.newest += 1
        self.rows[self.newest] = {
            "id": id, "group": group, "source": source, "state": state, "edges": b"",
            "stamp": bytes(timestamp[ts_at : ts_at + 8]), "body": bytes(body[at : at + size]),
        }  # fmt: skip
        self.handles[id] = self.newest
        if state in IN_LOG:
            self.order.append(self.newest)
        return self.newest

    def put_part(self, part, group, source, id, id_at, state):
        content = self.parts.pop(part)
        return self.put(
            group, source, id, id_at, content, 32, content, 40, len(content) - 40, state
        )

    def bury(self, group, source, id, id_at, stamp, ts_at, handle):
        if handle:
            self.rows.pop(handle)
            self.handles.pop(bytes(id[id_at : id_at + 32]))
        return self.put(group, source, id, id_at, stamp, ts_at, b"", 0, 0, STATE_INVALID)

    def promote(self, handle, state):
        row = self.rows.pop(handle, None)
        if row is None or row["state"] != STATE_PENDING:
            return E_STORAGE
        self.newest += 1
        self.rows[self.newest] = row
        row["state"] = state
        self.handles[row["id"]] = self.newest
        self.order.append(self.newest)
        return self.newest

    def open_up(self, handle):
        row = self.rows[handle]
        row["private"] = False
        if row["state"] == STATE_PRIVATE:
            row["state"] = STATE_DELIVERED
        return OK

    def entomb(self, handle, edges, size, missing=0):  # noqa: ARG002 - a port's
        row = self.rows[handle]
        row["private"] = row["state"] == STATE_PRIVATE
        row["state"] = STATE_DELETED
        row["body"] = b""
        row["edges"] = bytes(edges[:size])
        return OK

    def unsettle(self):
        self.settled_handle = 0
        self.settled[:] = [0] * 8

    def keep(self, handle, missing):  # noqa: ARG002 - a port's
        return OK

    def next_kept(self, handle):  # noqa: ARG002 - a port's
        return 0

    def note(self, id, at):
        self.absent_ids.add(bytes(id[at : at + 32]))
        return True

    def noted(self, id, at):
        return bytes(id[at : at + 32]) in self.absent_ids

    def dropped(self, group):  # noqa: ARG002 - a port's
        return 0

    def find(self, id, at, size=32):
        wanted = bytes(id[at : at + size])
        if size == 32:
            return self.handles.get(wanted, 0)
        found = [self.handles[known] for known in self.handles if known[:size] == wanted]
        return found[0] if found else 0

    def is_id(self, handle, id, at, size):
        return handle in self.rows and self.rows[handle]["id"][:size] == id[at : at + size]

    def id_into(self, handle, buf, at):
        if handle in self.rows:
            buf[at : at + 32] = self.rows[handle]["id"]
        return handle in self.rows

    def load(self, handle):
        row = self.rows.get(handle)
        if row is None:
            return E_STORAGE
        self.id[:] = row["id"]
        self.timestamp[:] = row["stamp"]
        self.group, self.source, self.state = row["group"], row["source"], row["state"]
        self.private = self.state == STATE_PRIVATE or row.get("private", False)
        self.size, self.edges_size = len(row["body"]), len(row["edges"])
        return OK

    def read_into(self, handle, offset, buf, at, size):
        row = self.rows.get(handle)
        if row is None:
            return E_STORAGE
        piece = (row["edges"] or row["body"])[offset : offset + size]
        buf[at : at + len(piece)] = piece
        return len(piece)

    def next(self, handle):
        import bisect

        at = bisect.bisect_right(self.order, handle)
        return self.order[at] if at < len(self.order) else 0

    def next_pending(self, handle):
        waiting = [h for h, row in self.rows.items() if row["state"] == STATE_PENDING]
        return min((h for h in waiting if h > handle), default=0)

    full = E_CAPACITY
