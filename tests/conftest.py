"""What comes before everything that imports the shared parts of the tests."""

import signal

import pytest

pytest.register_assert_rewrite(
    "tests.crash.laws",
    "tests.stores.contract",
    "tests.stores.contract_owning",
    "tests.stores.contract_upkeep",
    "tests.stores.powercut",
)


def pytest_configure() -> None:
    """A background shell has what it starts ignore signals; what the tests start should hear them all the same."""
    for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)
