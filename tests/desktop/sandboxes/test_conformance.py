"""Every provider keeps to the contract: on this machine, and by their own packages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from legato.desktop import image
from legato.desktop.sandboxes import conformance, providers
from legato.desktop.sandboxes.contract import Sandboxes
from legato.desktop.sandboxes.local import LocalSandboxes
from tests.desktop.sandboxes.conftest import DOUBLES, KEYS


@pytest.fixture(scope="module", params=["local", *DOUBLES])
def subject(request: pytest.FixtureRequest) -> Iterator[conformance.Subject]:
    """A sandbox that the rules share."""
    name = request.param
    with ExitStack() as stack:
        sandboxes: Sandboxes
        if name == "local":
            sandboxes = LocalSandboxes()
        else:
            double = stack.enter_context(DOUBLES[name](KEYS[name]))
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for variable, value in double.environment().items():
                patch.setenv(variable, value)
            double.images.add(image.plain_name())
            sandboxes = providers.connect(name)
        stack.callback(sandboxes.close)
        sandboxes.check()
        yield stack.enter_context(conformance.subject(sandboxes))


@pytest.mark.parametrize("rule", conformance.RULES, ids=conformance.name)
def test_provider_keeps_to_the_contract(
    subject: conformance.Subject, rule: conformance.Rule
) -> None:
    rule(subject)
