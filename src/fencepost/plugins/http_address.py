"""Where a URL of the model leads, and whether a person should be asked first.

Rules:
    1. A URL is read once, here, and what was read is what is connected to. What can be read in two ways is refused.
    2. Private is every address that is not for the whole internet: loopback, private and link-local networks, the
       metadata of clouds, multicast, also inside an IPv6 address.
    3. Who is asked is decided by the text of the URL alone: a private address in any notation, or a name that says by
       itself that it is one of this machine or its network (`localhost`, a name without a dot, `.internal`, and what
       the configuration adds). So nobody on the way can change the answer between asking and connecting.
    4. Any other name that turns out to lead to a private address is not connected to: nobody was asked about that.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import re
import socket
from collections.abc import Sequence
from typing import TypeAlias
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

SUFFIXES = (
    "localhost",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "localdomain",
    "home.arpa",
)
"""Last parts of names that are kept for, or usual in, private networks."""

_METADATA = frozenset({ipaddress.ip_address("168.63.129.16")})
"""Services of clouds for their own machines whose addresses look like public ones."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_PORTS = {"http": 80, "https": 443}
_SAFE = "/%:@!$&'()*+,;=~?[]-._"


class BadUrl(ValueError):  # noqa: N818 - an answer on its way out, not a fault
    """No request can be made of this URL; the text is a sentence for the model."""


class Target(msgspec.Struct, frozen=True):
    """What a URL says.

    Attributes:
        scheme: `http` or `https`.
        host: a name in lower case, or an address, without brackets.
        port: to connect to.
        path: with the query, as it is sent.
        address: the host, where it is an address in some notation.
    """

    scheme: str
    host: str
    port: int
    path: str
    address: Address | None

    @property
    def authority(self) -> str:
        """As it stands in a `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """As people may read it: without path and query, which may hold secrets."""
        return f"{self.scheme}://{self.authority}"


def target_of(url: str) -> Target:
    """What `url` says (rule 1).

    Raises:
        BadUrl: it can be read in two ways, or in none.
    """
    if any(character <= " " or character in "\\\x7f" for character in url):
        raise BadUrl("The URL holds white space, a control character or a backslash; write it percent-encoded.")
    try:
        parts = urlsplit(url)
        port, name = parts.port, parts.hostname
    except ValueError as error:
        raise BadUrl(f"The URL cannot be read: {error}.") from None
    if parts.scheme not in _PORTS or not name:
        raise BadUrl("The URL has to begin with http:// or https:// and a host.")
    if "@" in parts.netloc:
        raise BadUrl("The URL holds a user or a password; send them in an Authorization header.")
    if port == 0:
        raise BadUrl("The URL has the port 0.")
    host, address = _host(name)
    return Target(parts.scheme, host, port or _PORTS[parts.scheme], _path(parts), address)


def _path(parts: SplitResult) -> str:
    query = f"?{quote(parts.query, safe=_SAFE)}" if parts.query else ""
    try:
        return (quote(parts.path, safe=_SAFE) or "/") + query
    except UnicodeEncodeError:
        raise BadUrl("The URL holds half of a surrogate pair.") from None


def _host(name: str) -> tuple[str, Address | None]:
    if ":" in name:
        try:
            address: Address = ipaddress.IPv6Address(name)
        except ValueError:
            raise BadUrl(f"{name} is not an IPv6 address.") from None
        if "%" in name:
            raise BadUrl("An address with a zone cannot be asked for.")
        return str(address), address
    try:
        plain = name.encode("ascii" if name.isascii() else "idna").decode().lower().removesuffix(".")
    except UnicodeError:
        raise BadUrl("The name of the host is not a valid international name.") from None
    try:
        address = ipaddress.IPv4Address(socket.inet_aton(plain))  # also 127.1, 0x7f000001 and 2130706433
    except OSError:
        if len(plain) > 253 or not _NAME.fullmatch(plain):
            raise BadUrl(f"{plain!r} is no name of a host.") from None
        return plain, None
    return str(address), address


# --- private ----------------------------------------------------------------------------------------------------


def is_private(address: Address) -> bool:
    """Whether an address is not for the whole internet (rule 2)."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_private(address.ipv4_mapped)
        if address in _NAT64:
            return is_private(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        inside = address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inside is not None and is_private(inside):
            return True
    return not address.is_global or address.is_multicast or address.is_reserved or address in _METADATA


def warning(target: Target, names: Sequence[str] = ()) -> str | None:
    """Why a person should be asked about a request, as half a sentence; None if there is no reason (rule 3).

    Args:
        target: where it goes.
        names: patterns of more names that are private.
    """
    if target.address is not None:
        return f"{target.host} is a private address" if is_private(target.address) else None
    host = target.host
    if "." not in host or any(host.endswith(f".{suffix}") for suffix in SUFFIXES):
        return f"{host} is a name of this machine or its network"
    if any(fnmatch.fnmatchcase(host, pattern.lower()) for pattern in names):
        return f"{host} is configured as private"
    return None
