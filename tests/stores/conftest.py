"""Assertions in the shared suites explain themselves too."""

import pytest

pytest.register_assert_rewrite(
    "tests.stores.contract",
    "tests.stores.contract_owning",
    "tests.stores.contract_upkeep",
    "tests.stores.powercut",
)
