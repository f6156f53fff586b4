"""Which URLs are asked about, which are refused, and that no notation of an address hides where it leads."""

from __future__ import annotations

import ipaddress

import pytest

from fencepost.plugins.http_address import BadUrl, is_private, target_of, warning


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://0/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://[64:ff9b::10.0.0.1]/",
        "http://[2002:7f00:1::]/",
        "http://[fd00:ec2::254]/",
        "http://[fe80::1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://168.63.129.16/",
        "http://100.100.100.200/",
        "http://10.1.2.3:8080/",
        "http://172.16.0.1/",
        "http://192.168.1.1/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://\uff11\uff12\uff17.0.0.1/",
        "http://127.0.0.1./",
        "http://localhost/",
        "http://LOCALHOST:80/",
        "http://localhost./",
        "http://app.localhost/",
        "http://metadata.google.internal/",
        "http://printer.local/",
        "http://nas/",
        "http://router.home.arpa/",
    ],
)
def test_a_private_place_is_asked_about_in_every_notation(url: str) -> None:
    assert warning(target_of(url)) is not None


@pytest.mark.parametrize(
    "url",
    ["https://example.org/", "http://8.8.8.8/", "http://[2001:4860:4860::8888]/", "http://[64:ff9b::8.8.8.8]/"],
)
def test_a_public_place_is_not(url: str) -> None:
    assert warning(target_of(url)) is None


def test_names_can_be_configured_as_private() -> None:
    target = target_of("https://git.corp.example/x")
    assert warning(target) is None
    assert warning(target, ["*.Corp.example"]) == "git.corp.example is configured as private"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "//example.org",
        "ftp://example.org/",
        "file:///etc/passwd",
        "http:///x",
        "http://exa mple.org/",
        "http://example.org/\r\nX: y",
        "http://example.org\\@127.0.0.1/",
        "http://user:secret@example.org/",
        "http://@example.org/",
        "http://example.org:0/",
        "http://example.org:99999/",
        "http://example.org:x/",
        "http://%31%32%37.0.0.1/",
        "http://[::1/",
        "http://[fe80::1%25eth0]/",
        "http://-bad-.example/",
        "http://" + "a" * 300 + ".example/",
        "http://example.org/\ud800",
        "http://\ud800.example/",
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(BadUrl) as refused:
        target_of(url)
    assert "secret" not in str(refused.value)
    assert str(refused.value).endswith(".")


def test_a_url_is_read_into_what_is_sent() -> None:
    target = target_of("HTTP://Example.ORG:8080/a b".replace(" ", "%20") + "/ü?q=1&r=ü#part")
    assert (target.scheme, target.host, target.port) == ("http", "example.org", 8080)
    assert target.path == "/a%20b/%C3%BC?q=1&r=%C3%BC"
    assert target.authority == "example.org:8080"
    assert target_of("https://[2001:db8::1]/").authority == "[2001:db8::1]"
    assert target_of("https://bücher.example").host == "xn--bcher-kva.example"
    assert target_of("https://example.org?x=1").path == "/?x=1"


def test_what_is_private_of_the_addresses() -> None:
    assert not is_private(ipaddress.ip_address("1.1.1.1"))
    assert is_private(ipaddress.ip_address("0.0.0.0"))
    assert is_private(ipaddress.ip_address("::"))
    assert is_private(ipaddress.ip_address("ff02::1"))
