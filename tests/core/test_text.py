"""Nothing that a person approves is hidden, cut or forged."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.text import count_hidden, has_hidden, pieces, quote, visible, visible_json
from pml.core.values import MAX_DEPTH, Json
from tests.promises import promise

# Every kind of hidden character, named by what it does to the reader; written as numbers on purpose.
HIDDEN = {
    "nul": 0x00,
    "bell": 0x07,
    "backspace": 0x08,
    "tab": 0x09,
    "newline": 0x0A,
    "carriage return": 0x0D,
    "escape": 0x1B,
    "delete": 0x7F,
    "next line": 0x85,
    "control sequence introducer": 0x9B,
    "no-break space": 0xA0,
    "soft hyphen": 0xAD,
    "combining grapheme joiner": 0x34F,
    "arabic letter mark": 0x61C,
    "hangul choseong filler": 0x115F,
    "hangul jungseong filler": 0x1160,
    "ogham space": 0x1680,
    "khmer inherent vowel": 0x17B4,
    "mongolian variation selector": 0x180B,
    "mongolian vowel separator": 0x180E,
    "en quad": 0x2000,
    "zero width space": 0x200B,
    "zero width joiner": 0x200D,
    "right-to-left mark": 0x200F,
    "line separator": 0x2028,
    "paragraph separator": 0x2029,
    "left-to-right embedding": 0x202A,
    "right-to-left override": 0x202E,
    "word joiner": 0x2060,
    "left-to-right isolate": 0x2066,
    "pop directional isolate": 0x2069,
    "braille blank": 0x2800,
    "ideographic space": 0x3000,
    "hangul filler": 0x3164,
    "high surrogate": 0xD800,
    "low surrogate": 0xDFFF,
    "private use": 0xE000,
    "variation selector": 0xFE0F,
    "byte order mark": 0xFEFF,
    "halfwidth hangul filler": 0xFFA0,
    "noncharacter": 0xFFFF,
    "musical null notehead": 0x1D159,
    "tag letter": 0xE0041,
    "variation selector supplement": 0xE0100,
    "last code point": 0x10FFFF,
}
hidden = pytest.mark.parametrize("code", HIDDEN.values(), ids=HIDDEN.keys())

any_text = st.text(st.characters(exclude_categories=()) | st.sampled_from([*map(chr, HIDDEN.values())]))
escape_like = st.text(st.sampled_from([*"\\u{}202enrtx0", "\n", "\t", "\u202e", "\U000e0041"]))
storable_text = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | storable_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(storable_text, inner, max_size=4),
    max_leaves=12,
)


def is_seen(char: str) -> bool:
    """The test's own judgement, from Unicode's categories and not from the code under test."""
    return char == " " or unicodedata.category(char)[0] not in "CZ"


@hidden
@promise("show:nothing-hidden")
def test_a_hidden_character_is_shown_as_an_escape(code: int) -> None:
    assert has_hidden(f"rm{chr(code)}x")
    shown = visible(f"rm{chr(code)}x")
    assert chr(code) not in shown
    assert shown in {rf"rm\u{{{code:x}}}x", r"rm\tx", r"rm\nx", r"rm\rx"}


@hidden
@promise("show:nothing-hidden")
def test_a_hidden_character_in_json_is_shown_as_a_json_escape(code: int) -> None:
    value: Json = {f"k{chr(code)}": [f"v{chr(code)}"]}
    shown = visible_json(value)
    assert chr(code) not in shown.replace("\n", "") if chr(code) != "\n" else shown.count("\n") == 4
    assert json.loads(shown) == value


@pytest.mark.parametrize(
    "text", ["", "git status", "naïve café", "日本語のファイル", "Файл", "קובץ", "🙂", 'a"b`c{}']
)
def test_readable_text_stays_as_it_is(text: str) -> None:
    assert not has_hidden(text)
    assert visible(text) == text
    assert visible_json(text) == json.dumps(text, ensure_ascii=False)


@promise("show:nothing-hidden")
def test_a_value_cannot_forge_an_escape_or_a_line() -> None:
    assert visible("\u202e") == r"\u{202e}"
    assert visible(r"\u{202e}") == r"\\u{202e}"
    assert visible("ls\nApproved by: you") == r"ls\nApproved by: you"


@given(any_text)
@promise("show:nothing-hidden")
def test_whatever_comes_in_only_characters_that_are_seen_come_out(text: str) -> None:
    assert all(is_seen(char) for char in visible(text))
    assert not has_hidden(visible(text))


@given(any_text | escape_like, any_text | escape_like)
def test_different_texts_are_shown_differently(one: str, other: str) -> None:
    assert (visible(one) == visible(other)) == (one == other)


@given(escape_like)
def test_what_is_shown_can_be_read_back_exactly(text: str) -> None:
    assert _read_back(visible(text)) == text


@given(json_values)
@promise("show:nothing-hidden")
def test_json_is_shown_whole_and_reads_back_the_same(value: Json) -> None:
    shown = visible_json(value)
    assert json.loads(shown) == value
    assert not any(has_hidden(line) for line in shown.split("\n"))


def test_json_is_shown_in_the_order_and_layout_a_person_reads() -> None:
    assert visible_json({"b": "ü\u200b", "a": []}) == '{\n  "b": "ü\\u200b",\n  "a": []\n}'
    assert visible_json({"b": 1}, indent=None) == '{"b": 1}'


def test_a_long_value_is_never_cut() -> None:
    text = "x" * 1_000_000 + "\u202e"
    assert visible(text) == "x" * 1_000_000 + r"\u{202e}"
    assert json.loads(visible_json(text)) == text


def test_json_as_deep_as_pml_takes_it_in_can_be_shown() -> None:
    value: Json = "end"
    for _ in range(MAX_DEPTH):
        value = [value]
    assert json.loads(visible_json(value)) == value


@given(any_text | escape_like)
@promise("show:nothing-hidden")
def test_the_pieces_of_a_text_hide_nothing_and_joined_are_the_text(text: str) -> None:
    found = pieces(text)
    assert "".join(piece if isinstance(piece, str) else chr(piece) for piece in found) == text
    for piece in found:
        assert not has_hidden(piece) if isinstance(piece, str) else has_hidden(chr(piece))
        assert piece != ""


@hidden
@promise("show:nothing-hidden")
def test_a_hidden_character_is_a_number_among_the_pieces(code: int) -> None:
    assert pieces(f"rm{chr(code)}x") == ("rm", code, "x")


def test_a_text_that_hides_nothing_is_one_piece() -> None:
    assert (pieces("naïve 日本語 \\u{202e}"), pieces("")) == (("naïve 日本語 \\u{202e}",), ())


def test_hidden_characters_of_a_value_are_counted_but_not_its_layout() -> None:
    assert count_hidden({"a\u202e": ["x\u200b\u200b", {"b": "\x1b[2J"}], "c": 7}) == 4
    assert count_hidden("one\n\ttwo\r\nthree") == 0
    assert count_hidden("rm -rf /\recho") == 1
    assert count_hidden(["日本語", "é", None, True]) == 0


def test_a_message_quotes_input_in_one_bounded_line() -> None:
    assert quote("a\nb") == r"`a\nb`"
    assert quote("x" * 80) == f"`{'x' * 80}`"
    assert quote("x" * 81) == f"`{'x' * 80}…`"


def _read_back(shown: str) -> str:
    """Undo `visible`, as its documentation says."""
    text, rest = "", shown
    while rest:
        if not rest.startswith("\\"):
            text, rest = text + rest[0], rest[1:]
        elif rest.startswith("\\u{"):
            digits, _, rest = rest[3:].partition("}")
            text += chr(int(digits, 16))
        else:
            text, rest = text + {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}[rest[1]], rest[2:]
    return text


def test_marks_piled_on_a_letter_are_seen_as_marks_and_not_drawn_over_others() -> None:
    piled = "e" + "\u0301" * 5 + "cho"
    assert pieces(piled) == ("e\u0301\u0301\u0301", 0x301, 0x301, "cho")
    assert visible(piled) == "e\u0301\u0301\u0301" + r"\u{301}\u{301}cho"
    assert visible_json(piled) == '"e\u0301\u0301\u0301' + r'\u0301\u0301cho"'
    assert (has_hidden(piled), count_hidden(piled)) == (True, 2)
    assert not has_hidden("e\u0323\u0302 \u05e9\u05bc\u05c1\u05b8")
