"""Bodies that are not what an export expects, or that are commands to who reads it."""

HOSTILE = [
    '=HYPERLINK("http://x","y")', "+1+cmd|' /C calc'!A0", "@SUM(1)", "-1+1", "\t=1", "a,b;c",
    'say "no"', "two\nlines\r\nand more", "\0null", "a\\", "\\", "'", "é 水 😀", '{"a":"\\ud800"}',
    "{", "[1,2]", '{"a":NaN}', '{"time":1,"a b,c=d":2,"":3}', "1e999", '{"n":1e400}', " 21.5 C ",
    '{"deep":{"er":{"x":1}},"list":[1,{"b":2}],"none":null,"is":true}', "x" * 30_000,
]  # fmt: skip
