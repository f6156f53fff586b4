"""Assertions in shared modules explain themselves too. Here, because it comes before whatever imports them."""

import pytest

pytest.register_assert_rewrite(
    "tests.crash.laws",
    "tests.stores.contract",
    "tests.stores.contract_owning",
    "tests.stores.contract_upkeep",
    "tests.stores.powercut",
)
