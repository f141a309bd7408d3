// Makes the emulated core fast. rp2040js compares each instruction with up to eighty patterns, one
// after the other, and looks for a peripheral at each address that is written to. Here a table says
// which pattern an instruction has, and RAM is tried first. What an instruction does is taken from
// the text of rp2040js as it is.
const OPCODES = 65536;
const RAM = 0x20000000;
// Lines of `executeInstruction`, which is one chain of branches on the instruction.
const BRANCH = /^ {8}(?:else )?if \((.*opcode.*)\) \{$/;
const OTHERWISE = /^ {8}else \{$/;
const END = /^ {8}\}$/;
const COMMENT = /^ {8}\/\//;
const WIDE = 'const wideInstruction';
const CYCLES = 'let deltaCycles = 1;';
// What the text takes from its module.
const NAMES = {
  pcRegister: 15,
  spRegister: 13,
  LOG_NAME: 'CortexM0Core',
  signExtend8: (value) => (value << 24) >> 24,
  signExtend16: (value) => (value << 16) >> 16,
};

function unknown(what) {
  throw new Error(`rp2040js has another core than the one that is made fast: ${what}`);
}

// Lines before the chain, its branches, and lines behind it. The last branch has no condition.
function chainOf(text) {
  const before = [], branches = [], after = [];
  let lines = before;
  for (const line of text.split('\n')) {
    const condition = lines === after ? undefined : BRANCH.exec(line)?.[1];
    if (condition || (branches.length && OTHERWISE.test(line))) {
      lines = [];
      branches.push({ condition, body: lines });
    } else if (branches.length && END.test(line)) {
      lines = branches.at(-1).condition ? null : after;
    } else if (lines) lines.push(line);
    else if (!COMMENT.test(line)) unknown(line);
  }
  if (!after.length || !before.some((line) => line.includes(CYCLES))) unknown('its chain of branches');
  return { before, branches, after };
}

// For each opcode what its branch does; null where the second half of a wide instruction decides.
function actsByOpcode(branches) {
  const parts = branches.map(({ condition = 'true', body }) => `{
    test: (opcode) => ${condition.split(' && ').filter((part) => !part.includes('opcode2')).join(' && ')},
    isWide: ${condition.includes('opcode2')},
    act: function (opcode, opcodePC) {
      const opcode2 = 0;
      ${CYCLES}
      ${body.join('\n')}
      return deltaCycles;
    },
  }`);
  const make = new Function(...Object.keys(NAMES), `return [${parts.join(',')}];`);
  const acts = make(...Object.values(NAMES));
  return Array.from({ length: OPCODES }, (_, opcode) => {
    const first = acts.find(({ test }) => test(opcode));
    return first.isWide ? null : first.act;
  });
}

function executeByTable(chain) {
  const { before, branches, after } = chainOf(chain.toString());
  const wide = before.findIndex((line) => line.includes(WIDE));
  const head = before.slice(0, wide).join('\n');
  const rest = before.slice(wide + 2).join('\n'); // without the line of the second half
  if (wide < 0 || rest.includes('opcode2') || !before[wide + 1].includes('opcode2')) unknown(WIDE);
  const text = `return function ${head}
    const act = acts[opcode];
    if (act === null) return chain.call(this);
    ${rest.replace(CYCLES, 'const deltaCycles = act.call(this, opcode, opcodePC);')}
    ${after.join('\n')}`;
  return new Function('chain', 'acts', text)(chain, actsByOpcode(branches));
}

let execute = null; // made once: a chip is new after each reset

export function accelerate(mcu) {
  const { core, sramView } = mcu;
  execute ??= executeByTable(core.executeInstruction);
  core.executeInstruction = execute;
  const end = sramView.byteLength - 3;
  core.readUint32 = (address) => {
    const at = (address >>> 0) - RAM;
    return at >= 0 && at < end && !(at & 3) ? sramView.getUint32(at, true) : mcu.readUint32(address);
  };
  core.writeUint32 = (address, value) => {
    const at = (address >>> 0) - RAM;
    if (at >= 0 && at < end) sramView.setUint32(at, value, true);
    else mcu.writeUint32(address, value);
  };
}
