// A Raspberry Pi Pico in an emulator. Its flash is a file that holds what a power cut leaves; its USB
// console and both UARTs are TCP ports of loopback. Started by emulator.py, which says what for.
//
// Arguments: a JSON object: {modules, bootrom, flash, uf2, speed, seconds, log, symbols}.
// Commands on stdin and events on stdout are lines of JSON. The end of stdin ends the emulator.
import crypto from 'crypto';
import fs from 'fs';
import net from 'net';
import path from 'path';
import readline from 'readline';
import { pathToFileURL } from 'url';
import { Meter } from './meter.mjs';
import { readUf2 } from './uf2.mjs';
import { Uarts } from './uarts.mjs';

const options = JSON.parse(process.argv[2]);
const emulator = path.join(options.modules, 'node_modules/rp2040js/dist/esm/index.js');
const { Simulator, USBCDC, ConsoleLogger, LogLevel } = await import(pathToFileURL(emulator));

const FLASH_SIZE = 2 * 1024 * 1024;
const SECTOR_SIZE = 4096;
const PAGE_SIZE = 256;
const SNAPSHOT_AT = FLASH_SIZE - 2 * SECTOR_SIZE;
const CYCLE_NS = 8; // at 125 MHz
const SLICE_MS = 20; // of wall time, between looks at sockets and stdin
const CHUNK = 5000; // instructions between looks at the queues of bytes
const IDLE_NS = 1e6; // longest step of a chip that waits
const AHEAD_MS = 5; // how far simulated time may run ahead of `speed` times wall time
const USB_QUEUE = 200; // bytes that the emulated host controller holds for the chip
const WATCHDOG = 0x40058;
// The emulator has no ring oscillator, from which the chip draws its random bits, and no voltages.
const ROSC = 0x40060;
const RANDOM_BIT = 0x1c;
const ADC_HALF = 2048; // of 4,096: 1.65 V at each pin
const ADC_ROOM = 876; // 27 degrees Celsius at the sensor in the chip
// Functions of the boot ROM that are replaced, by their code in its table: the emulator has no flash
// chip behind its SSI, and no USB boot loader.
const TRAPS = { RE: 0xd0, RP: 0xd1, UB: 0xd2 };

const say = (event, fields = {}) => process.stdout.write(JSON.stringify({ event, ...fields }) + '\n');

// --- flash: every operation goes to the file at once ---
const flashFile = fs.openSync(options.flash, fs.existsSync(options.flash) ? 'r+' : 'w+');
const flash = Buffer.alloc(FLASH_SIZE, 0xff);
fs.readSync(flashFile, flash, 0, FLASH_SIZE, 0);
fs.ftruncateSync(flashFile, FLASH_SIZE);
fs.writeSync(flashFile, flash, 0, FLASH_SIZE, 0);

function keep(at, size) {
  flash.set(mcu.flash.subarray(at, at + size), at);
  fs.writeSync(flashFile, flash, at, size, at);
}

function dropUf2(file) {
  for (const [at, page] of readUf2(fs.readFileSync(file))) {
    const sector = at - (at % SECTOR_SIZE);
    if (at === sector) flash.fill(0xff, sector, sector + SECTOR_SIZE);
    flash.set(page, at);
  }
  fs.writeSync(flashFile, flash, 0, FLASH_SIZE, 0);
}

// --- counters, over resets and power cuts ---
// `snapshots` are the programs, of one page or more, of the blocks behind the drive (rp2/rtc.py).
const counts = {
  erases: 0, programs: 0, snapshots: 0, operations: 0, instructions: 0, resets: 0, boots: 0,
};
let simulatedNs = 0; // of the chips before this one
const status = () => ({
  ...counts, ...(meter ? meter.status() : {}),
  sim_ms: Math.round((simulatedNs + (powered ? sim.clock.nanos : 0)) / 1e6), powered,
});

// --- the chip ---
let bits = Buffer.alloc(0), bitsLeft = 0;
function randomBit() {
  if (!bitsLeft) { bits = crypto.randomBytes(4096); bitsLeft = bits.length * 8; }
  bitsLeft--;
  return (bits[bitsLeft >> 3] >> (bitsLeft & 7)) & 1;
}
const bootrom = (() => {
  const bytes = fs.readFileSync(options.bootrom);
  const words = new Uint32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
  const view = new DataView(words.buffer);
  for (let at = view.getUint16(0x14, true); view.getUint16(at, true); at += 4) {
    const code = String.fromCharCode(view.getUint8(at), view.getUint8(at + 1));
    if (TRAPS[code] === undefined) continue;
    const entry = view.getUint16(at + 2, true) & ~1;
    view.setUint16(entry, 0xbe00 | TRAPS[code], true); // BKPT, then BX LR
    view.setUint16(entry + 2, 0x4770, true);
  }
  return words;
})();
const uarts = new Uarts();
const meter = options.symbols ? new Meter(options.symbols, () => counts.instructions) : null;
let sim, mcu, cdc, powered = false, resetDue = false, cut = null;
let connected = false; // whether the chip's USB console is there for a host
let readySize = 0; // of the packet that the chip is ready for, while the host has none to send

function powerOn(before = null) {
  sim = new Simulator();
  mcu = sim.rp2040;
  mcu.logger = new ConsoleLogger(LogLevel.Error);
  mcu.loadBootrom(bootrom);
  mcu.flash.set(flash);
  mcu.core.PC = 0x10000000;
  mcu.onBreak = onTrap;
  const watchdog = mcu.peripherals[WATCHDOG];
  watchdog.onWatchdogTrigger = () => { resetDue = true; };
  if (before) { // a reset keeps the watchdog's registers, a loss of power clears them
    watchdog.scratchData.set(before.scratchData);
    watchdog.reason = before.reason;
  }
  mcu.peripherals[ROSC].readUint32 = (offset) => (offset === RANDOM_BIT ? randomBit() : 0xffffffff);
  mcu.adc.channelValues.fill(ADC_HALF);
  mcu.adc.channelValues[4] = ADC_ROOM;
  cdc = new USBCDC(mcu.usbCtrl);
  connected = false;
  cdc.onDeviceConnected = () => { connected = true; say('usb', status()); };
  cdc.onSerialData = (bytes) => consoleOut(Buffer.from(bytes));
  // A host sends nothing while it has nothing. That of the emulator would send an empty packet each
  // time that the chip is ready for one, which interrupts the chip without end.
  const receive = mcu.usbCtrl.onEndpointRead;
  readySize = 0;
  mcu.usbCtrl.onEndpointRead = (endpoint, size) => {
    if (endpoint === cdc.outEndpoint && !cdc.txFIFO.itemCount) readySize = size;
    else receive(endpoint, size);
  };
  uarts.attach(mcu, sim.clock);
  if (meter) meter.attach(mcu);
  powered = true;
  counts.boots++;
}

function powerOff() {
  simulatedNs += sim.clock.nanos;
  powered = false;
  fromHost.length = 0;
  uarts.detach();
}

// A host sees that the device is gone; what it opens then hears nothing until the power is back.
function unplug() {
  powerOff();
  if (consoleSocket) consoleSocket.destroy();
}

function reset() {
  resetDue = false;
  counts.resets++;
  const before = mcu.peripherals[WATCHDOG];
  powerOff();
  powerOn(before);
  say('reset', status());
}

// --- flash operations, and a power cut in the middle of one ---
function onTrap(code) {
  const [r0, r1, r2] = mcu.core.registers;
  if (code === TRAPS.RE) {
    for (let at = r0; at < r0 + r1 && powered; at += SECTOR_SIZE) erase(at);
  } else if (code === TRAPS.RP) {
    if (r0 >= SNAPSHOT_AT) counts.snapshots++;
    for (let at = 0; at < r2 && powered; at += PAGE_SIZE) program(r0 + at, r1 + at);
  } else if (code === TRAPS.UB) {
    powerOff();
    say('bootloader', status());
  } else {
    say('error', { why: `breakpoint ${code} at ${mcu.core.PC.toString(16)}` });
    process.exit(3);
  }
}

// How much of an operation's bytes get done: all, or what a cut lets.
function share(kind, at, size) {
  counts.operations++;
  if (!cut || (cut.kind && cut.kind !== kind) || --cut.after > 0) return size;
  const part = Math.floor(size * cut.torn);
  const fields = { kind, at, part, size };
  cut = null;
  powered = null; // off as soon as its bytes are kept
  setImmediate(() => say('cut', { ...fields, ...status() }));
  return part;
}

function erase(at) {
  const size = share('erase', at, SECTOR_SIZE);
  mcu.flash.fill(0xff, at, at + size);
  keep(at, size);
  counts.erases++;
  if (powered === null) unplug();
}

function program(at, from) {
  const size = share('program', at, PAGE_SIZE);
  for (let i = 0; i < size; i++) mcu.flash[at + i] &= mcu.readUint8(from + i);
  keep(at, size);
  counts.programs++;
  if (powered === null) unplug();
}

// --- sockets ---
const fromHost = [];
let consoleSocket = null;
const log = options.log ? fs.openSync(options.log, 'a') : null;
function consoleOut(bytes) {
  if (log) fs.writeSync(log, bytes);
  if (consoleSocket) consoleSocket.write(bytes);
}

function listen(onConnect) {
  return new Promise((resolve) => {
    const server = net.createServer((socket) => {
      socket.setNoDelay(true);
      socket.on('error', () => {});
      onConnect(socket);
    });
    server.listen(0, '127.0.0.1', () => resolve(server.address().port));
  });
}

const consolePort = await listen((socket) => {
  consoleSocket = socket;
  socket.on('data', (bytes) => {
    // A host has no device to write to before the chip has answered it.
    if (powered && connected) for (const byte of bytes) fromHost.push(byte);
    wake();
  });
  socket.on('close', () => { if (consoleSocket === socket) consoleSocket = null; });
});
const uartPorts = [await listen((s) => uarts.connect(0, s)), await listen((s) => uarts.connect(1, s))];

// --- commands ---
const commands = {
  status: () => say('status', status()),
  cut: ({ after, torn, kind }) => { cut = { after, torn, kind }; },
  power_off: () => { if (powered) unplug(); say('off', status()); },
  power_on: () => { if (!powered) powerOn(); say('on', status()); },
  reset: () => { if (powered) resetDue = true; },
  uf2: ({ file }) => { if (powered) powerOff(); dropUf2(file); powerOn(); say('on', status()); },
  speed: ({ speed }) => { pace(speed); },
  quit: () => process.exit(0),
};
const lines = readline.createInterface({ input: process.stdin });
lines.on('line', (line) => { const command = JSON.parse(line); commands[command.command](command); });
lines.on('close', () => process.exit(0));
setTimeout(() => { say('error', { why: 'lived its time' }); process.exit(4); }, options.seconds * 1000);

// --- time: at most `speed` simulated seconds in one of wall time ---
let speed, paceWall, paceSim;
const simMs = () => (simulatedNs + (powered ? sim.clock.nanos : 0)) / 1e6;
function pace(to) { speed = to; paceWall = performance.now(); paceSim = simMs(); }
function aheadMs() {
  const ahead = simMs() - paceSim - (performance.now() - paceWall) * speed;
  if (ahead < -50 * speed) pace(speed); // time that a busy chip lost is not made up for
  return ahead / speed;
}

function feedUsb() {
  for (let room = USB_QUEUE - cdc.txFIFO.itemCount; room > 0 && fromHost.length; room--) {
    cdc.sendSerialByte(fromHost.shift());
  }
  const size = readySize;
  readySize = 0;
  if (size) mcu.usbCtrl.onEndpointRead(cdc.outEndpoint, size);
}

function chunk() {
  const { core } = mcu;
  const { clock } = sim;
  const end = counts.instructions + CHUNK;
  while (counts.instructions < end && powered && !resetDue) {
    if (core.waiting) {
      const ns = Math.max(1, Math.min(clock.nanosToNextAlarm || IDLE_NS, IDLE_NS));
      clock.tick(ns);
      if (ns >= IDLE_NS / 10) return true;
    } else {
      if (meter) meter.look(core);
      clock.tick(core.executeInstruction() * CYCLE_NS);
      counts.instructions++;
    }
  }
  return false;
}

function run() {
  const end = performance.now() + SLICE_MS;
  let ahead = 0;
  pause = null;
  while (powered && performance.now() < end) {
    const idle = chunk();
    if (resetDue && powered) reset();
    if (!powered) break;
    if (fromHost.length) feedUsb();
    uarts.feed();
    ahead = idle ? aheadMs() : 0;
    if (ahead > AHEAD_MS) break;
  }
  if (!powered || ahead > AHEAD_MS) pause = setTimeout(run, powered ? Math.min(ahead, 20) : 10);
  else setImmediate(run);
}

// Something came for a chip that waits.
let pause = null;
function wake() {
  if (!pause) return;
  clearTimeout(pause);
  setImmediate(run);
  pause = null;
}

if (options.uf2) dropUf2(options.uf2);
powerOn();
pace(options.speed);
say('ready', { console: consolePort, uarts: uartPorts });
run();
