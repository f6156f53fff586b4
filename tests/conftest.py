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
    """Who runs the tests in the background may have them ignore signals; what they start should be told all the same."""
    for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)
