"""What several crash tests look at, made once."""

import pytest

from fencepost.plugins.checkpoint import Checkpoint
from tests.crash.cases import Case, case_of


@pytest.fixture(scope="session")
def gated(tmp_path_factory) -> Case:
    """The scenario under its gates, killed everywhere, in the middle of writes too."""
    return case_of(tmp_path_factory.mktemp("gated"), Checkpoint(), torn=True)
