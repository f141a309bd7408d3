"""Edits that make rows of docs/conformance.md untrue: BSP v1."""

from conformance_mutation import CORE, Mutation

BSP = [
    Mutation("B-1-01", CORE + "engine/exchange.py",
             "        if outbox.state(row) & EPHEMERAL:\n"
             "            # It is",
             "        if outbox.state(row) & EPHEMERAL or (code == "
             "CODE_SENT and not self.family == FAMILY_MVDS):\n"
             "            # It is"),
    Mutation("B-1.1-01", CORE + "engine/members.py",
             "            row = self._peer_row(0)  # the row of a peer that was removed",
             "            pass"),
    Mutation("B-1.1-01", CORE + "node.py",
             "self.links.pop(at).close()", "self.links.pop(at)"),
    Mutation("B-1.1-03", CORE + "engine/exchange.py",
             "        return members.visibility(group, self.peer)\n",
             "        return members.visibility(0, self.peer)\n"),
    Mutation("B-1.1-04", CORE + "engine/graph.py",
             "        if self.store.group != self.members.group_number(group):\n"
             "            return STATE_PENDING\n",
             ""),
    Mutation("B-1.1-05", CORE + "engine/exchange.py",
             "if row < 0 or not self.sees(row):",
             "if row < 0:"),
    Mutation("B-1.1-06", CORE + "engine/members.py",
             "        return self._table[(group + 1) * self.peers_max + peer]\n",
             "        return SHARED\n"),
    Mutation("B-1.1-07", CORE + "node.py",
             "members.set_visibility(group_row, peer_row, visibility)",
             "members.set_visibility(group_row, peer_row, max(before, visibility))"),
    Mutation("B-1.1-08", CORE + "engine/members.py",
             "        self._table[(group + 1) * self.peers_max + peer] = visibility\n",
             "        for row in range(self.peers):\n"
             "            self._table[(group + 1) * self.peers_max + row] = visibility\n"),
    Mutation("B-1.1-09", CORE + "engine/control.py",
             "store.entomb(handle, edges, 1 + count * ID_SIZE, missing)",
             "store.entomb(handle, edges, 1, missing)"),
    Mutation("B-1.1-10", CORE + "engine/graph.py",
             "        if verdict != SHARE:\n"
             "            return STATE_PRIVATE",
             "        if verdict == DELETE:\n"
             "            return STATE_PRIVATE"),
    Mutation("B-1.1-11", CORE + "engine/outbox.py",
             "        if shared and not self.is_source(source, handle):\n",
             "        if shared and not self.peer and not "
             "self.is_source(source, handle):\n"),
    Mutation("B-1.1-12", CORE + "engine/control.py",
             "    edges[0] = count\n", "    edges[0] = 0\n"),
    Mutation("B-1.1-13", CORE + "engine/graph.py",
             "        self._clients[group] = client or _DEFAULT\n",
             "        self._clients = [client or _DEFAULT] * len(self._clients)\n"),
    Mutation("B-1.1-14", CORE + "engine/graph.py",
             "        elif verdict == DELETE and self.control is not None:\n"
             "            self.control.delete(group, handle)\n",
             ""),
    Mutation("B-1.1-14", CORE + "node.py",
             "if visibility == SHARED and before != SHARED:",
             "if visibility == SHARED and before == INVISIBLE:"),
    Mutation("B-1.2-02", CORE + "seal/seal.py",
             "        if rows[place + WINDOW + (seq >> 3)] & 1 << (seq & 7):\n",
             "        if rows[place + WINDOW + (seq >> 3)] & 1 << (seq & 3):\n"),
    Mutation("B-1.3-01", CORE + "base/hashes.py",
             "_head[_TIMESTAMP_AT - 1] = 8\n", "_head[_TIMESTAMP_AT - 4] = 8\n"),
    Mutation("B-1.3-02", CORE + "base/memory.py",
             "buf[at] = value >> 8\n"
             "    buf[at + 1] = value & 255",
             "buf[at] = value & 255\n"
             "    buf[at + 1] = value >> 8 "),
    Mutation("B-1.3-03", CORE + "base/_blake2s_hashlib.py",
             'self._hash = blake2s(key=key or b"")', "self._hash = blake2s()"),
    Mutation("B-1.3-06", CORE + "base/_blake2s_hashlib.py",
             "out[at : at + 32] = self._hash.digest()",
             "out[at : at + 31] = self._hash.digest()[:31]"),
    Mutation("B-1.3-06", CORE + "base/_blake2s_hashlib.py",
             'self._hash = blake2s(key=key or b"")',
             'self._hash = blake2s(key=key or b"drupelet")'),
    Mutation("B-1.3-08", CORE + "base/hashes.py",
             "_head[_TIMESTAMP_AT - 1] = 8\n", ""),
    Mutation("B-2.1-01", CORE + "node.py",
             "if len(client_id) != ID_SIZE or len(descriptor)",
             "if len(client_id) > ID_SIZE or len(descriptor)"),
    Mutation("B-2.1-03", CORE + "base/hashes.py",
             "        self.update(client_id, at, _ID_SIZE)\n", ""),
    Mutation("B-2.2-01", CORE + "base/hashes.py",
             '_GROUP_LABEL = b"\\x00\\x00\\x00\\x08GROUP_ID',
             '_GROUP_LABEL = b"\\x00\\x00\\x00\\x08GROUP-ID'),
    Mutation("B-2.2-04", CORE + "node.py",
             "group_id_into(id, client_id, descriptor, len(descriptor))",
             'group_id_into(id, client_id, descriptor, len(descriptor.rstrip(b"\\0")))'),
    Mutation("B-2.2-05", CORE + "node.py",
             "len(descriptor) > DESCRIPTOR_SIZE_MAX",
             "len(descriptor) > DESCRIPTOR_SIZE_MAX + 1"),
    Mutation("B-2.3-01", CORE + "wire/bsp1.py",
             "copy(frame, at + ID_SIZE, core.store.timestamp, 0, CONTENT_HEADER_SIZE - ID_SIZE)",
             "copy(frame, at + ID_SIZE, core.store.timestamp, 0, "
             "CONTENT_HEADER_SIZE - ID_SIZE - 1)"),
    Mutation("B-2.3-02", CORE + "wire/bsp1.py",
             "        if buf[at + RECORD_HEADER_SIZE + ID_SIZE] & 0x80:\n"
             "            return E_PEER\n",
             ""),
    Mutation("B-2.3-02", CORE + "wire/bsp1.py",
             "buf[at + RECORD_HEADER_SIZE + ID_SIZE] & 0x80",
             "buf[at + RECORD_HEADER_SIZE + ID_SIZE] & 0xC0"),
    Mutation("B-2.3-04", CORE + "wire/bsp1.py",
             "length > CONTENT_HEADER_SIZE + BODY_SIZE_MAX",
             "length >= CONTENT_HEADER_SIZE + BODY_SIZE_MAX"),
    Mutation("B-2.3-05", CORE + "base/hashes.py",
             "        put_u32(_head, _LENGTH_AT, body_size)\n",
             "        put_u32(_head, _LENGTH_AT, body_size + 8)\n"),
    Mutation("B-3-01", CORE + "link/link.py",
             "code = self.codec.parse(exchange, frame, FRAME_HEADER_SIZE, "
             "size)",
             "code = self.codec.parse(exchange, frame, FRAME_HEADER_SIZE, "
             "len(frame))"),
    Mutation("B-3-02", CORE + "wire/bsp1.py",
             "VERSION = const(1)", "VERSION = const(2)"),
    Mutation("B-3-06", CORE + "wire/bsp1.py",
             "    if end - at < RECORD_HEADER_SIZE or buf[at] != VERSION:\n",
             "    if end - at < RECORD_HEADER_SIZE or buf[at] > VERSION:\n"),
    Mutation("B-3-06", CORE + "wire/bsp1.py",
             "        elif kind <= REQUEST:\n", "        elif kind <= REQUEST + 1:\n"),
    Mutation("B-3-07", CORE + "wire/bsp1.py",
             "elif kind <= REQUEST and (length == 0 or length % ID_SIZE):",
             "elif kind <= REQUEST and (length == 0 and kind != ACK or length % ID_SIZE):"),
    Mutation("B-3-08", CORE + "wire/bsp1.py",
             "                    exchange.on_ack(frame, id_at)\n",
             "                    exchange.on_ack(frame, at)\n"),
    Mutation("B-3-09", CORE + "wire/bsp1.py",
             "exchange.on_message(frame, at, frame, at + ID_SIZE, frame, "
             "body_at, size)",
             "exchange.on_message(frame, at + 8, frame, at, frame, body_at, "
             "size)"),
    Mutation("B-3-10", CORE + "wire/bsp1.py",
             "elif kind <= REQUEST and (length == 0 or length % ID_SIZE):",
             "elif kind <= REQUEST and (length == 0 and kind != OFFER or length % ID_SIZE):"),
    Mutation("B-3-11", CORE + "engine/exchange.py",
             "            self._note_held(handle, GOT_OFFER)\n",
             ""),
    Mutation("B-3-11", CORE + "engine/exchange.py",
             "if not due or self.sees(group) != SHARED or self._is_carried",
             "if not due or self._is_carried"),
    Mutation("B-3-12", CORE + "wire/bsp1.py",
             "elif kind <= REQUEST and (length == 0 or length % ID_SIZE):",
             "elif kind < REQUEST and (length == 0 or length % ID_SIZE):"),
    Mutation("B-3-13", CORE + "wire/bsp1.py",
             "exchange.on_request(frame, id_at)",
             "exchange.on_request(frame, at)"),
    Mutation("B-4.1-01", CORE + "engine/core.py",
             "        self.outboxes.append(Outbox(peer, self.store, "
             "self.members))\n",
             "        self.outboxes.append(\n"
             "            self.outboxes[0] if peer else Outbox(peer, "
             "self.store, self.members)\n"
             "        )\n"),
    Mutation("B-4.1-02", CORE + "engine/states.py",
             "    1, 1, 2, 1, 0, 0,    # -\n",
             "    0, 1, 2, 1, 0, 0,    # -\n"),
    Mutation("B-4.1-03", CORE + "engine/inbox.py",
             "        put_u32(self._owed_rows, at, handle)\n",
             "        put_u32(self._owed_rows, at, 0)\n"),
    Mutation("B-4.1-04", CORE + "engine/states.py",
             "    1, 1, 2, 1, 0, 0,    # -\n",
             "    1, 1, 0, 1, 0, 0,    # -\n"),
    Mutation("B-4.1-04", CORE + "engine/states.py",
             "    1, 1, 2, 1, NO, 0,   # R\n",
             "    1, 1, 2, 1, NO, 2,   # R\n"),
    Mutation("B-4.1-05", CORE + "engine/outbox.py",
             "        fill(self.rows, begin, ROW_SIZE, 0)\n",
             "        fill(self.rows, begin, TAG_SIZE, 0)\n"),
    Mutation("B-4.1-06", CORE + "engine/exchange.py",
             "        outbox.note_sent(row, counted(sends), self.epoch)\n",
             "        outbox.note_sent(row, counted(sends), "
             "outbox.epoch(row) or self.epoch)\n"),
    Mutation("B-4.1-07", CORE + "engine/exchange.py",
             "inbox.set_kind(entry, REQUESTED if self.family == FAMILY_MVDS else 0)",
             "inbox.set_kind(entry, REQUESTED)"),
    Mutation("B-4.1-08", CORE + "engine/inbox.py",
             "if may_evict and age > victim_age:",
             "if may_evict and (victim < 0 or age < victim_age):"),
    Mutation("B-4.1-08", CORE + "engine/inbox.py",
             "may_evict = self.kind(row) <= REQUESTED and (kind > "
             "REQUESTED or age)",
             "may_evict = self.kind(row) <= REQUESTED"),
    Mutation("B-4.1-09", CORE + "engine/core.py",
             "offers_max = max(self._offers_max // peers, INBOX_OFFERS_MIN)",
             "offers_max = max(self._offers_max // peers, INBOX_OFFERS_MIN) "
             "+ 1"),
    Mutation("B-4.2-01", CORE + "link/link.py",
             "is_interactive = mode == INTERACTIVE and not self.visits",
             "is_interactive = self.exchange.interactive or (\n"
             "            mode == INTERACTIVE and not self.visits\n"
             "        )"),
    Mutation("B-4.2-02", CORE + "engine/exchange.py",
             "is_offered_first = (self.interactive or self.is_quiet) and "
             "not state & EPHEMERAL",
             "is_offered_first = self.is_quiet and not state & EPHEMERAL"),
    Mutation("B-4.2-03", "host/drupelet_host/member/mode_policy.py",
             "if interactive + (batch >> 3) < batch:", "if interactive + (batch >> 3) > batch:"),
    Mutation("B-4.2-04", CORE + "link/link.py",
             "is_interactive = mode == INTERACTIVE and not self.visits",
             "is_interactive = self.exchange.interactive or (\n"
             "            mode == INTERACTIVE and not self.visits\n"
             "        )"),
    Mutation("B-4.2-05", CORE + "engine/exchange.py",
             "        elif not self.core.long.tell_if_coming(self, buf, at):\n",
             "        elif self.interactive and not "
             "self.core.long.tell_if_coming(self, buf, at):\n"),
    Mutation("B-4.2-06", CORE + "engine/exchange.py",
             "        if is_offered_first and not state & REQUEST:\n",
             "        if is_offered_first and not state & REQUEST and not "
             "outbox.sends(row):\n"),
    Mutation("B-4.2-07", CORE + "wire/bsp1.py",
             "    return fill_record(exchange, frame, at, limit, REQUEST)\n",
             "    return at\n"),
    Mutation("B-4.2-08", CORE + "engine/inbox.py",
             "        else:\n"
             "            put_u32(self._owed_rows, row * OWED_SIZE, 0)\n",
             "        else:\n"
             "            self.is_dirty = True\n"),
    Mutation("B-4.2-09", CORE + "engine/exchange.py",
             "            self._owe_reply(handle, buf, at)\n",
             ""),
    Mutation("B-4.2-10", CORE + "engine/exchange.py",
             "inbox.set_kind(entry, REQUESTED if self.family == FAMILY_MVDS else 0)",
             "inbox.set_kind(entry, REQUESTED if self.family == FAMILY_MVDS else OFFERED)"),
    Mutation("B-4.2-10", CORE + "engine/exchange.py",
             "        else:\n"
             "            group = self.core.members.group_row(self.core.store.group)\n"
             "            row = self.outbox.row_of(handle)\n",
             "        elif self.outbox.row_of(handle) >= 0:\n"
             "            group = self.core.members.group_row(self.core.store.group)\n"
             "            row = self.outbox.row_of(handle)\n"),
    Mutation("B-4.2-11", CORE + "engine/exchange.py",
             "        outbox.make_due(row)\n"
             "        outbox.unmark(row, BUNDLED)\n",
             "        pass\n"),
    Mutation("B-4.2-12", CORE + "engine/exchange.py",
             "(row := outbox.next_open(scan[_OFFER_ROW]))",
             "(row := scan[_OFFER_ROW])"),
    Mutation("B-4.2-13", CORE + "engine/exchange.py",
             "is_offered_first = (self.interactive or self.is_quiet) and "
             "not state & EPHEMERAL",
             "is_offered_first = not state & EPHEMERAL"),
    Mutation("B-4.2-19", CORE + "engine/exchange.py",
             "        return self.sees(group) == SHARED and not "
             "self._is_carried(group, row)\n",
             "        return not self._is_carried(group, row)\n"),
    Mutation("B-4.3-01", CORE + "engine/pace.py",
             "self.probes = counted(self.probes) if self.is_silent() else 1",
             "self.probes = 1"),
    Mutation("B-4.3-01", CORE + "engine/exchange.py",
             "        outbox.note_sent(row, counted(sends), self.epoch)\n",
             "        outbox.note_sent(row, counted(sends), "
             "outbox.epoch(row) or self.epoch)\n"),
    Mutation("B-4.3-02", CORE + "engine/pace.py",
             "        self.is_away = False\n        self.probes = 0\n",
             "        self.is_away = False\n"),
    Mutation("B-4.3-03", CORE + "engine/backoff.py",
             "        return 1 << send_count\n", "        return 2 * send_count\n"),
    Mutation("B-4.3-03", CORE + "engine/backoff.py",
             "    return BACKOFF_EPOCHS_MAX\n", "    return 1 << min(send_count, 12)\n"),
    Mutation("B-4.3-04", CORE + "engine/pace.py",
             "return self.heard_epoch >= 0 and epochs_since(self.heard_epoch, then) < 0x8000",
             "return False"),
    Mutation("B-5-01", CORE + "engine/graph.py",
             "        if verdict != SHARE:\n"
             "            return STATE_PRIVATE",
             "        if verdict == DELETE:\n"
             "            return STATE_PRIVATE"),
    Mutation("B-5-02", CORE + "engine/graph.py",
             "        for row in range(count):\n"
             "            if not client",
             "        for row in range(min(count, 7)):\n"
             "            if not client"),
    Mutation("B-5-02", CORE + "engine/body.py",
             "count > DEPENDENCIES_MAX or", "count > DEPENDENCIES_MAX + 1 or"),
    Mutation("B-5-03", CORE + "engine/graph.py",
             "headed = self.members.family(group) == FAMILY_MVDS or reader.bare",
             "headed = True"),
    Mutation("B-5-04", CORE + "engine/core.py",
             "            return E_PEER if stamp & 0x80 else 0\n",
             "            return E_PEER if stamp & 0x80 else min(1 + first * ID_SIZE, size)\n"),
    Mutation("B-5-05", CORE + "engine/graph.py",
             "                    missing = self.missing(group)\n"
             "                    if missing <= 0 and self._deliver_or_bury(row,",
             "                    missing = self.missing(group)\n"
             "                    if missing > 0:\n"
             "                        break\n"
             "                    if missing <= 0 and self._deliver_or_bury(row,"),
    Mutation("B-5-07", CORE + "engine/graph.py",
             "        for row in range(count):\n"
             "            if not client",
             "        for row in range(min(count, 1)):\n"
             "            if not client"),
    Mutation("B-5-08", CORE + "engine/graph.py",
             "        if missing < 0 or verdict == INVALID:\n",
             "        if missing == E_PEER and source:\n"
             "            return REFUSED\n"
             "        if missing < 0 or verdict == INVALID:\n"),
    Mutation("B-5-08", CORE + "engine/graph.py",
             "return self._bury(group, id, 0, 0) if source else E_PEER",
             "return self._bury(group, id, 0, 0)"),
    Mutation("B-5-09", CORE + "engine/graph.py",
             "            if state == STATE_INVALID:\n"
             "                return _POISONED\n",
             "            if state == STATE_INVALID:\n"
             "                continue\n"),
    Mutation("B-5-10", CORE + "engine/graph.py",
             "        if not handle and self.store.noted(self.ids, 0):\n"
             "            self._depends_on_gone = True\n"
             "            return STATE_GONE\n",
             ""),
    Mutation("B-5-12", CORE + "engine/graph.py",
             "        if missing == 0:\n"
             "            verdict = self._clients[group].validate(self.reader)",
             "        if missing >= 0:\n"
             "            verdict = self._clients[group].validate(self.reader)"),
    Mutation("B-5-13", CORE + "engine/graph.py",
             "        if missing < 0 or verdict == INVALID:\n", "        if missing < 0:\n"),
    Mutation("B-5-14", CORE + "engine/graph.py",
             "            if state == STATE_INVALID:\n"
             "                return _POISONED\n",
             "            if state == STATE_INVALID:\n"
             "                continue\n"),
    Mutation("B-5-15", CORE + "engine/graph.py",
             "        if self._depends_on_private and self.control is not "
             "None:\n",
             "        if self._depends_on_gone and self.control is not "
             "None:\n"),
    Mutation("B-5-16", CORE + "node.py",
             "return E_STORAGE if group < 0 else "
             "self._control().delete(group, handle)",
             "return E_STORAGE if group < 0 else OK"),
    Mutation("B-5-17", CORE + "engine/graph.py",
             "        handle = self.store.find(self.ids, 0)\n"
             "        if not handle and self.store.noted(self.ids, 0):\n",
             "        handle = self.store.find(self.ids, 0)\n"
             "        if self.store.load(handle) == OK and not "
             "self.store.size:\n"
             "            return STATE_PENDING\n"
             "        if not handle and self.store.noted(self.ids, 0):\n"),
]  # fmt: skip
