"""A Pico's program over the fake of its chip: `boards.rp2.main.run`, its peer on the console.

The configuration is `drupelet.json` beside, and so are files of keys. The last line is what `run`
returned; behind the escape it comes out as it would on a console again.
"""

import json
import os

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
from boards.rp2.main import run  # noqa: E402

code = run("/board/drupelet.json")
print(json.dumps({"returned": code, "files": len(os.listdir("/board/log"))}))
