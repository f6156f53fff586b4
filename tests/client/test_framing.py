"""Lines of the API: cut at one byte only, and one that is too long costs itself and nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.framing import Lines, TooLong


def lines(pieces: list[bytes], longest: int = 1 << 20) -> list[bytes | TooLong]:
    framing = Lines(longest)
    return [line for piece in pieces for line in framing.feed(piece)]


@given(st.lists(st.text(alphabet="ab\u2028\u2029\u0085\r", min_size=1), max_size=5), st.integers(1, 7))
def test_lines_end_at_one_byte_wherever_they_are_cut(texts: list[str], size: int) -> None:
    wanted = [text.encode().strip(b" \t\r") for text in texts]
    data = b"".join(text.encode() + b"\n" for text in texts)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert lines(pieces) == [line for line in wanted if line]


def test_a_line_over_the_limit_is_let_go_and_the_next_one_is_read() -> None:
    found = lines([b"x" * 6, b"x" * 6, b"x\nok\n", b"y" * 9 + b"\n"], longest=10)
    assert isinstance(found[0], TooLong)
    assert found[1:] == [b"ok", b"y" * 9]


def test_what_is_not_ended_is_no_line() -> None:
    assert lines([b"abc"]) == []
