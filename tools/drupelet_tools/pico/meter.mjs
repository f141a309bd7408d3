// What a program on the chip may ask of the emulator, and no chip has: three words behind its
// peripherals, which are read through machine.mem32.
//
//   METER + 0   instructions since power-on, modulo 2^30
//   METER + 4   most bytes of stack that were in use since the last time it was asked
//   METER + 8   most bytes of heap that were in use after any garbage collection since then
const METER = 0x400f0;
const COUNT_MASK = 0x3fffffff; // what MicroPython has room for without an allocation
const RAM = 0x20000000;
// MicroPython's heap begins with a table of two bits for each block of 16 bytes, 0 for a free one;
// a second table has one bit for each (py/gc.c, gc_setup_area).
const BLOCK_SIZE = 16;
const BITS_PER_TABLE_BYTE = 8 + 4 + 4 * BLOCK_SIZE * 8;
const BLOCKS_IN_USE = Uint8Array.from({ length: 256 }, (_, byte) =>
  [0, 2, 4, 6].filter((shift) => (byte >> shift) & 3).length);

export class Meter {
  // symbols: addresses of gc_collect, heap_start, heap_end and stack_top in the image.
  constructor(symbols, instructions) {
    this.symbols = symbols;
    this.instructions = instructions;
    this.back = 0; // where the running collection returns to
    this.lowest = symbols.stack_top;
    this.heapPeak = 0;
    this.all = { stack_peak: 0, heap_peak: 0 }; // before what was asked for last
    this.tableSize = Math.floor(
      ((symbols.heap_end - symbols.heap_start - 1) * 8) / BITS_PER_TABLE_BYTE);
  }

  // Peaks of all lives of the chip, and the size of its heap.
  status() {
    return {
      stack_peak: Math.max(this.all.stack_peak, this.symbols.stack_top - this.lowest),
      heap_peak: Math.max(this.all.heap_peak, this.heapPeak),
      heap: this.tableSize * 4 * BLOCK_SIZE,
    };
  }

  attach(mcu) {
    this.mcu = mcu;
    mcu.peripherals[METER] = this;
  }

  // Before each instruction.
  look(core) {
    const { registers } = core;
    const sp = registers[13]; // zero until the program has one
    if (sp < this.lowest && sp > RAM) this.lowest = sp;
    const pc = registers[15] & ~1;
    if (pc === this.symbols.gc_collect) this.back = registers[14] & ~1;
    if (pc === this.back) {
      this.back = 0;
      this.heapPeak = Math.max(this.heapPeak, this.heapUsed());
    }
  }

  heapUsed() {
    const start = this.symbols.heap_start - RAM;
    let blocks = 0;
    for (const byte of this.mcu.sram.subarray(start, start + this.tableSize)) {
      blocks += BLOCKS_IN_USE[byte];
    }
    return blocks * BLOCK_SIZE;
  }

  readUint32(offset) {
    if (offset === 0) return this.instructions() & COUNT_MASK;
    this.all = this.status();
    if (offset === 4) {
      const peak = this.symbols.stack_top - this.lowest;
      this.lowest = this.symbols.stack_top;
      return peak;
    }
    const peak = this.heapPeak;
    this.heapPeak = 0;
    return peak;
  }
}
