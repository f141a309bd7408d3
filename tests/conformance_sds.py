"""Edits that make rows of docs/conformance.md untrue: SDS."""

from conformance_mutation import CORE, Mutation

SDS = [
    Mutation("S-2-01", CORE + "wire/sds/message.py",
             "REPAIR = const(13)", "REPAIR = const(14)"),
    Mutation("S-2-01", CORE + "wire/sds/message.py",
             "_ENTRY_SENDER = const(3)", "_ENTRY_SENDER = const(4)"),
    Mutation("S-2-02", CORE + "channel/outlet.py",
             "code = out.put_bytes(SENDER_ID, mine, 0, len(mine))",
             "code = out.put_bytes(SENDER_ID, mine, 0, len(mine) - 1)"),
    Mutation("S-2-03", CORE + "base/hashes_sds.py",
             "        self._part(lamport, 0, 8)\n", ""),
    Mutation("S-2-03", CORE + "base/hashes_sds.py",
             "        self._part(channel, 0, len(channel))\n", ""),
    Mutation("S-2-04", CORE + "channel/intake.py",
             "if message.channel_size != len(own) or not equal(",
             "if message.channel_size < len(own) or not equal("),
    Mutation("S-2-05", CORE + "channel/outlet.py",
             "out.put_text(CHANNEL_ID, self.id, 0, len(self.id))",
             "out.put_text(CHANNEL_ID, self.id, 0, 1)"),
    Mutation("S-2-06", CORE + "channel/channel.py",
             "        self.clock.tick(now_ms)\n", ""),
    Mutation("S-2-06", CORE + "channel/channel.py",
             "        code |= self.put_causal(bytes_size(CONTENT, size), True)\n", ""),
    Mutation("S-2-07", CORE + "channel/channel.py",
             "        code |= out.put_bytes(CONTENT, content, at, size)\n"
             "        return out.at if code == OK else E_CAPACITY",
             "        code |= out.put_lamport(self.clock.value, 0)\n"
             "        code |= out.put_bytes(CONTENT, content, at, size)\n"
             "        return out.at if code == OK else E_CAPACITY"),
    Mutation("S-2-08", CORE + "channel/intake.py",
             "        code = OK\n"
             "        if message.content_size == 0:",
             "        code = OK\n"
             "        if message.content_at < 0:"),
    Mutation("S-2-08", CORE + "channel/outlet.py",
             "        self._put_rest(now_ms)\n"
             "        self.syncs += 1",
             "        out.put_bytes(CONTENT, _SYNC_ID, 0, 1)\n"
             "        self.syncs += 1"),
    Mutation("S-3-01", CORE + "channel/lamport.py",
             "        add(self.value, 0, 1)\n", ""),
    Mutation("S-3-02", CORE + "channel/log.py",
             "bloom.capacity * 3 // 4", "bloom.capacity // 2"),
    Mutation("S-3-03", CORE + "wire/sds/bloom.py",
             "    while share > error_rate:\n"
             "        share *= _ERROR_PER_BIT\n"
             "        bits += 1\n",
             "    while share * _ERROR_PER_BIT > error_rate:\n"
             "        share *= _ERROR_PER_BIT\n"
             "        bits += 1\n"),
    Mutation("S-3-03", CORE + "wire/sds/bloom.py",
             "_LN2_MILLIONTHS + 500000) // 1000000", "_LN2_MILLIONTHS) // 1000000"),
    Mutation("S-4-01", CORE + "channel/intake.py",
             "        missing = self.unmet(now_ms, fits)\n",
             "        missing = self.unmet(now_ms, fits) * 0\n"),
    Mutation("S-5-01", CORE + "channel/lamport.py",
             "        add(self.value, 0, 1)\n", ""),
    Mutation("S-5-01", CORE + "channel/lamport.py",
             "            if compare(self.value, 0, self._wall, 0) < 0:\n",
             "            if compare(self.value, 0, self._wall, 0) > 0:\n"),
    Mutation("S-5-02", CORE + "channel/outlet.py",
             "return code | out.put_lamport(self.clock.value, 0)",
             "return code | out.put_lamport(bytes(8), 0)"),
    Mutation("S-5-03", CORE + "channel/outlet.py",
             "log.count - (1 if cramped else self.settings.causal), 0)", "log.count - 1, 0)"),
    Mutation("S-5-03", CORE + "channel/outlet.py",
             "                heads -= 1\n", ""),
    Mutation("S-5-03", CORE + "channel/outlet.py",
             "room = room if heads > 0 or (again and not kept) else 0",
             "room = room if heads > 0 else 0"),
    Mutation("S-5-04", CORE + "channel/outlet.py",
             "            hint = self.hints.hint_into(handle, self.text)\n",
             "            self.hints.hint_into(handle, self.text)\n"),
    Mutation("S-5-04", CORE + "channel/log.py",
             "                self.hints.note(message)\n", "                pass\n"),
    Mutation("S-5-05", CORE + "channel/outlet.py",
             "if self.settings.send_bloom and out.at + self.filter_size()",
             "if out.at + self.filter_size()"),
    Mutation("S-5-05", CORE + "channel/outlet.py",
             "room = _REQUEST_SIZE if asks else 0\n", "room = 0\n"),
    Mutation("S-5-06", CORE + "channel/channel.py",
             "            return E_CAPACITY\n"
             "        self.clock.tick(now_ms)",
             "            pass\n"
             "        self.clock.tick(now_ms)"),
    Mutation("S-6-01", CORE + "channel/intake.py",
             "        if mine and not self.recovering:\n",
             "        if mine and self.recovering:\n"),
    Mutation("S-6-01", CORE + "channel/intake.py",
             "        if mine and not self.recovering:\n", "        if mine:\n"),
    Mutation("S-6-02", CORE + "channel/intake.py",
             "        if self.keeper.find(key, 0, frame, message.id_at, message.id_size):\n"
             "            self.duplicates",
             "        if self.log.find(key, 0) >= 0:\n"
             "            self.duplicates"),
    Mutation("S-6-02", CORE + "channel/intake.py",
             "        if self._is_beyond(now_ms):\n", "        if False:\n"),
    Mutation("S-6-03", CORE + "channel/intake.py",
             "            self._review(frame, now_ms)\n", ""),
    Mutation("S-6-03", CORE + "channel/intake.py",
             "        if message.bloom_at >= 0:\n"
             "            self._review_bloom(frame)\n",
             ""),
    Mutation("S-6-03", CORE + "channel/intake.py",
             "                outgoing.table[place + OUT_STATE] = POSSIBLY\n",
             "                outgoing.remove(row)\n"
             "                return\n"),
    Mutation("S-6-04", CORE + "channel/intake.py",
             "        self.add_to_bloom(key)\n"
             "        if missing:",
             "        if missing:"),
    Mutation("S-6-05", CORE + "channel/log.py",
             "            if not waits and self.keeper.find(",
             "            if self.keeper.find("),
    Mutation("S-6-06", CORE + "channel/log.py",
             "            if row >= 0 or self._is_lost(key):\n"
             "                continue\n",
             "            if row >= 0 or self._is_lost(key):\n"
             "                break\n"),
    Mutation("S-6-07", CORE + "channel/intake.py",
             "fits = highest < 0 or self._is_above(highest)", "fits = highest < 0"),
    Mutation("S-6-07", CORE + "channel/intake.py",
             "        if missing:\n"
             "            self.hold(handle, now_ms)\n"
             "        else:\n"
             "            self.deliver(key, 0, handle, message.lamport, 0, now_ms, "
             "not carried)\n",
             "        self.deliver(key, 0, handle, message.lamport, 0, now_ms, not carried)\n"),
    Mutation("S-7-01", CORE + "channel/log.py",
             "        self.clock.take(lamport, at, now_ms)\n", ""),
    Mutation("S-7-01", CORE + "channel/lamport.py",
             "        if not self._trusted:\n", "        if True:\n"),
    Mutation("S-7-01", CORE + "channel/lamport.py",
             "        elif self._is_set():\n", "        elif self._has_wall:\n"),
    Mutation("S-7-02", CORE + "channel/log.py",
             "        row = log.place(lamport, at)\n", "        row = log.count\n"),
    Mutation("S-7-03", CORE + "channel/log.py",
             "work[id_at]) <= 0:", "work[id_at]) >= 0:"),
    Mutation("S-8-01", CORE + "channel/keeper.py",
             "return -1 if one < other else 1", "return 1 if one < other else -1"),
    Mutation("S-9-01", CORE + "channel/intake.py",
             "                handle = self.release(row)\n",
             "                while row:\n"
             "                    row -= 1\n"
             "                    self.release(row)\n"
             "                handle = self.release(row)\n"),
    Mutation("S-9-02", CORE + "wire/sds/bloom.py",
             "        if size != len(self.bits):\n", "        if size < len(self.bits):\n"),
    Mutation("S-9-02", CORE + "wire/sds/bloom.py",
             "_FULL_TENTHS = const(6)", "_FULL_TENTHS = const(9)"),
    Mutation("S-9-02", CORE + "wire/sds/bloom.py",
             "_FULL_TENTHS = const(6)", "_FULL_TENTHS = const(3)"),
    Mutation("S-10-01", CORE + "channel/log.py",
             "        log.insert(row, key, key_at, handle, lamport, at)\n"
             "        self._look_for(key, key_at)\n",
             "        log.insert(row, key, key_at, handle, lamport, at)\n"),
    Mutation("S-10-01", CORE + "channel/outlet.py",
             "        if settings.repair:\n"
             "            self.look_again(now_ms)\n",
             ""),
    Mutation("S-10-02", CORE + "channel/log.py",
             "            if want and not waits:\n", "            if want and waits:\n"),
    Mutation("S-10-03", "host/drupelet_host/store_node.py",
             "WHERE channel = ? AND hint = ?", "WHERE channel = ? AND hint >= ?"),
    Mutation("S-10-04", CORE + "channel/log.py",
             "if self.look(best, now_ms, False) == 0:",
             "if self.look(best, now_ms, False) >= 0:"),
    Mutation("S-10-05", CORE + "channel/log.py",
             "late = is_due(now_ms, later_ms(incoming.times_ms[row], lost_ms))", "late = True"),
    Mutation("S-10-05", CORE + "channel/log.py",
             "self._release(best, now_ms, EVENT_GAP)",
             "self._release(best, now_ms, EVENT_MESSAGE)"),
    Mutation("S-11-01", CORE + "channel/outlet.py",
             "self._due(UNACKNOWLEDGED, self.settings.period_ms, now_ms)",
             "self._due(UNACKNOWLEDGED, 2 * self.settings.period_ms, now_ms)"),
    Mutation("S-11-01", CORE + "channel/outlet.py",
             "OUT_RESENDS] >= CHANNEL_RESENDS_MAX:", "OUT_RESENDS] > CHANNEL_RESENDS_MAX:"),
    Mutation("S-11-01", CORE + "channel/outlet.py",
             "            if self.heard_ms >= 0 and elapsed_ms(now_ms, "
             "self.heard_ms) <= since_ms:\n",
             "            if True:\n"),
    Mutation("S-11-02", CORE + "channel/outlet.py",
             "wait_ms = self.settings.period_ms * self.settings.possibly_periods",
             "wait_ms = self.settings.period_ms"),
    Mutation("S-11-02", CORE + "channel/settings.py",
             "self.possibly_periods = 4", "self.possibly_periods = 3"),
    Mutation("S-12-01", CORE + "channel/outlet.py",
             "wait_ms += (wait_ms >> 8) * self._random_byte()",
             "wait_ms += (wait_ms >> 7) * self._random_byte()"),
    Mutation("S-12-01", CORE + "channel/outlet.py",
             "wait_ms += (wait_ms >> 8) * self._random_byte()",
             "wait_ms += (wait_ms >> 9) * self._random_byte()"),
    Mutation("S-12-02", CORE + "channel/outlet.py",
             "        self._put_rest(now_ms)\n"
             "        self.syncs += 1",
             "        out.put_bytes(CONTENT, _SYNC_ID, 0, 1)\n"
             "        self.syncs += 1"),
    Mutation("S-12-03", CORE + "channel/outlet.py",
             "        self.clock.tick(now_ms)\n"
             "        out = self.encoder\n",
             "        out = self.encoder\n"),
    Mutation("S-12-04", CORE + "channel/outlet.py",
             "        self.put_causal(_REQUEST_SIZE if asks else 0, False)\n", ""),
    Mutation("S-12-04", CORE + "channel/outlet.py",
             "        self._put_rest(now_ms)\n"
             "        self.syncs += 1",
             "        if asks:\n"
             "            self._put_rest(now_ms)\n"
             "        self.syncs += 1"),
    Mutation("S-12-05", CORE + "channel/intake.py",
             "            self.unmet(now_ms, True)\n"
             "        else:",
             "            self.unmet(now_ms, True)\n"
             "            self.add_to_bloom(self.key)\n"
             "        else:"),
    Mutation("S-12-09", CORE + "channel/outlet.py",
             '_SYNC_ID = b"sync"', '_SYNC_ID = b"synk"'),
    Mutation("S-12-10", CORE + "channel/outlet.py",
             "if self.heard and not asks and not self.log.again:",
             "if self.heard and self.log.count == 0:"),
    Mutation("S-12-10", CORE + "channel/outlet.py",
             "wait_ms += (wait_ms >> 8) * self._random_byte()",
             "wait_ms += (wait_ms >> 8) * 128"),
    Mutation("S-12-11", CORE + "channel/intake.py",
             "            self.unmet(now_ms, True)\n"
             "        else:",
             "            self.unmet(now_ms, False)\n"
             "        else:"),
    Mutation("S-13-01", CORE + "channel/channel.py",
             "        code |= out.put_bytes(CONTENT, content, at, size)\n"
             "        return out.at if code == OK else E_CAPACITY",
             "        code |= out.put_lamport(self.clock.value, 0)\n"
             "        code |= out.put_bytes(CONTENT, content, at, size)\n"
             "        return out.at if code == OK else E_CAPACITY"),
    Mutation("S-13-02", CORE + "channel/channel.py",
             "        code |= out.put_bytes(CONTENT, content, at, size)\n"
             "        return out.at if code == OK else E_CAPACITY",
             "        code |= self.put_causal(size, True)\n"
             "        code |= out.put_bytes(CONTENT, content, at, size)\n"
             "        return out.at if code == OK else E_CAPACITY"),
    Mutation("S-13-03", CORE + "channel/channel.py",
             "        return out.at if code == OK else E_CAPACITY\n"
             "\n"
             "    def _send_later",
             "        self.outgoing.add(self.key, 0, 0)\n"
             "        return out.at if code == OK else E_CAPACITY\n"
             "\n"
             "    def _send_later"),
    Mutation("S-13-04", CORE + "channel/intake.py",
             "        if not message.has_lamport:\n",
             "        if not message.has_lamport and not message.content_size:\n"),
    Mutation("S-14-01", CORE + "channel/repair.py",
             "if longest < late < _LATE_MS and not", "if best < 0 and late < _LATE_MS and not"),
    Mutation("S-15-01", CORE + "channel/repair.py",
             "sender, sender_at, sender_size, id, at, size, settings.response_groups\n",
             "sender, sender_at, sender_size, id, at, size, 1\n"),
    Mutation("S-15-02", CORE + "channel/settings.py",
             "self.t_min_ms = 30_000", "self.t_min_ms = 20_000"),
    Mutation("S-15-03", CORE + "channel/settings.py",
             "self.t_max_ms = 300_000", "self.t_max_ms = 310_000"),
    Mutation("S-15-04", CORE + "channel/settings.py",
             "return participants // 128 + 1", "return (participants + 127) // 128"),
    Mutation("S-15-05", CORE + "channel/repair.py",
             "sender, sender_at, sender_size, id, at, size, settings.response_groups\n",
             "sender, sender_at, sender_size, id, at, size, 1\n"),
    Mutation("S-16-01", CORE + "channel/outlet.py",
             "        self._put_rest(now_ms)\n"
             "        copy(frame, out.at, work, head, content_at)",
             "        copy(frame, out.at, work, head, content_at)"),
    Mutation("S-16-02", CORE + "channel/repair.py",
             "if longest < late < _LATE_MS and not", "if best < 0 and late < _LATE_MS and not"),
    Mutation("S-16-03", CORE + "channel/repair.py",
             "for _ in range(CHANNEL_REQUESTS_SENT):",
             "for _ in range(CHANNEL_REQUESTS_SENT + 1):"),
    Mutation("S-16-04", CORE + "channel/repair.py",
             "if longest < late < _LATE_MS and not", "if longest < late and not"),
    Mutation("S-17-01", CORE + "channel/repair.py",
             "        if row >= 0:\n"
             "            self.wanted.remove(row)\n"
             "        row = self.asked.find(key, 0)\n",
             "        row = self.asked.find(key, 0)\n"),
    Mutation("S-17-02", CORE + "channel/repair.py",
             "_ANSWERED_AT]:\n"
             "            self.asked.remove(row)\n"
             "\n"
             "    def requested",
             "_ANSWERED_AT]:\n"
             "            pass\n"
             "\n"
             "    def requested"),
    Mutation("S-17-03", CORE + "channel/repair.py",
             "            row = wanted.add(key, 0, later_ms(now_ms, wait_ms))\n",
             "            row = wanted.add(key, 0, later_ms(now_ms, settings.t_min_ms))\n"),
    Mutation("S-17-03", CORE + "channel/repair.py",
             "            if best < 0 or (order > 0 if of_refused else order < 0):\n",
             "            if best < 0 or order > 0:\n"),
    Mutation("S-17-04", CORE + "base/hashes_sds.py",
             "return _rest(self._digest, t_max - t_min) + t_min",
             "return _rest(self._digest, t_max) + t_min"),
    Mutation("S-17-05", CORE + "channel/repair.py",
             "        else:\n"
             "            self.wanted.remove(row)\n"
             "\n"
             "    def eligible",
             "\n"
             "    def eligible"),
    Mutation("S-17-06", CORE + "channel/outlet.py",
             "        self._repairs_left -= 1\n", ""),
    Mutation("S-17-06", CORE + "channel/repair.py",
             "                asked.times_ms[row] = later_ms(now_ms, self._settings.t_max_ms)\n",
             "                asked.times_ms[row] = now_ms\n"),
    Mutation("S-17-07", CORE + "base/hashes_sds.py",
             "            digest[index] ^= other[index]\n",
             "            digest[index] |= other[index]\n"),
    Mutation("S-17-08", CORE + "base/hashes_sds.py",
             "        self._digest_of(self._digest, mine, 0, len(mine), id, at, size)\n"
             "        self._digest_of(self._other, sender, sender_at, sender_size, "
             "id, at, size)\n",
             "        self._digest_of(self._digest, id, at, size, mine, 0, len(mine))\n"
             "        self._digest_of(self._other, id, at, size, sender, sender_at, "
             "sender_size)\n"),
    Mutation("S-18-01", CORE + "channel/outlet.py",
             "        if not size and self._repairs_left:\n",
             "        if not size and self._repairs_left and is_due(now_ms, self._sync_ms):\n"),
    Mutation("S-18-02", CORE + "channel/repair.py",
             "        row = asked.add(key, 0, later_ms(now_ms, wait_ms))",
             "        row = asked.add(key, 0, now_ms)"),
    Mutation("S-18-02", CORE + "channel/outlet.py",
             "            copy(frame, 0, self.keeper.work, 0, size)\n"
             "            self.repaired += 1\n"
             "            self._sent()\n",
             "            self.repaired += 1\n"
             "            return self._compose(frame, size, now_ms)\n"),
    Mutation("S-19-01", CORE + "channel/outlet.py",
             "if self.heard and not asks and not self.log.again:",
             "if self.heard and not self.log.again:"),
]  # fmt: skip
