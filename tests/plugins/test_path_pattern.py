"""Paths as rules name them: to the letter for what is allowed, with suspicion for what is refused."""

import pytest

from fencepost.plugins.path_pattern import PathPattern


@pytest.fixture
def cwd(tmp_path):
    """A working directory with a link out of it, and a link beside it that leads to it."""
    cwd = tmp_path / "cwd"
    (cwd / "src" / "deep").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (cwd / "link").symlink_to(tmp_path / "out")
    (tmp_path / "alias").symlink_to(cwd)
    return cwd


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("src/**", "src", True),
        ("src/**", "src/a", True),
        ("src/**", "src/deep/b.py", True),
        ("src/**", "src/deep/../../c", False),
        ("src/**", "srcs/a", False),
        ("src/**", "./src/./a", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/deep/a.py", True),
        ("src/*", "src/.hidden", True),
        ("src", "src/a", False),
        ("**", "anything/at/all", True),
        ("**", "..", False),
        ("**/.env", "a/b/.env", True),
        ("**/.env", ".env", True),
        ("/**", "/etc/passwd", True),
        ("/**", "/", True),
        ("/usr/**", "/usr/lib/x", True),
        ("/usr/**", "/usrx", False),
        ("a.b", "axb", False),
        ("~/x/**", "~/x/y", True),
        ("~/x/**", "x/y", False),
    ],
)
def test_what_a_pattern_names(cwd, monkeypatch, pattern, path, matches):
    monkeypatch.setenv("HOME", str(cwd.parent / "out"))
    assert PathPattern.parse(pattern).allows(path, cwd) is matches
    assert PathPattern.parse(pattern).refuses(path, cwd) is matches


def test_a_link_leads_nothing_into_what_is_allowed(cwd):
    assert not PathPattern.parse("**").allows("link/x", cwd)
    assert not PathPattern.parse("link/**").allows("link/x", cwd), "the model may have made that link"
    assert PathPattern.parse(str(cwd.parent / "out" / "**")).allows("link/x", cwd)
    assert PathPattern.parse("src/**").allows("src/a", cwd.parent / "alias")
    assert PathPattern.parse("src/**").allows(str(cwd / "src" / "a"), cwd.parent / "alias")


def test_a_link_leads_nothing_out_of_what_is_refused(cwd):
    out = str(cwd.parent / "out")
    for pattern, path in [
        ("link/**", "link/x"),
        ("link/**", f"{out}/x"),
        (f"{out}/**", "link/x"),
        ("src/**", str(cwd.parent / "alias" / "src" / "a")),
        (f"{cwd.parent}/alias/src/**", "src/a"),
        ("**", "link/x"),
    ]:
        assert PathPattern.parse(pattern).refuses(path, cwd), (pattern, path)
    assert PathPattern.parse("src/**").refuses("src/a", cwd.parent / "alias")


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800"])
def test_a_path_that_no_file_can_have_is_the_tools_business(cwd, path):
    assert not PathPattern.parse("/**").allows(path, cwd)
    assert not PathPattern.parse("/**").refuses(path, cwd)


@pytest.mark.parametrize("text", ["", "a/../b", "..", "a**", "src/**.py", "a\nb"])
def test_what_is_no_pattern(text):
    with pytest.raises(ValueError, match=r"\w"):
        PathPattern.parse(text)
