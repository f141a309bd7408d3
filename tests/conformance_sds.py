"""Edits that make rows of docs/conformance.md untrue: SDS."""

from conformance_mutation import CORE, Mutation

SDS = [
    Mutation("S-2-01", CORE + "wire/sds/message.py",
             "REPAIR = const(13)", "REPAIR = const(14)"),
    Mutation("S-2-01", CORE + "wire/sds/message.py",
             "_ENTRY_SENDER = const(3)", "_ENTRY_SENDER = const(4)"),
    Mutation("S-2-02", CORE + "channel/frame_writer.py",
             "code = out.put_bytes(SENDER_ID, participant, 0, len(participant))",
             "code = out.put_bytes(SENDER_ID, participant, 0, len(participant) - 1)"),
    Mutation("S-2-03", CORE + "base/hashes_sds.py",
             "        self._part(lamport, 0, 8)\n", ""),
    Mutation("S-2-03", CORE + "base/hashes_sds.py",
             "        self._part(channel, 0, len(channel))\n", ""),
    Mutation("S-2-04", CORE + "channel/channel.py",
             "if message.channel_size != len(channel_id) or not equal(",
             "if message.channel_size < len(channel_id) or not equal("),
    Mutation("S-2-05", CORE + "channel/frame_writer.py",
             "out.put_text(CHANNEL_ID, self._id, 0, len(self._id))",
             "out.put_text(CHANNEL_ID, self._id, 0, 1)"),
    Mutation("S-2-06", CORE + "channel/channel.py",
             "        self.clock.tick(now_ms)\n"
             "        if id is None:",
             "        if id is None:"),
    Mutation("S-2-06", CORE + "channel/frame_writer.py",
             "        code |= self._put_history(bytes_size(CONTENT, size), True)\n", ""),
    Mutation("S-2-07", CORE + "channel/frame_writer.py",
             "self._put_head(self.text, OWN_ID_SIZE, None)",
             "self._put_head(self.text, OWN_ID_SIZE, bytearray(8))"),
    Mutation("S-2-08", CORE + "channel/channel.py",
             "        code = OK\n"
             "        if message.content_size == 0:",
             "        code = OK\n"
             "        if message.content_at < 0:"),
    Mutation("S-2-08", CORE + "channel/frame_writer.py",
             "        self._put_filter_and_requests(request, now_ms)\n"
             "        return out.at\n",
             "        self._put_filter_and_requests(request, now_ms)\n"
             "        out.put_bytes(CONTENT, _SYNC_ID, 0, 1)\n"
             "        return out.at\n"),
    Mutation("S-3-01", CORE + "channel/lamport.py",
             "        add(self.value, 0, 1)\n", ""),
    Mutation("S-3-02", CORE + "channel/log.py",
             "bloom.capacity * 3 // 4", "bloom.capacity // 2"),
    Mutation("S-3-03", CORE + "wire/sds/bloom.py",
             "    while error > error_rate:\n"
             "        error *= _ERROR_PER_BIT\n"
             "        bits += 1\n",
             "    while error * _ERROR_PER_BIT > error_rate:\n"
             "        error *= _ERROR_PER_BIT\n"
             "        bits += 1\n"),
    Mutation("S-3-03", CORE + "wire/sds/bloom.py",
             "_LN2_MILLIONTHS + 500000) // 1000000", "_LN2_MILLIONTHS) // 1000000"),
    Mutation("S-4-01", CORE + "channel/channel.py",
             "        missing = log.count_missing(now_ms, fits)\n",
             "        missing = log.count_missing(now_ms, fits) * 0\n"),
    Mutation("S-5-01", CORE + "channel/lamport.py",
             "        add(self.value, 0, 1)\n", ""),
    Mutation("S-5-01", CORE + "channel/lamport.py",
             "        if compare(self.value, 0, self._wall, 0) < 0:\n",
             "        if compare(self.value, 0, self._wall, 0) > 0:\n"),
    Mutation("S-5-02", CORE + "channel/frame_writer.py",
             "code | out.put_lamport(lamport)", "code | out.put_lamport(bytes(8))"),
    Mutation("S-5-03", CORE + "channel/frame_writer.py",
             "log.rows.count - (1 if is_cramped else log.settings.causal), 0)",
             "log.rows.count - 1, 0)"),
    Mutation("S-5-03", CORE + "channel/frame_writer.py",
             "                extras_left -= 1\n", ""),
    Mutation("S-5-03", CORE + "channel/frame_writer.py",
             "room = room if extras_left > 0 or (again and not kept) else 0",
             "room = room if extras_left > 0 else 0"),
    Mutation("S-5-04", CORE + "channel/frame_writer.py",
             "-1 if hints is None else hints.hint_into(handle, self.text)", "-1"),
    Mutation("S-5-04", CORE + "channel/log.py",
             "                self.settings.hints.note(message)\n", "                pass\n"),
    Mutation("S-5-05", CORE + "channel/frame_writer.py",
             "if self._log.settings.send_bloom and out.at + self._filter_size()",
             "if out.at + bytes_size(BLOOM, len(bits))"),
    Mutation("S-5-05", CORE + "channel/frame_writer.py",
             "room = _REQUEST_SIZE if request >= 0 else 0\n", "room = 0\n"),
    Mutation("S-5-06", CORE + "channel/channel.py",
             "        if self.outbox.rows.is_full():\n"
             "            return E_CAPACITY\n"
             "        key = self.key",
             "        key = self.key"),
    Mutation("S-6-01", CORE + "channel/channel.py",
             "        if is_mine and not log.recovering:\n",
             "        if is_mine and log.recovering:\n"),
    Mutation("S-6-01", CORE + "channel/channel.py",
             "        if is_mine and not log.recovering:\n", "        if is_mine:\n"),
    Mutation("S-6-02", CORE + "channel/channel.py",
             "        if self.keeper.find(key, buf, message.id_at, message.id_size):\n",
             "        if log.rows.find(key) >= 0:\n"),
    Mutation("S-6-02", CORE + "channel/channel.py",
             "        if self._is_beyond(now_ms):\n", "        if False:\n"),
    Mutation("S-6-03", CORE + "channel/channel.py",
             "            self._review(frame, now_ms)\n", ""),
    Mutation("S-6-03", CORE + "channel/channel.py",
             "        if message.bloom_at >= 0:\n", "        if False:\n"),
    Mutation("S-6-03", CORE + "channel/outbox.py",
             "                rows.set_state(row, POSSIBLY)\n",
             "                rows.remove(row)\n"
             "                return\n"),
    Mutation("S-6-04", CORE + "channel/channel.py",
             "        log.add_to_bloom(key)\n"
             "        if missing:",
             "        if missing:"),
    Mutation("S-6-05", CORE + "channel/log.py",
             "            if not is_waiting and self.keeper.find(",
             "            if self.keeper.find("),
    Mutation("S-6-06", CORE + "channel/log.py",
             "            if row >= 0 or self._is_lost(key):\n"
             "                continue\n",
             "            if row >= 0 or self._is_lost(key):\n"
             "                break\n"),
    Mutation("S-6-07", CORE + "channel/channel.py",
             "fits = highest_row < 0 or log.is_above(highest_row)", "fits = highest_row < 0"),
    Mutation("S-6-07", CORE + "channel/channel.py",
             "        if missing:\n"
             "            log.hold(key, handle, now_ms)\n"
             "        else:\n",
             "        if handle:\n"),
    Mutation("S-7-01", CORE + "channel/channel.py",
             "        self.clock.adopt(self.decoder.lamport, now_ms)\n"
             "        self.log.enter(self.key, handle)\n"
             "        self.delivered",
             "        self.log.enter(self.key, handle)\n"
             "        self.delivered"),
    Mutation("S-7-01", CORE + "channel/lamport.py",
             "        if not self._trusted:\n", "        if True:\n"),
    Mutation("S-7-01", CORE + "channel/lamport.py",
             "        elif is_set:\n", "        elif self._has_wall:\n"),
    Mutation("S-7-02", CORE + "channel/log.py",
             "        row = self._position(handle)\n", "        row = self.count\n"),
    Mutation("S-7-03", CORE + "channel/log.py",
             "work, id_at + 1, work[id_at])\n", "work, id_at + 1, work[id_at]) * -1\n"),
    Mutation("S-8-01", CORE + "channel/keeper.py",
             "return -1 if one < other else 1", "return 1 if one < other else -1"),
    Mutation("S-9-01", CORE + "channel/channel.py",
             "                self.outbox.release(row)\n"
             "                if notify",
             "                while row:\n"
             "                    row -= 1\n"
             "                    self.outbox.release(row)\n"
             "                self.outbox.release(row)\n"
             "                if notify"),
    Mutation("S-9-02", CORE + "wire/sds/bloom.py",
             "        if size != len(self.bits):\n", "        if size < len(self.bits):\n"),
    Mutation("S-9-02", CORE + "wire/sds/bloom.py",
             "_FULL_TENTHS = const(6)", "_FULL_TENTHS = const(9)"),
    Mutation("S-9-02", CORE + "wire/sds/bloom.py",
             "_FULL_TENTHS = const(6)", "_FULL_TENTHS = const(3)"),
    Mutation("S-10-01", CORE + "channel/log.py",
             "        self._check_waiting(key)\n"
             "        rows = self.rows\n",
             "        rows = self.rows\n"),
    Mutation("S-10-01", CORE + "channel/channel.py",
             "        if settings.repair:\n"
             "            log.want_missing(now_ms)\n",
             ""),
    Mutation("S-10-02", CORE + "channel/log.py",
             "            if want and not is_waiting:\n", "            if want and is_waiting:\n"),
    Mutation("S-10-03", "host/drupelet_host/channel/store_node.py",
             "WHERE channel = ? AND hint = ?", "WHERE channel = ? AND hint >= ?"),
    Mutation("S-10-04", CORE + "channel/log.py",
             "                if self.check(row, now_ms, False) == 0:",
             "                if self.check(row, now_ms, False) >= 0:"),
    Mutation("S-10-05", CORE + "channel/log.py",
             "late = is_due(now_ms, later_ms(since_ms, lost_ms))", "late = True"),
    Mutation("S-10-05", CORE + "channel/channel.py",
             "self._release(row, now_ms, EVENT_GAP)", "self._release(row, now_ms, EVENT_MESSAGE)"),
    Mutation("S-11-01", CORE + "channel/outbox.py",
             "rows.set_time(row, later_ms(now_ms, self._wait_ms(state)))",
             "rows.set_time(row, later_ms(now_ms, 2 * self._wait_ms(state)))"),
    Mutation("S-11-01", CORE + "channel/outbox.py",
             "_RESENDS_AT] >= CHANNEL_RESENDS_MAX:", "_RESENDS_AT] > CHANNEL_RESENDS_MAX:"),
    Mutation("S-11-01", CORE + "channel/outbox.py",
             "            if heard_ms >= 0 and elapsed_ms(now_ms, heard_ms) <= passed_ms:\n",
             "            if True:\n"),
    Mutation("S-11-02", CORE + "channel/outbox.py",
             "(settings.possibly_periods if state == POSSIBLY else 1)", "1"),
    Mutation("S-11-02", CORE + "channel/settings.py",
             "    possibly_periods = 4", "    possibly_periods = 3"),
    Mutation("S-12-01", CORE + "channel/channel.py",
             "wait_ms += (wait_ms >> 8) * self._random_byte()",
             "wait_ms += (wait_ms >> 7) * self._random_byte()"),
    Mutation("S-12-01", CORE + "channel/channel.py",
             "wait_ms += (wait_ms >> 8) * self._random_byte()",
             "wait_ms += (wait_ms >> 9) * self._random_byte()"),
    Mutation("S-12-02", CORE + "channel/frame_writer.py",
             "        self._put_filter_and_requests(request, now_ms)\n"
             "        return out.at\n",
             "        self._put_filter_and_requests(request, now_ms)\n"
             "        out.put_bytes(CONTENT, _SYNC_ID, 0, 1)\n"
             "        return out.at\n"),
    Mutation("S-12-03", CORE + "channel/channel.py",
             "            self.clock.tick(now_ms)\n"
             "            size = self.writer.sync_into",
             "            size = self.writer.sync_into"),
    Mutation("S-12-04", CORE + "channel/frame_writer.py",
             "        self._put_history(_REQUEST_SIZE if request >= 0 else 0, False)\n", ""),
    Mutation("S-12-04", CORE + "channel/frame_writer.py",
             "        self._put_filter_and_requests(request, now_ms)\n"
             "        return out.at\n",
             "        if request >= 0:\n"
             "            self._put_filter_and_requests(request, now_ms)\n"
             "        return out.at\n"),
    Mutation("S-12-05", CORE + "channel/channel.py",
             "            log.count_missing(now_ms, True)\n",
             "            log.count_missing(now_ms, True)\n"
             "            log.add_to_bloom(self.key)\n"),
    Mutation("S-12-09", CORE + "channel/frame_writer.py",
             '_SYNC_ID = b"sync"', '_SYNC_ID = b"synk"'),
    Mutation("S-12-10", CORE + "channel/channel.py",
             "        elif has_request or not self._heard or self.log.again:",
             "        elif not self._heard or self.log.rows.count:"),
    Mutation("S-12-10", CORE + "channel/channel.py",
             "wait_ms += (wait_ms >> 8) * self._random_byte()", "wait_ms += (wait_ms >> 8) * 128"),
    Mutation("S-12-11", CORE + "channel/channel.py",
             "            log.count_missing(now_ms, True)\n",
             "            log.count_missing(now_ms, False)\n"),
    Mutation("S-13-01", CORE + "channel/frame_writer.py",
             "self._put_head(self.text, OWN_ID_SIZE, None)",
             "self._put_head(self.text, OWN_ID_SIZE, bytearray(8))"),
    Mutation("S-13-02", CORE + "channel/frame_writer.py",
             "        code = self._put_head(self.text, OWN_ID_SIZE, None)\n",
             "        code = self._put_head(self.text, OWN_ID_SIZE, None)\n"
             "        code |= self._put_history(size, True)\n"),
    Mutation("S-13-03", CORE + "channel/channel.py",
             "        return self.writer.ephemeral_into(frame, content, at, size)\n",
             "        self.outbox.rows.add(self.key, 0, 0)\n"
             "        return self.writer.ephemeral_into(frame, content, at, size)\n"),
    Mutation("S-13-04", CORE + "channel/channel.py",
             "        if not message.has_lamport:\n",
             "        if not message.has_lamport and not message.content_size:\n"),
    Mutation("S-14-01", CORE + "channel/repair.py",
             "if longest < late < CLOCK_BACK_MS and", "if best < 0 and late < CLOCK_BACK_MS and"),
    Mutation("S-15-01", CORE + "channel/repair.py",
             "        groups = settings.response_groups\n", "        groups = 1\n"),
    Mutation("S-15-02", CORE + "channel/settings.py",
             "    t_min_ms = 30_000", "    t_min_ms = 20_000"),
    Mutation("S-15-03", CORE + "channel/settings.py",
             "    t_max_ms = 300_000", "    t_max_ms = 310_000"),
    Mutation("S-15-04", CORE + "channel/settings.py",
             "return participants // 128 + 1", "return (participants + 127) // 128"),
    Mutation("S-15-05", CORE + "channel/repair.py",
             "        groups = settings.response_groups\n", "        groups = 1\n"),
    Mutation("S-16-01", CORE + "channel/frame_writer.py",
             "        self._put_filter_and_requests(self.next_request(now_ms), now_ms)\n", ""),
    Mutation("S-16-02", CORE + "channel/repair.py",
             "if longest < late < CLOCK_BACK_MS and", "if best < 0 and late < CLOCK_BACK_MS and"),
    Mutation("S-16-03", CORE + "channel/frame_writer.py",
             "left = CHANNEL_REQUESTS_SENT\n", "left = CHANNEL_REQUESTS_SENT + 1\n"),
    Mutation("S-16-04", CORE + "channel/repair.py",
             "if longest < late < CLOCK_BACK_MS and", "if longest < late and"),
    Mutation("S-17-01", CORE + "channel/repair.py",
             "        if row >= 0:\n"
             "            self.wanted.remove(row)\n"
             "        row = self.responses",
             "        row = self.responses"),
    Mutation("S-17-02", CORE + "channel/repair.py",
             "state(row) == PLANNED:\n"
             "            self.responses.remove(row)\n"
             "\n"
             "    def on_requested",
             "state(row) == PLANNED:\n"
             "            pass\n"
             "\n"
             "    def on_requested"),
    Mutation("S-17-03", CORE + "channel/repair.py",
             "            row = wanted.add(key, 0, later_ms(now_ms, wait_ms))\n",
             "            row = wanted.add(key, 0, later_ms(now_ms, settings.t_min_ms))\n"),
    Mutation("S-17-03", CORE + "channel/repair.py",
             "            if best < 0 or (order > 0 if is_refused else order < 0):\n",
             "            if best < 0 or order > 0:\n"),
    Mutation("S-17-04", CORE + "base/hashes_sds.py",
             "return _rest(self._digest, t_max - t_min) + t_min",
             "return _rest(self._digest, t_max) + t_min"),
    Mutation("S-17-05", CORE + "channel/repair.py",
             "        else:\n"
             "            self.wanted.remove(row)\n"
             "\n"
             "    def next_request",
             "\n"
             "    def next_request"),
    Mutation("S-17-06", CORE + "channel/channel.py",
             "        self._repairs_left -= 1\n", ""),
    Mutation("S-17-06", CORE + "channel/repair.py",
             "        responses.set_time(row, later_ms(now_ms, self._settings.t_max_ms))\n",
             "        responses.set_time(row, now_ms)\n"),
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
    Mutation("S-18-01", CORE + "channel/channel.py",
             "        if not size and self._repairs_left:\n",
             "        if not size and self._repairs_left and is_due(now_ms, self._sync_ms):\n"),
    Mutation("S-18-02", CORE + "channel/repair.py",
             "        responses.add(key, handle, later_ms(now_ms, wait_ms))",
             "        responses.add(key, handle, now_ms)"),
    Mutation("S-18-02", CORE + "channel/channel.py",
             "        copy(frame, 0, self.keeper.work, 0, size)\n"
             "        self.repaired += size > 0\n"
             "        return size\n",
             "        self.repaired += size > 0\n"
             "        return self.repeat_into(frame, handle, now_ms)\n"),
    Mutation("S-19-01", CORE + "channel/channel.py",
             "        elif has_request or not self._heard or self.log.again:",
             "        elif not self._heard or self.log.again:"),
]  # fmt: skip
