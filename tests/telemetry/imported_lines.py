"""Lines of a foreign log, and the mapping that reads them."""

MAPPING = """
schema = 1
mapping = "test"
format = "csv"
[device]
field = "node"
prefix = "x-"
carrier = "lora"
board = "nrf52840-sx1262"
sleeps = true
[time]
field = "at"
unit = "s"
[frame]
counter = "n"
payload_bytes = "size"
overhead_bytes = 13
data_rate = "rate"
[battery]
mv = { field = "volts", unit = "V" }
soc_pct = { field = "soc", unit = "share" }
"""
HEAD = "node,at,n,size,rate,volts,soc"


def write(folder, lines, name="log.csv", mapping_text=MAPPING):
    (folder / "m.toml").write_text(mapping_text, "utf-8")
    (folder / name).write_text("\n".join(lines) + "\n", "utf-8")
    return [folder / name], str(folder / "m.toml"), folder / "lake"


def line(at, n, node="A", volts="3.6", soc=""):
    return f"{node},{1_700_000_000 + at},{n},20,SF7BW125,{volts},{soc}"
