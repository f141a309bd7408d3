// The pages of a UF2 file, as the boot ROM takes them: address in flash and bytes.
const BLOCK_SIZE = 512;
const FLASH_BASE = 0x10000000;
const FAMILY_RP2040 = 0xe48bff56;

export function* readUf2(file) {
  for (let at = 0; at + BLOCK_SIZE <= file.length; at += BLOCK_SIZE) {
    const word = (index) => file.readUInt32LE(at + 4 * index);
    if (word(0) !== 0x0a324655 || word(1) !== 0x9e5d5157 || word(7) !== FAMILY_RP2040) {
      throw new Error(`block ${at / BLOCK_SIZE} is not UF2 for an RP2040`);
    }
    yield [word(3) - FLASH_BASE, file.subarray(at + 32, at + 32 + word(4))];
  }
}
