from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rl.harness.transformers_oracle import Oracle, transformers_oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """The real chat templates and image processors."""
    with transformers_oracle() as asked:
        yield asked
