"""What the model reads of an answer: status, headers, and the body as text where it is text. Bounded."""

from __future__ import annotations

import codecs
import zlib

from fencepost.plugins.http_exchange import ANSWER_BYTES, Answer

HEADER_CHARACTERS = 4_096
"""Of all headers that are shown, together."""
SILENT = frozenset({"set-cookie", "set-cookie2"})
"""Headers whose values are secrets of the next request; nobody here would send them."""
_BINARY = ("image/", "audio/", "video/", "font/", "application/octet-stream", "application/zip", "application/pdf")
_COMPRESSED = {"gzip": 47, "x-gzip": 47, "deflate": 15}


def shown(answer: Answer, method: str, remark: str = "") -> str:
    """An answer as text, with notes below on all that is left out, and a remark if there is one."""
    lines = [f"{answer.version} {answer.status} {answer.reason}".rstrip(), *_headers(answer), ""]
    text, notes = _body(answer) if method != "HEAD" else ("", [])
    if 300 <= answer.status < 400 and _header(answer, "location"):
        notes.append("the redirect was not followed: ask for its location with a call of its own")
    if answer.broken:
        notes.append(f"the body is not whole, only {len(answer.data)} bytes of it came: {answer.broken}")
    if remark:
        notes.append(remark)
    line_end = "\n" if text and not text.endswith("\n") else ""
    return "\n".join(lines) + "\n" + text + (line_end + "".join(f"[{note}]\n" for note in notes) if notes else "")


def _header(answer: Answer, name: str) -> str:
    return next((value for each, value in answer.headers if each == name), "")


def _headers(answer: Answer) -> list[str]:
    lines, size = [], 0
    for name, value in answer.headers:
        line = f"{name}: {'[not shown]' if name in SILENT else value}"
        size += len(line)
        if size > HEADER_CHARACTERS:
            lines.append("[more headers are left out]")
            break
        lines.append(line)
    return lines


def _body(answer: Answer) -> tuple[str, list[str]]:
    kind = _header(answer, "content-type")
    data, cut = _plain(answer)
    if data is None:
        return "", [f"the body is compressed in a way that is not read here: {_header(answer, 'content-encoding')}"]
    notes = []
    if cut:
        length = _header(answer, "content-length")
        of = f" of {length}" if answer.cut and length and not _header(answer, "content-encoding") else ""
        notes.append(f"cut after {len(data)} bytes{of}; a Range header may get the rest")
    text = "" if kind.lower().startswith(_BINARY) else _text(data, kind, ends=not (cut or answer.broken))
    if data and (not text or "\0" in text):
        sort = kind.partition(";")[0].strip() or "binary data"
        whole = "" if cut or answer.broken else f", {len(data)} bytes"
        return "", [f"the body is no text ({sort}{whole})", *notes]
    return text, notes


def _plain(answer: Answer) -> tuple[bytes | None, bool]:
    """The body, unpacked as far as it is shown, and whether there is more; None if it cannot be unpacked."""
    packing = _header(answer, "content-encoding").lower().strip()
    if packing in {"", "identity"} or not answer.data:
        return answer.data, answer.cut
    if packing not in _COMPRESSED:
        return None, False
    for window in (_COMPRESSED[packing], -15):  # what calls itself deflate often lacks its header
        unpacking = zlib.decompressobj(window)
        try:
            data = unpacking.decompress(answer.data, ANSWER_BYTES)
        except zlib.error:
            continue
        return data, answer.cut or bool(unpacking.unconsumed_tail)
    return None, False


def _text(data: bytes, kind: str, *, ends: bool) -> str:
    """The text; of a character that the end cuts in two nothing is shown, where more would follow."""
    charset = ""
    for part in kind.split(";")[1:]:
        name, _, value = part.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip("\"'")
    for name, errors in ((charset, "replace"), ("utf-8-sig", "strict"), ("cp1252", "replace")):
        try:
            b"-".decode(name, "replace")  # refuses what is no encoding of text
            return codecs.getincrementaldecoder(name)(errors).decode(data, ends)
        except (LookupError, ValueError):
            continue
    return ""
