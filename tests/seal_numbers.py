"""Published numbers: RFC 3610 section 8, RFC 4231 section 4, RFC 5869 appendix A."""

KEY_3610 = bytes(range(0xC0, 0xD0))
NONCE_TAIL = "a0a1a2a3a4a5"

# Packet vectors 1 to 12: nonce, size of what is authenticated, size of all, tag size, result.
RFC3610 = [
    ("00000003020100", 8, 31, 8, "588c979a61c663d2f066d0c2c0f989806d5f6b61dac38417e8d12cfdf926e0"),
    ("00000004030201", 8, 32, 8,
     "72c91a36e135f8cf291ca894085c87e3cc15c439c9e43a3ba091d56e10400916"),
    ("00000005040302", 8, 33, 8,
     "51b1e5f44a197d1da46b0f8e2d282ae871e838bb64da8596574adaa76fbd9fb0c5"),
    ("00000006050403", 12, 31, 8, "a28c6865939a9a79faaa5c4c2a9d4a91cdac8c96c861b9c9e61ef1"),
    ("00000007060504", 12, 32, 8, "dcf1fb7b5d9e23fb9d4e131253658ad86ebdca3e51e83f077d9c2d93"),
    ("00000008070605", 12, 33, 8, "6fc1b011f006568b5171a42d953d469b2570a4bd87405a0443ac91cb94"),
    ("00000009080706", 8, 31, 10,
     "0135d1b2c95f41d5d1d4fec185d166b8094e999dfed96c048c56602c97acbb7490"),
    ("0000000a090807", 8, 32, 10,
     "7b75399ac0831dd2f0bbd75879a2fd8f6cae6b6cd9b7db24c17b4433f434963f34b4"),
    ("0000000b0a0908", 8, 33, 10,
     "82531a60cc24945a4b8279181ab5c84df21ce7f9b73f42e197ea9c07e56b5eb17e5f4e"),
    ("0000000c0b0a09", 12, 31, 10, "07342594157785152b074098330abb141b947b566aa9406b4d999988dd"),
    ("0000000d0c0b0a", 12, 32, 10,
     "676bb20380b0e301e8ab79590a396da78b834934f53aa2e9107a8b6c022c"),
    ("0000000e0d0c0b", 12, 33, 10,
     "c0ffa0d6f05bdb67f24d43a4338d2aa4bed7b20e43cd1aa31662e7ad65d6db"),
]  # fmt: skip

RFC4231 = [
    (b"\x0b" * 20, b"Hi There",
     "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
    (b"Jefe", b"what do ya want for nothing?",
     "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
    (b"\xaa" * 20, b"\xdd" * 50,
     "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
    (bytes(range(1, 26)), b"\xcd" * 50,
     "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"),
    (b"\xaa" * 131, b"Test Using Larger Than Block-Size Key - Hash Key First",
     "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"),
    (b"\xaa" * 131,
     b"This is a test using a larger than block-size key and a larger than block-size data."
     b" The key needs to be hashed before being used by the HMAC algorithm.",
     "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"),
]  # fmt: skip

RFC5869 = [
    ("0b" * 22, "000102030405060708090a0b0c", "f0f1f2f3f4f5f6f7f8f9", 42,
     "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"),
    (bytes(range(0x50)).hex(), bytes(range(0x60, 0xB0)).hex(), bytes(range(0xB0, 0x100)).hex(), 82,
     "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e"
     "09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"),
    ("0b" * 22, "", "", 42,
     "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"),
]  # fmt: skip
