// Runs each instruction on two cores, that of rp2040js and the one that dispatch.mjs makes fast, and
// compares all that they then hold. Prints how many ran, or the first one that differs.
// Arguments: the emulator's folder, how often each opcode runs.
import path from 'path';
import { pathToFileURL } from 'url';
import { accelerate } from '../../tools/drupelet_tools/pico/dispatch.mjs';

const [folder, repeats] = process.argv.slice(2);
const entry = path.join(folder, 'node_modules/rp2040js/dist/esm/index.js');
const { RP2040, ConsoleLogger, LogLevel } = await import(pathToFileURL(entry));
const RAM = 0x20000000;
const CODE = RAM + 0x8000;
// Fields of a core that are no other objects.
const fields = (core) => JSON.stringify(core, (key, value) =>
  (key === '' || typeof value !== 'object' || Array.isArray(value) ? value : undefined));

console.warn = () => {}; // of addresses where nothing is
// Numbers that are the same in each run (xorshift).
let state = 0x2545f491;
function draw() {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return state >>> 0;
}

const chips = [0, 1].map(() => {
  const chip = new RP2040();
  chip.logger = new ConsoleLogger(LogLevel.Error + 1, false);
  chip.breaks = [];
  chip.onBreak = (code) => chip.breaks.push(code);
  return chip;
});
accelerate(chips[1]);
let count = 0;
for (let round = 0; round < Number(repeats); round++) {
  for (let opcode = 0; opcode < 65536; opcode++) {
    const second = draw() & 0xffff;
    const flags = draw();
    // Addresses in RAM, and numbers of every size.
    const registers = Array.from({ length: 16 }, (_, at) =>
      (draw() & 1 || at === 13 ? RAM + (draw() & 0x7ffc) : draw() >>> (draw() & 31)) >>> 0);
    const outcomes = chips.map((chip) => {
      const { core } = chip;
      chip.writeUint16(CODE, opcode);
      chip.writeUint16(CODE + 2, second);
      core.registers.set(registers);
      core.PC = CODE;
      core.APSR = flags;
      core.PM = core.waiting = core.interruptsUpdated = core.pendingSVCall = false;
      const cycles = core.executeInstruction();
      return `${cycles} ${[...core.registers]} ${fields(core)} ${chip.breaks.splice(0)}`;
    });
    if (outcomes[0] !== outcomes[1]) {
      console.log(`${opcode.toString(16)} ${second.toString(16)}`, ...outcomes);
      process.exit(1);
    }
    count++;
  }
}
if (Buffer.compare(Buffer.from(chips[0].sram), Buffer.from(chips[1].sram))) {
  console.log('RAM differs');
  process.exit(1);
}
console.log(count);
