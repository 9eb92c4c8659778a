"""A container engine keeps to the contract of sandbox providers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from legato.desktop.docker.options import DockerOptions
from legato.desktop.docker.sandboxes import DockerSandboxes
from legato.desktop.sandboxes import conformance
from tests.desktop.docker.engines import DaemonProcess

pytestmark = pytest.mark.desktop


@pytest.fixture
def subject(daemon: DaemonProcess) -> Iterator[conformance.Subject]:
    sandboxes = DockerSandboxes(DockerOptions(engine=daemon.address))
    sandboxes.check()
    with conformance.subject(sandboxes) as made:
        yield made
    sandboxes.close()


@pytest.mark.parametrize("rule", conformance.RULES, ids=conformance.name)
def test_provider_keeps_to_the_contract(
    subject: conformance.Subject, rule: conformance.Rule
) -> None:
    rule(subject)
