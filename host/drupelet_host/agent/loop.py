"""`drupelet agent`: a member that stays up, serving its carriers until it is told to stop.

One turn: what came in, what entered the log, what commands ask, what is due out. Then one commit,
and sleep until a carrier or a command has bytes, or the node has something due. An idle agent
wakes once a second and leaves its status file alone. Nothing that a carrier does ends the agent; a
store that fails does.
"""

import logging
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from drupelet.base.errors import DrupeletError, StorageError
from drupelet.base.time_ms import elapsed_ms
from drupelet_host.agent import stick_visit
from drupelet_host.agent.brokers import Brokers
from drupelet_host.agent.carrier_lines import CARRIERS, Line
from drupelet_host.agent.channels import Channels
from drupelet_host.agent.handler import Handler
from drupelet_host.agent.learned_peers import Learner
from drupelet_host.agent.random_sharing import RandomSharing
from drupelet_host.agent.request_server import RequestServer
from drupelet_host.agent.supervisor import Supervisor
from drupelet_host.agent.topics import Topics
from drupelet_host.agent.waiter import Polled, Waiter
from drupelet_host.base import clock
from drupelet_host.base.output import Output, counted, message_start, payload_text
from drupelet_host.feeds.agent_feed import AgentFeed
from drupelet_host.feeds.home_log import HomeLog
from drupelet_host.feeds.places import Places
from drupelet_host.home import config
from drupelet_host.home.config import Config, Peer
from drupelet_host.home.urls import STICK_BY_REQUEST
from drupelet_host.keys import rotate_revoke
from drupelet_host.keys.key_folder import LIVE
from drupelet_host.member import family, status
from drupelet_host.member.chats import chat_line
from drupelet_host.member.member import EVENTS_PER_TURN_MAX, Delivered, Member
from drupelet_host.member.report_shapes import MemberReport
from drupelet_host.member.status import REVOKED, UP
from drupelet_host.remote.content_store import FolderStore
from drupelet_host.requests.shapes import (
    AnyRequest,
    AskStatus,
    ChangeKeys,
    Pull,
    Push,
    Reload,
    SayOnChannel,
    SendEphemeral,
    TakePartInChat,
    TellBoard,
    VisitStick,
)
from drupelet_transports.common.transport import TransportError
from drupelet_transports.common.url import parse_url

# An agent with nothing to do wakes this often: to look for letters of who does not say so, and for
# sticks in folders that nothing is mounted on.
LOOK_MS = 1000
# The node's state is saved this often: that takes as long as a few messages, and what a crash
# forgets of it is told to the client and to the peers again. A turn comes within LOOK_MS.
SAVE_MS = 500
# While another agent's store is waited for, its answer is looked for this often.
MEANWHILE_MS = 20
# A broker on this machine answers within this or is not there.
CONTACT_MS_MAX = 4000
CONTACT_POLL_MS = 20
log = logging.getLogger("drupelet.agent")

# Requests about keys; the agent holds the chains, so it changes them.
KEY_ACTIONS = {"rotate": rotate_revoke.rotate, "revoke": rotate_revoke.revoke}


class Agent:
    """One running member. The caller holds the home's lock.

    patient: start even if a carrier is not there yet. restored: the store was put back to an
    older state, and nothing here may show it. handle_with: a command for each message that was
    received, which may take handle_time_s.
    """

    def __init__(
        self,
        config: Config,
        output: Output,
        patient: bool = False,
        restored: bool = False,
        handle_with: str = "",
        handle_time_s: float = 0.0,
    ) -> None:
        self.config = config
        self.output = output
        # A wrong URL is the user's mistake: found before the store is touched.
        live = [peer for peer in config.peers if self._is_live(peer)]
        self.member = Member(config, restored)
        self.member.gives_out = True
        now_ms = clock.now_ms()
        self.brokers = Brokers(config.brokers)
        self.lines = [self._line(peer, now_ms) for peer in live]
        self.topics = Topics(self.member, self.brokers, self._report_carrier)
        self.channels = Channels(
            self.member, self.brokers, self._report_carrier, self.report_channel
        )
        for shared in self.channels.lines:
            self.topics.add(shared)
        for line in self.lines:
            self.topics.attend(line)
        self.member.sealing.on_revoked = self._distrust
        self.feed: AgentFeed | None = None
        if config.feed is not None:
            history = self.channels.history
            places = Places(self.member, self.brokers, self._meanwhile, history)
            self.feed = AgentFeed(
                self.member, config.feed, places, self._take, self._report_feed, now_ms
            )
        self.handler = (
            Handler(self.member, handle_with, handle_time_s, self._handler_failed)
            if handle_with
            else None
        )
        self.sharing = (
            RandomSharing(config.share_with, config.share_period_ms) if config.share_with else None
        )
        self._asks = False  # waits for another agent's store
        self.learner = Learner(self.member, self.reload, self._learned)
        self.stopping = False
        self._patient = patient
        self._waiter = Waiter()
        self._epoch_ms = min([config.epoch_ms, *(peer.epoch_ms for peer in config.peers)])
        self._epoch_from_ms = now_ms
        self._looked_ms = self._saved_ms = now_ms
        self._is_poked = False  # somebody came to our socket: there may be letters
        self._server: RequestServer | None = None
        self._written_mark: dict[str, int] = {}
        self._supervisor = Supervisor(os.environ, now_ms)
        self._mailbox_version = -1
        self._letters_wait = True
        self._letters_ms = now_ms  # when the last batch of letters was published
        self._letters_took_ms = 0
        self._sticks_seen: dict[Path, tuple[int, ...]] = {}
        last_peers = status.last_status(config.status_path).peers
        self._stick_heard_ms = {row.id: row.heard_ms for row in last_peers}
        self._delivered = 0
        self._owed_since_ms: dict[bytes, int] = {}  # wall clock; peers that lack something

    @staticmethod
    def _is_live(peer: Peer) -> bool:
        if peer.url == STICK_BY_REQUEST:
            return False
        url = parse_url(peer.url)
        if url.scheme == "stick":
            return False
        if url.scheme not in CARRIERS:
            raise TransportError(
                f"peer {peer.name}: {peer.url}: the agent knows serial, mqtt and stick carriers"
            )
        return True

    def _line(self, peer: Peer, now_ms: int) -> Line:
        live = self.member.live_link(peer, CARRIERS[peer.carrier], now_ms)
        return Line(
            peer, live, self.brokers, self._report_carrier, self.member.drain_box,
            self.member.sealing.live, self._save_now,
        )  # fmt: skip

    def _save_now(self) -> None:
        self.member.save(clock.now_ms())

    # --- life ---

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT; raises StorageError when the store fails."""
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        for number in before:
            signal.signal(number, self._stop)
        self._waiter.watch_signals()
        try:
            self.serve()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def serve(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """As `run`, in any thread and until `stopping` is set; no signal is touched.

        on_ready: called once, when the carriers were up or are waited for.
        """
        try:
            self._waiter.open()
            self._server = RequestServer(self.config.home)
            self.output.event(
                "started",
                f"{self.config.name} ({self.config.id.hex()}) in group {self.config.group},"
                f" {counted(len(self.config.peers), 'peer')}",
                name=self.config.name, id=self.config.id.hex(), boot=self.member.boot,
                pid=os.getpid(),
            )  # fmt: skip
            if self.member.restored:
                self.output.event("restored", "the store was put back: the peers are told")
            if not self._patient:
                self._first_contact()
            self._write_status()
            self._supervisor.ready(f"serving {counted(len(self.config.peers), 'peer')}")
            on_ready()
            while not self.stopping:
                wait_ms = self.turn()
                # Who stopped us in this turn may have been the one who came to our socket.
                self._wait(0 if self.stopping else wait_ms)
            self._finish()
        finally:
            if self._server is not None:
                self._server.close()
            for line in self.carriers:
                line.drop()
            self.brokers.close()
            self.channels.close()
            if self.feed is not None:
                self.feed.places.close()
            self.member.store.close()
            self.member.sealing.close()
            self._waiter.close()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stopping = True

    @property
    def carriers(self) -> list[Line]:
        """All lines; what many hear comes first, so that it is not sent to each of them."""
        return [*self.topics.lines, *self.lines]

    def _wait(self, wait_ms: int) -> None:
        """Sleep until something has bytes for us."""
        sources: list[Polled] = [*self.carriers]
        sources += [self.feed.places] if self.feed is not None else []
        sources += [self.handler] if self.handler is not None else []
        commands = self._server.descriptors() if self._server is not None else {}
        self._waiter.wait(sources, wait_ms, commands)

    def _meanwhile(self) -> None:
        """Another agent's store is waited for: a turn without the remote log."""
        if self.stopping:
            raise StorageError("the agent stops; the rest goes with its next start")
        self._asks = True
        try:
            self._wait(min(self.turn(), MEANWHILE_MS))
        finally:
            self._asks = False

    def _first_contact(self) -> None:
        """Have every carrier up once; TransportError for one that is not there.

        Later losses are waited out: a name that never was right would be waited for in vain.
        """
        started_ms = clock.now_ms()
        while not self.stopping:
            now_ms = clock.now_ms()
            self.brokers.maintain(now_ms)
            for line in self.carriers:
                line.maintain(now_ms)
            down = [line for line in self.carriers if line.state not in (UP, REVOKED)]
            if not down:
                return
            for line in down:
                absent = line.url.scheme == "serial" or line.refused
                late = elapsed_ms(now_ms, started_ms) > CONTACT_MS_MAX
                # A broker that took the call is there, and slow: the client sets it a bound.
                if absent or (late and not self.brokers.connecting):
                    raise TransportError(f"{line.reason} (--wait starts without it)")
            self._waiter.wait(self.carriers, CONTACT_POLL_MS)

    def _finish(self) -> None:
        self._supervisor.stopping()
        if self.handler is not None:
            self.handler.close()
        self.member.close(clock.now_ms())
        for line in self.carriers:
            line.state = "stopped"
        self._write_status()
        self.output.event("stopped", "everything is saved")

    def turn(self) -> int:
        """One round of work; returns how many ms to sleep unless a carrier has bytes."""
        now_ms = clock.now_ms()
        self.brokers.maintain(now_ms)
        more = False
        for line in self.carriers:
            line.maintain(now_ms)
            more |= line.take_in(now_ms)
        self.topics.turn(now_ms)
        if self.sharing is not None:
            self.sharing.turn(self.lines, now_ms)
        self.member.vanishing.turn(self.member.store)
        more |= self._events()
        if self.feed is not None:
            more |= self.feed.places.serve()
            if not self._asks:
                self.feed.turn(now_ms)
                self.channels.recall(self.feed.histories, now_ms)
            self._events()
        if self.handler is not None:
            self.handler.turn(now_ms)
        if self._server is not None:
            self._is_poked |= self._server.take_in(now_ms)
        is_epoch = elapsed_ms(now_ms, self._epoch_from_ms) >= self._epoch_ms
        self._look(now_ms, is_epoch)
        self._answer_requests()
        if is_epoch:
            self._epoch_from_ms = now_ms
            self._look_for_clones()
            self._look_for_damage()
            self._instruct()
            self.learner.turn()
            self.member.epoch(now_ms)
            self._note_owed()
            self.channels.epoch(now_ms)
            self._events()
            if self.member.mark != self._written_mark:
                self._write_status()
        for line in self.carriers:
            more |= line.hand_out(now_ms)
        self._save(now_ms)
        return 0 if more else self._wait_ms(clock.now_ms(), now_ms)

    def _save(self, now_ms: int) -> None:
        """Make the turn's messages durable, and the node's own state now and then."""
        if elapsed_ms(now_ms, self._saved_ms) < SAVE_MS:
            self.member.commit()
            return
        self._saved_ms = now_ms
        self.member.save(now_ms)

    def _wait_ms(self, now_ms: int, turned_ms: int) -> int:
        """How long to sleep; turned_ms: when the turn began."""
        waits = [
            LOOK_MS - elapsed_ms(now_ms, self._looked_ms),
            self._epoch_ms - elapsed_ms(now_ms, self._epoch_from_ms),
            self._supervisor.wait_ms(now_ms),
        ]
        if self._letters_wait:
            waits.append(self._letters_rest(now_ms))
        waits.append(self.brokers.wait_ms(now_ms))
        if self.handler is not None:
            waits.append(self.handler.wait_ms(now_ms))
        waits += [line.wait_ms(now_ms, turned_ms) for line in self.carriers]
        return max(0, min(waits))

    # --- events ---

    def _events(self) -> bool:
        """Tell what entered the log; True when more may wait.

        It is committed before it is told, and taken after. Long work comes by here, too.
        """
        self._supervisor.alive(clock.now_ms())
        events = self.member.events()
        if events:
            with self.output.together():
                for event in events:
                    self._take(event)
        return len(events) == EVENTS_PER_TURN_MAX

    def _take(self, event: Delivered) -> None:
        if event.group == self.member.readings:
            self._delivered += 1
            self._report_delivered(event)
        fields = self.member.take_delivered(event)
        if fields is not None:
            self.output.event("chat", chat_line(fields), **fields)

    def _report_delivered(self, event: Delivered) -> None:
        via = self.member.names.get(event.source, "?")
        dependencies, payload = family.split(self.config, event.body)
        timestamp = family.timestamp_of(self.config, event.timestamp)
        text = payload_text(payload)
        lifetime = family.lifetime_in(self.config, event.body)
        end_ms = lifetime.end_ms(int.from_bytes(timestamp))
        more: dict[str, int] = {}
        if lifetime.is_ephemeral:
            more["ephemeral"] = True
        elif end_ms:
            more["explodes_ms"] = end_ms
        self.output.event(
            "delivered",
            f"{event.id.hex()[:8]} {via}: {message_start(text)}",
            handle=event.handle, id=event.id.hex(), via=via, again=event.again,
            timestamp_ms=int.from_bytes(timestamp), text=text,
            dependencies=[id.hex() for id in dependencies], **more,
        )  # fmt: skip

    def _report_carrier(self, line: Line) -> None:
        self.output.event(
            "carrier",
            f"{line.peer.name} {line.state}" + (f": {line.reason}" if line.reason else ""),
            peer=line.peer.name, url=line.peer.url, state=line.state, reason=line.reason,
        )  # fmt: skip

    def report_channel(self, fields: dict[str, Any]) -> None:
        """Tell the output of a text on a channel; `channel`, `from` and `text` are its fields."""
        whom = self.config.names().get(fields.get("from", ""), fields.get("from", "somebody"))
        text = message_start(fields["text"])
        self.output.event("channel", f"{fields['channel']} {whom}: {text}", **fields)

    def _learned(self, name: str, url: str, why: str) -> None:
        self.output.event(
            "learn", f"{name} {why or 'is reached over ' + url}", peer=name, url=url, refused=why
        )

    def _handler_failed(self, id: str, handle: int, text: str) -> None:
        self.output.event("exec", text, id=id, handle=handle, reason=text)

    def _report_feed(self, place: str, reason: str) -> None:
        text = reason if reason.startswith(place) else f"{place}: {reason or 'is there'}"
        self.output.event("feed", text, place=place, reason=reason)

    # --- letters, requests and sticks ---

    def _look(self, now_ms: int, is_epoch: bool) -> None:
        """Look for letters and sticks, when it is time or somebody says that there may be some."""
        is_due = is_epoch or elapsed_ms(now_ms, self._looked_ms) >= LOOK_MS
        if is_due or self._is_poked or self._waiter.mounts_changed:
            self._looked_ms = now_ms if is_due else self._looked_ms
            self._is_poked = self._waiter.mounts_changed = False
            self.watch_sticks()
            version = self.member.data_version()
            # What had no room is tried again in each epoch.
            self._letters_wait |= is_epoch or version != self._mailbox_version
            self._mailbox_version = version
        if self._letters_wait and not self._letters_rest(now_ms):
            started_ms = clock.now_ms()
            self._letters_wait = self.member.publish_letters(now_ms) > 0
            self._letters_ms = clock.now_ms()
            self._letters_took_ms = elapsed_ms(self._letters_ms, started_ms)
            self._events()

    def _letters_rest(self, now_ms: int) -> int:
        """How many ms the store stays free for who posts more: as long as the last batch took."""
        return max(0, self._letters_took_ms - elapsed_ms(now_ms, self._letters_ms))

    def _answer_requests(self) -> None:
        if self._server is None:
            return
        for client, request in self._server.requests(clock.now_ms()):
            started_ms = clock.now_ms()
            result = self._do(request)
            # What was done is durable before anybody hears of it.
            self.member.commit()
            ended_ms = clock.now_ms()
            log.info(
                "%s: %s after %d ms", type(request).__name__, result.get("error", "done"),
                elapsed_ms(ended_ms, started_ms),
            )  # fmt: skip
            self._server.answer(client, result, ended_ms)

    def _do(self, request: AnyRequest) -> dict[str, Any]:
        """What came of a request, or `error` with one line."""
        match request:
            case AskStatus():
                self.member.count_owed()
                answer: dict[str, Any] = msgspec.to_builtins(self.status())
                return answer
            case VisitStick(path=path):
                return self.visit(Path(path))
            case Reload():
                return self.reload()
            case ChangeKeys(action=action, name=name):
                return self.change_keys(action, name)
            case TellBoard():
                return self.command(request)
            case SendEphemeral(content=content):
                return self.send_ephemeral(content)
            case SayOnChannel():
                return self.say(request)
            case TakePartInChat(action=action, chat=chat, argument=argument):
                return self.chat(action, chat, argument)
            case Push(folder=folder):
                return self.remote_log("push", folder)
            case Pull(folder=folder):
                return self.remote_log("pull", folder)

    def change_keys(self, kind: str, name: str) -> dict[str, Any]:
        """Rotate or revoke a peer's keys; what was done, or `error` with one line."""
        if kind not in KEY_ACTIONS:
            return {"error": f"this agent does not know the request {kind!r}"}
        try:
            done = KEY_ACTIONS[kind](self.config, self.member.sealing, name)
        except DrupeletError as error:
            return {"error": str(error)}
        self._instruct()
        self.output.event("keys", f"{kind} {name}", action=kind, **done)
        return done

    def command(self, asked: TellBoard) -> dict[str, Any]:
        """Tell a board to do something; what was sent, or `error` with one line."""
        try:
            done = self.member.clients.command(
                asked.board, asked.operation, asked.value, clock.now_ms()
            )
        except DrupeletError as error:
            return {"error": str(error)}
        self.output.event("command", f"{done['operation']} to {done['board']}", **done)
        return done

    def say(self, asked: SayOnChannel) -> dict[str, Any]:
        """Send a message on a channel; its id, or `error` with one line."""
        try:
            return self.channels.publish(
                asked.channel, asked.content, clock.now_ms(), asked.ephemeral
            )
        except DrupeletError as error:
            return {"error": str(error)}

    def send_ephemeral(self, content: bytes) -> dict[str, Any]:
        """Send a message to those who are there now; its id, or `error` with one line."""
        try:
            id = self.member.publish_ephemeral(content, clock.now_ms())
        except DrupeletError as error:
            return {"error": str(error)}
        self._events()
        return {"id": id.hex(), "size": len(content)}

    def chat(self, action: str, chat: str, argument: str) -> dict[str, Any]:
        """Do something in a chat; what came of it, or `error` with one line."""
        try:
            return self.member.chats.do(action, chat, argument)
        except DrupeletError as error:
            return {"error": str(error)}

    def remote_log(self, kind: str, folder: str) -> dict[str, Any]:
        """Push to or pull from a remote log in a folder; how much, or `error` with one line."""
        if self._asks:
            return {"error": "the remote log is at work; try again in a minute"}
        try:
            log = HomeLog(self.member, self.member.clients, FolderStore(Path(folder)), self._take)
            done = (log.push if kind == "push" else log.pull)(f"folder:{folder}")
        except DrupeletError as error:
            return {"error": str(error)}
        self.output.event(kind, f"{kind} {folder}", **done)
        return done

    def _instruct(self) -> None:
        """Give the lines what their peers are to be told, and forget what they know."""
        self.member.sealing.tick()
        for line in self.lines:
            line.instruct(self.member.sealing.issuer(line.peer.id, LIVE))

    def _look_for_clones(self) -> None:
        """Tell of devices that use the keys of another, now and in `drupelet doctor` later."""
        for peer_id, count in self.member.clones().items():
            name = self.config.names().get(peer_id.hex(), peer_id.hex())
            self.output.event(
                "alarm",
                f"{name}: two devices use its keys, or an older copy of it was put back;"
                f" `drupelet revoke {name}` if it was cloned",
                peer=name, id=peer_id.hex(), clones=count,
            )  # fmt: skip

    def _look_for_damage(self) -> None:
        """Tell of messages that the disk spoiled; `drupelet doctor` names them, too."""
        for handle in self.member.damaged():
            self.output.event(
                "alarm",
                f"message {handle} of {self.config.store_path.name} is damaged and is not sent;"
                " `drupelet doctor` says what to do",
                handle=handle,
            )  # fmt: skip

    def visit(self, path: Path) -> dict[str, Any]:
        """Visit a stick; the report's fields, or `error` with one line."""
        while self.member.publish_letters(clock.now_ms()):
            self._events()
        try:
            report = stick_visit.visit(self.member, path, self.stick_peers(), self._events)
        except stick_visit.StickError as error:
            self.output.event("stick", str(error), path=str(path), error=str(error))
            return {"error": str(error)}
        heard = [peer.id.hex() for peer in self.config.peers if peer.name in report.heard]
        self._stick_heard_ms |= dict.fromkeys(heard, clock.wall_ms())
        self._events()
        self.member.save(clock.now_ms())
        self.output.event("stick", report.text, **report.fields)
        return report.fields

    def stick_peers(self) -> set[bytes]:
        """Peers that are reached by stick: something is always left for them."""
        return {peer.id for peer in self.config.peers if peer.carrier == "stick"}

    def watch_sticks(self) -> None:
        """Visit a stick that has just been mounted where a peer's URL says."""
        for peer in self.config.peers:
            if peer.carrier != "stick" or peer.url == STICK_BY_REQUEST:
                continue
            path = Path(parse_url(peer.url).path)
            if _mounted(path) != self._sticks_seen.get(path, ()):
                if os.path.isdir(path):  # False, too, for a medium that is ill
                    self.visit(path)
                self._sticks_seen[path] = _mounted(path)

    # --- peers ---

    def reload(self) -> dict[str, Any]:
        """Take up the peers that `drupelet.toml` has now; what changed, or `error` with a line."""
        try:
            settings = config.load(self.config.home)
            live = {peer.id for peer in settings.peers if self._is_live(peer)}
            self._check_reload(settings)
            now_ms = clock.now_ms()
            changed = self._remove_peers({peer.id for peer in settings.peers})
            for peer in settings.peers:
                if peer.id not in self.member.numbers:
                    self.member.add_peer(peer)
                    self.config = replace(self.config, peers=(*self.config.peers, peer))
                    changed["added"].append(peer.name)
                    if peer.id in live:
                        self.lines.append(self._line(peer, now_ms))
                        self.topics.attend(self.lines[-1])
        except DrupeletError as error:
            return {"error": str(error)}
        self.config = self.member.config = self.member.clients.settings = settings
        self.member.chats.settings = settings
        self.member.names |= {self.member.numbers[peer.id]: peer.name for peer in settings.peers}
        for line in self.lines:
            line.peer = next(peer for peer in settings.peers if peer.id == line.peer.id)
            if line.live.mode != line.peer.mode:
                line.live.set_mode(line.peer.mode)
                changed["mode"].append(line.peer.name)
        self._epoch_ms = min([settings.epoch_ms, *(peer.epoch_ms for peer in settings.peers)])
        self.member.save(clock.now_ms())
        self.output.event("peers", counted(len(settings.peers), "peer"), **changed)
        return changed

    def _check_reload(self, settings: Config) -> None:
        """Raise ConfigError for what only a new start can change."""
        before = {peer.id: peer for peer in self.config.peers}
        same = replace(settings, peers=self.config.peers)
        for peer in settings.peers:
            old = before.get(peer.id, peer)
            if peer != replace(old, name=peer.name, mode=peer.mode, board=peer.board):
                same = settings
        if same != self.config:
            raise config.ConfigError(
                f"{settings.home / config.CONFIG_NAME}: more than peers and modes changed;"
                " restart the agent"
            )

    def _distrust(self, peer_id: bytes) -> None:
        """A peer was revoked or removed: what we publish from now on it cannot read."""
        self.topics.revoked(peer_id)
        self.member.clients.distrust(peer_id)
        if self.feed is not None:
            self.feed.distrust()

    def _remove_peers(self, kept: set[bytes]) -> dict[str, list[str]]:
        changed: dict[str, list[str]] = {"added": [], "removed": [], "mode": []}
        for peer in self.config.peers:
            if peer.id in kept:
                continue
            for line in self.lines:
                if line.peer.id == peer.id:
                    line.drop()
            self.lines = [line for line in self.lines if line.peer.id != peer.id]
            self._distrust(peer.id)
            self.member.remove_peer(peer.id)
            changed["removed"].append(peer.name)
        left = tuple(peer for peer in self.config.peers if peer.id in kept)
        self.config = self.member.config = replace(self.config, peers=left)
        self.member.clients.settings = self.member.chats.settings = self.config
        return changed

    # --- status ---

    def _note_owed(self) -> None:
        """Since when each peer has not been known to hold everything."""
        wall_ms = clock.wall_ms()
        for peer_id, number in self.member.numbers.items():
            if not self.member.node.outstanding(number):
                self._owed_since_ms.pop(peer_id, None)
            else:
                self._owed_since_ms.setdefault(peer_id, wall_ms)

    def _write_status(self) -> None:
        """Leave word for when no agent runs; a disk that is full is the store's to report."""
        self._written_mark = self.member.mark
        trouble = status.leave(self.config.status_path, self.status())
        if trouble:
            self.output.event("status", trouble)

    def status(self) -> MemberReport:
        """What only the running agent knows."""
        lines = {line.peer.id: line for line in self.lines}
        peers = []
        for peer in self.config.peers:
            line = lines.get(peer.id)
            heard_ms = line.heard_ms if line else self._stick_heard_ms.get(peer.id.hex(), 0)
            row = status.of_peer(
                self.member,
                peer.id,
                state=line.state if line else "by stick",
                reason=line.reason if line else "",
                heard_ms=heard_ms,
                owed_since_ms=self._owed_since_ms.get(peer.id, 0),
                **(line.live.status() if line else status.STICK_STATUS),
            )
            peers.append(row)
        return status.of_member(
            self.member,
            peers,
            topics=[
                line.status() for line in self.topics.lines if line not in self.channels.lines
            ],
            channels=[line.status() for line in self.channels.lines],
            not_learned=self.learner.status(),
            shares_with=self.sharing.names if self.sharing is not None else None,
            feed=self.feed.status() if self.feed is not None else None,
        )


def _mounted(path: Path) -> tuple[int, ...]:
    """Tells one mounting of a stick from another; () when there is nothing."""
    try:
        folder_stat = path.stat()
    except OSError:
        return ()
    return (folder_stat.st_dev, folder_stat.st_ino, folder_stat.st_ctime_ns)


def visit_alone(config: Config, path: Path) -> dict[str, Any]:
    """Visit a stick without an agent; the caller holds the home's lock. Returns the report.

    Raises StickError or StorageError.
    """
    member = Member(config)
    try:

        def take_events() -> None:
            for event in member.events():
                member.take_delivered(event)

        while member.publish_letters(clock.now_ms()):
            take_events()
        peers = {peer.id for peer in config.peers if peer.carrier == "stick"}
        report = stick_visit.visit(member, path, peers, take_events)
        take_events()
        home_status = status.after_visit(member, config, report.heard)
        member.close(clock.now_ms())
    finally:
        member.store.close()
        member.sealing.close()
    home_status.store = member.mark
    trouble = status.leave(config.status_path, home_status)
    return report.fields | {"problems": report.problems + [trouble] * bool(trouble)}
