"""Compare texts without regard to case and to how accents are encoded, by Unicode case folding and
NFC: for filters, searches and the marks of what they found.

`ß` is `ss`, a final sigma a sigma, a letter with a combining accent (macOS) the composed letter. A
Turkish `İ` is an `i` with a dot: it finds itself, not `i`. Full-width letters differ from ASCII."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from unicodedata import combining, normalize

LETTERS_LIKE_ASCII = "\u00df\u0130\u0149\u017f\u037e\u1e9a\u1e9e\u1fef\u212a"
LETTERS_LIKE_ASCII += "\ufb00\ufb01\ufb02\ufb03\ufb04\ufb05\ufb06"
"""The characters beyond ASCII whose folded text has some of ASCII."""


_has_iota_below = re.compile("[\u0345\u1f80-\u1fff]").search


def fold_case(text: str) -> str:
    """The text in small letters for comparison, normalised."""
    if text.isascii():
        return text.lower()
    if _has_iota_below(text):  # it changes places with other accents (Unicode, D145)
        text = normalize("NFD", text)
    return normalize("NFC", text.casefold())


def normalize_text(text: str) -> str:
    """The text with composed accents; its case stays."""
    return text if text.isascii() else normalize("NFC", text)


def is_normal_alone(text: str) -> bool:
    """True if no other text is the same after `normalize_text`: ASCII without the three characters
    that others become."""
    return text.isascii() and not any(sign in text for sign in "K;`")


def contains_words(text: str, words: str) -> bool:
    """True if a text has all these words, in any case."""
    folded = fold_case(text)
    return all(word in folded for word in fold_case(words).split())


def _folded_pieces(text: str) -> Iterator[tuple[str, int]]:
    """Cut a text where folding its parts and folding the whole is the same; each piece folded, and
    its length before."""
    piece, folded = "", ""
    for sign in text:
        if combining(sign):
            piece, folded = piece + sign, ""  # folded after the last one: a text may have many
            continue
        folded, small = folded or fold_case(piece), fold_case(sign)
        is_plain = sign.isascii() and piece.isascii()
        both = folded + small if is_plain else fold_case(piece + sign)
        if piece and both == folded + small:
            yield folded, len(piece)
            piece, folded = sign, small
        else:
            piece, folded = piece + sign, both
    if piece:
        yield folded or fold_case(piece), len(piece)


def find_folded(text: str, words: Iterable[str]) -> list[tuple[int, int]]:
    """Where a text has one of these folded words: starts and ends, sorted and apart. A character
    of which a word has a part is within."""
    ends, starts, at, folded = [0], list[int](), 0, ""
    for small, length in _folded_pieces(text):
        starts += [at] * len(small)
        at += length
        ends += [at] * len(small)
        folded += small
    spans = list[tuple[int, int]]()
    for word in filter(None, words):
        begin = folded.find(word)
        while begin >= 0:
            spans.append((starts[begin], ends[begin + len(word)]))
            begin = folded.find(word, begin + len(word))
    joined = list[tuple[int, int]]()
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined
