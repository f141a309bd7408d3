// Both UARTs of the emulated chip on sockets. rp2040js 1.4.1 raises the transmit interrupt for ever
// and has no receive timeout: transmit is raised when a byte went, receive while there are bytes.
const DATA = 0;
const TX_DONE = 0x20;
const RX_ANY = 0x50; // receive and receive timeout
const BITS_PER_BYTE = 10;
const BAUD = 115200; // until the chip has said

export class Uarts {
  constructor() {
    this.sockets = [null, null];
    this.queues = [[], []]; // to the chip
    this.sent = [[], []]; // by the chip
    this.uarts = [];
    this.fedNs = [0, 0];
  }

  connect(index, socket) {
    this.sockets[index] = socket;
    socket.on('data', (bytes) => {
      if (this.uarts.length) for (const byte of bytes) this.queues[index].push(byte);
    });
    socket.on('close', () => { if (this.sockets[index] === socket) this.sockets[index] = null; });
  }

  attach(mcu, clock) {
    this.uarts = mcu.uart;
    this.clock = clock;
    this.fedNs = [0, 0];
    mcu.uart.forEach((uart, index) => {
      const write = uart.writeUint32.bind(uart), read = uart.readUint32.bind(uart);
      uart.checkInterrupts = () => {
        mcu.setInterrupt(uart.irq, !!(uart.interruptStatus & uart.interruptMask));
      };
      uart.writeUint32 = (offset, value) => {
        write(offset, value);
        if (offset === DATA) { uart.interruptStatus |= TX_DONE; uart.checkInterrupts(); }
      };
      uart.readUint32 = (offset) => {
        const value = read(offset);
        if (offset === DATA && uart.rxFIFO.empty) {
          uart.interruptStatus &= ~RX_ANY;
          uart.checkInterrupts();
        }
        return value;
      };
      uart.onByte = (byte) => { this.sent[index].push(byte); };
    });
  }

  detach() {
    this.uarts = [];
    for (const queue of [...this.queues, ...this.sent]) queue.length = 0;
  }

  // Hand over what was sent, and what has arrived by now at the line's speed in simulated time.
  feed() {
    for (let index = 0; index < this.uarts.length; index++) {
      const uart = this.uarts[index], queue = this.queues[index], sent = this.sent[index];
      if (sent.length && this.sockets[index]) this.sockets[index].write(Buffer.from(sent));
      sent.length = 0;
      const byteNs = (BITS_PER_BYTE * 1e9) / (uart.baudDivider ? uart.baudRate : BAUD);
      if (!queue.length) this.fedNs[index] = this.clock.nanos;
      while (queue.length && this.fedNs[index] + byteNs <= this.clock.nanos) {
        this.fedNs[index] += byteNs;
        if (uart.rxFIFO.full) break;
        uart.rxFIFO.push(queue.shift());
        uart.interruptStatus |= RX_ANY;
        uart.checkInterrupts();
      }
    }
  }
}
