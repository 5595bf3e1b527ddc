"""Case and accents in comparisons of texts, and the marks of what was found."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from engine.text import folding
from engine.text.folding import contains_words, find_folded, fold_case
from tests.examples import examples

SIGNS = "aAe\u0301\u0308ßΣςİi\u0345\u1f80\u1100\u1161\u11a8\u09c7\u09beﬁK E"
TEXTS = st.text(st.sampled_from(SIGNS) | st.characters(), max_size=12)


def test_the_letters_that_fold_to_ascii_are_known() -> None:
    """Of a text without them, no search for ASCII misses a character beyond ASCII."""
    beyond = map(chr, (*range(0x80, 0xD800), *range(0xE000, 0x110000)))
    found = (sign for sign in beyond if any(small.isascii() for small in fold_case(sign)))
    assert "".join(found) == folding.LETTERS_LIKE_ASCII


@given(TEXTS, TEXTS)
@example("\u1100ﬁ\u0345\u0308Kia", "fi")
@example("a\ud800", "A")
@examples(300)
def test_a_mark_is_where_the_folded_word_is(text: str, word: str) -> None:
    """Folding twice is folding once; each mark has the word, and there is none without it."""
    small = fold_case(text)
    assert fold_case(small) == small
    word = fold_case(word)
    spans = find_folded(text, [word])
    assert bool(spans) is (word != "" and word in small)
    assert all(word in fold_case(text[start:end]) for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


MARKED = {
    ("die STRASSE, Straße", "strasse"): ["STRASSE", "Straße"],
    ("Cafe\u0301 CAFÉ cafe", "café"): ["Cafe\u0301", "CAFÉ"],
    ("Maße", "s"): ["ß"], ("İx ix", "ix"): ["ix"], ("aXbxc", "x"): ["X", "x"],
}  # fmt: skip


def test_a_mark_does_not_slip_by_a_letter() -> None:
    """Letters that are longer when folded do not move the marks behind them."""
    for (text, word), marked in MARKED.items():
        assert [text[a:b] for a, b in find_folded(text, [word])] == marked
    assert find_folded("abcd", ["bc", "cd", ""]) == [(1, 4)]
    assert contains_words("Große STRASSE", "straße GROSSE")
