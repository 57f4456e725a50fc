"""XXH3, the 64 bit variant with seed 0: a fast hash that is no secret. https://github.com/Cyan4973/xxHash

Not fast here; whoever hashes much keeps the results.
"""

from __future__ import annotations

from struct import Struct

_MASK = (1 << 64) - 1
_PRIME32_1, _PRIME32_2, _PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME64_1, _PRIME64_2, _PRIME64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_PRIME64_4, _PRIME64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_PRIME_MX1, _PRIME_MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d"
    "8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc"
    "8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_SECRET_LAST_BYTES = 136
"""No part of the secret that is used for up to 240 bytes may begin behind this, less 16."""
_STRIPE_BYTES = 64
_STRIPES_IN_BLOCK = (len(_SECRET) - _STRIPE_BYTES) // 8

_u32 = Struct("<I").unpack_from
_u64 = Struct("<Q").unpack_from
_eight = Struct("<8Q").unpack_from


def xxh3_64(data: bytes) -> int:
    """The hash, not negative."""
    size = len(data)
    if size <= 16:
        return _short(data, size)
    if size <= 240:
        return _middle(data, size)
    return _long(data, size)


def _secret64(place: int) -> int:
    return int(_u64(_SECRET, place)[0])


def _fold(left: int, right: int) -> int:
    """The 128 bits of the product, one half on the other."""
    product = left * right
    return (product & _MASK) ^ (product >> 64)


def _avalanche(hashed: int) -> int:
    hashed ^= hashed >> 37
    hashed = hashed * _PRIME_MX1 & _MASK
    return hashed ^ hashed >> 32


def _avalanche_xxh64(hashed: int) -> int:
    hashed ^= hashed >> 33
    hashed = hashed * _PRIME64_2 & _MASK
    hashed ^= hashed >> 29
    hashed = hashed * _PRIME64_3 & _MASK
    return hashed ^ hashed >> 32


def _short(data: bytes, size: int) -> int:
    if size > 8:
        low = int(_u64(data, 0)[0]) ^ _secret64(24) ^ _secret64(32)
        high = int(_u64(data, size - 8)[0]) ^ _secret64(40) ^ _secret64(48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((size + swapped + high + _fold(low, high)) & _MASK)
    if size >= 4:
        first, last = int(_u32(data, 0)[0]), int(_u32(data, size - 4)[0])
        keyed = (last + (first << 32)) ^ _secret64(8) ^ _secret64(16)
        keyed ^= (keyed << 49 | keyed >> 15) & _MASK ^ (keyed << 24 | keyed >> 40) & _MASK
        keyed = keyed * _PRIME_MX2 & _MASK
        keyed ^= (keyed >> 35) + size
        keyed = keyed * _PRIME_MX2 & _MASK
        return keyed ^ keyed >> 28
    if size:
        combined = data[0] << 16 | data[size >> 1] << 24 | data[size - 1] | size << 8
        return _avalanche_xxh64(combined ^ int(_u32(_SECRET, 0)[0]) ^ int(_u32(_SECRET, 4)[0]))
    return _avalanche_xxh64(_secret64(56) ^ _secret64(64))


def _mix16(data: bytes, place: int, secret_place: int) -> int:
    low, high = int(_u64(data, place)[0]), int(_u64(data, place + 8)[0])
    return _fold(low ^ _secret64(secret_place), high ^ _secret64(secret_place + 8))


def _middle(data: bytes, size: int) -> int:
    hashed = size * _PRIME64_1
    if size <= 128:
        for pair in range((size - 1) // 32 + 1):
            hashed += _mix16(data, 16 * pair, 32 * pair) + _mix16(data, size - 16 * (pair + 1), 32 * pair + 16)
        return _avalanche(hashed & _MASK)
    for round_ in range(8):
        hashed += _mix16(data, 16 * round_, 16 * round_)
    hashed = _avalanche(hashed & _MASK)
    for round_ in range(8, size // 16):
        hashed += _mix16(data, 16 * round_, 16 * (round_ - 8) + 3)
    hashed += _mix16(data, size - 16, _SECRET_LAST_BYTES - 17)
    return _avalanche(hashed & _MASK)


def _long(data: bytes, size: int) -> int:
    lanes = [
        _PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3, _PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1,
    ]  # fmt: skip
    stripes = (size - 1) // _STRIPE_BYTES
    for stripe in range(stripes):
        in_block = stripe % _STRIPES_IN_BLOCK
        _accumulate(lanes, _eight(data, stripe * _STRIPE_BYTES), _eight(_SECRET, 8 * in_block))
        if in_block == _STRIPES_IN_BLOCK - 1:
            _scramble(lanes, _eight(_SECRET, len(_SECRET) - _STRIPE_BYTES))
    _accumulate(lanes, _eight(data, size - _STRIPE_BYTES), _eight(_SECRET, len(_SECRET) - _STRIPE_BYTES - 7))
    hashed = size * _PRIME64_1
    keys = _eight(_SECRET, 11)
    for place in range(0, 8, 2):
        hashed += _fold(lanes[place] ^ keys[place], lanes[place + 1] ^ keys[place + 1])
    return _avalanche(hashed & _MASK)


def _accumulate(lanes: list[int], values: tuple[int, ...], keys: tuple[int, ...]) -> None:
    for place in range(8):
        keyed = values[place] ^ keys[place]
        lanes[place ^ 1] += values[place]
        lanes[place] = lanes[place] + (keyed & 0xFFFFFFFF) * (keyed >> 32)
    for place in range(8):
        lanes[place] &= _MASK


def _scramble(lanes: list[int], keys: tuple[int, ...]) -> None:
    for place in range(8):
        lane = lanes[place]
        lanes[place] = (lane ^ lane >> 47 ^ keys[place]) * _PRIME32_1 & _MASK
