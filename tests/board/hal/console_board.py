"""A board's program over the fake of its chip: `run` of its kind's main.

The configuration is `drupelet.json` beside, and so are files of keys. The last line is what `run`
returned; behind the escape it comes out as it would on a console again.
"""

import json
import os
import sys

import fake_port

with open("drupelet.json") as file:
    config = file.read()
fake_port.prepare()
with open("/board/drupelet.json", "w") as file:
    file.write(config)
for name in os.listdir():
    if name.endswith(".KEY"):
        if "log" not in os.listdir("/board"):
            os.mkdir("/board/log")
        with open(name, "rb") as source, open("/board/log/" + name, "wb") as copy:
            copy.write(source.read())
main = "boards." + fake_port.NAME + ".main"
__import__(main)
code = sys.modules[main].run("/board/drupelet.json")
print(json.dumps({"returned": code, "files": len(os.listdir("/board/log"))}))
