"""HSalsa20, which NaCl applies to a shared X25519 secret (`crypto_box_beforenm`).

From D. J. Bernstein, "Extending the Salsa20 nonce", section 2: the 20 rounds of Salsa20 on
constant, key and input without the final addition; the result is 8 words of the state.

The four quarter rounds of a round touch different words. So each step is made on a row of four
words, which is one whole number with 64 bits for a word: half the time of word after word.
"""

from __future__ import annotations

from struct import Struct

_SIGMA = Struct("<4I").unpack(b"expand 32-byte k")
_KEY, _BLOCK, _RESULT = Struct("<8I"), Struct("<4I"), Struct("<8I")
_ROW = Struct("<I4xI4xI4xI4x")
_WORD = 0xFFFFFFFF
_WORDS = int.from_bytes(_ROW.pack(*[_WORD] * 4), "little")
"""The 32 bits of each word of a row."""
_TWICE = (1 << 32) + 1
"""Times a word: the word in both halves of its 64 bits, so that a shift to the right rotates it."""


def hsalsa20(key: bytes, block: bytes = bytes(16)) -> bytes:
    """Return the 32 bytes that HSalsa20 makes of a key of 32 bytes and a block of 16."""
    k, n, c = _KEY.unpack(key), _BLOCK.unpack(block), _SIGMA
    words, twice = _WORDS, _TWICE
    pack, from_bytes = _ROW.pack, int.from_bytes
    # The columns of the state, each from the diagonal down: row `one` is the diagonal.
    one = from_bytes(pack(*c), "little")
    two = from_bytes(pack(k[3], n[3], k[7], k[2]), "little")
    three = from_bytes(pack(n[2], k[6], k[1], n[1]), "little")
    four = from_bytes(pack(k[5], k[0], n[0], k[4]), "little")
    for _ in range(10):
        two = (two ^ (one + four & words) * twice >> 25) & words
        three = (three ^ (two + one & words) * twice >> 23) & words
        four = (four ^ (three + two & words) * twice >> 19) & words
        one = (one ^ (four + three & words) * twice >> 14) & words
        # Columns become rows: each word moves along its row, which is a circle. What is above the
        # row is masked by the next step.
        two = two >> 192 | two << 64
        three = three >> 128 | three << 128
        four = four >> 64 | four << 192
        four = (four ^ (one + two & words) * twice >> 25) & words
        three = (three ^ (four + one & words) * twice >> 23) & words
        two = (two ^ (three + four & words) * twice >> 19) & words
        one = (one ^ (two + three & words) * twice >> 14) & words
        two = two >> 64 | two << 192
        three = three >> 128 | three << 128
        four = four >> 192 | four << 64
    return _RESULT.pack(
        *_ROW.unpack(one.to_bytes(32, "little")),
        four >> 128 & _WORD,
        three >> 192 & _WORD,
        three & _WORD,
        two >> 64 & _WORD,
    )
