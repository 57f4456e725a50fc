"""Keys land where Kafka's clients put them."""

import pytest

from barnabas.client.murmur2 import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected % 2**32


def test_every_partition_is_some_keys_home() -> None:
    homes = {partition_for_key(b"key-%d" % number, 7) for number in range(200)}
    assert homes == set(range(7))
