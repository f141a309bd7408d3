"""UDP multicast (IPv4) on boards and hosts: one datagram reaches all listeners of a group.

    udp://239.0.0.1:7447                         (?interface=192.168.1.5: the address to use)

There is a connected socket for sending and a bound one for receiving, so that a board allocates no
addresses or slices per frame. Packets have a TTL of one hop, so routers do not forward them. Our
own packets come back to us, and reach other processes on the same machine.
"""

import socket

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.limits import FRAME_SIZE_MAX, WAIT_MS_MAX
from drupelet.base.time_ms import elapsed_ms
from drupelet_transports.common.loopback import address_v4
from drupelet_transports.common.sockets import read, write
from drupelet_transports.common.transport import E_CLOSED, Transport, TransportError

# Numbers of Linux's <netinet/in.h>, which lwIP also uses; not every port has names for them.
_IPPROTO_IP = const(0)
_IP_MULTICAST_IF = const(32)
_IP_MULTICAST_TTL = const(33)
_IP_MULTICAST_LOOP = const(34)
_IP_ADD_MEMBERSHIP = const(35)
# IP and UDP headers.
_OVERHEAD = const(28)
_RETRY_MS = const(5000)
# Empty datagrams that one call skips.
_EMPTY_MAX = const(8)


def membership(host: str, interface: str) -> bytes:
    """Return the argument of IP_ADD_MEMBERSHIP: the group's address and ours ("": any).

    Raises TransportError with one line for the user.
    """
    group = address_v4(host)
    own = address_v4(interface) if interface else bytes(4)
    if not group or not 224 <= group[0] <= 239:
        raise TransportError(host + ": not a multicast address; take one that begins with 239.")
    if not own:
        raise TransportError(interface + ": interface must be an IPv4 address of this device")
    return group + own


class Multicast(Transport):
    """The carrier of one group; see Transport. Long datagrams are truncated; seals reject them."""

    def __init__(self, host: str, port: int, interface: str = "") -> None:
        """Open the sockets; interface: an address of this device, "" for any.

        Raises TransportError with one line for the user.
        """
        Transport.__init__(self, FRAME_SIZE_MAX)
        self._membership = membership(host, interface)
        self._host = host
        self._port = port
        self.begin()

    def begin(self) -> None:
        """Open the sockets; raises TransportError."""
        try:
            self._out = self._in = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.poll_object = self._in
            self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            where = socket.getaddrinfo(self._host, self._port, 0, socket.SOCK_DGRAM)[0][-1]
            self._in.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._in.bind(where)
            self._in.setsockopt(_IPPROTO_IP, _IP_ADD_MEMBERSHIP, self._membership)
            self._in.setblocking(False)
            self._out.setsockopt(_IPPROTO_IP, _IP_MULTICAST_IF, self._membership[4:])
            self._out.setsockopt(_IPPROTO_IP, _IP_MULTICAST_TTL, 1)
            self._out.setsockopt(_IPPROTO_IP, _IP_MULTICAST_LOOP, 1)
            self._out.connect(where)
            self._out.setblocking(False)
        except OSError as error:
            self.close()
            raise TransportError(
                self._host + ": cannot be opened (" + str(error) + "); is the network up?"
            ) from None

    def send(self, frame: bytearray, size: int) -> int:
        """See Transport; E_CLOSED if the network is down."""
        assert 0 < size <= self.frame_size_max
        if self.poll_object is None:
            return E_CLOSED
        try:
            if not write(self._out, frame, 0, size):
                return E_CAPACITY
        except OSError:
            return E_CLOSED
        self.last_wire_size = size + _OVERHEAD
        return OK

    def receive_into(self, frame: bytearray) -> int:
        """See Transport."""
        if self.poll_object is None:
            return E_CLOSED
        for _ in range(_EMPTY_MAX):
            try:
                size = read(self._in, frame)
            except OSError:
                return E_CLOSED
            if size:
                self.last_wire_size = size + _OVERHEAD
                return size if size > 0 else 0
        return 0

    def close(self) -> None:
        """See Transport."""
        if self.poll_object is not None:
            self.poll_object = None
            self._in.close()
            self._out.close()


class BoardMulticast(Multicast):
    """A Multicast that opens when the network comes up, and again after it was down."""

    _tried_ms = 0

    def begin(self) -> None:
        """Try to open the sockets; without a network, `maintain` tries again."""
        self.maintain(_RETRY_MS)

    def maintain(self, now_ms: int) -> None:
        """Open the sockets again if they are closed; never waits."""
        if self.poll_object is None and not self.wait_ms(now_ms):
            self._tried_ms = now_ms
            try:  # noqa: SIM105 - a board has no contextlib
                Multicast.begin(self)
            except TransportError:
                pass  # there is no network; the addresses were checked before
        self.up = self.poll_object is not None

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until the next call of `maintain`, in ms."""
        if self.poll_object is not None:
            return WAIT_MS_MAX
        return max(0, _RETRY_MS - elapsed_ms(now_ms, self._tried_ms))

    def send(self, frame: bytearray, size: int) -> int:
        """See Transport; if the network is down, close the sockets to join again later."""
        code = Multicast.send(self, frame, size)
        if code == E_CLOSED:
            self.close()
            self.up = False
        return code
