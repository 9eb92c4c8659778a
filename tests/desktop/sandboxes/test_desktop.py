"""A desktop in a sandbox: what is as on every other, and what only a provider can do to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from legato.desktop.actions import Click, Done, Type
from legato.desktop.contract import DesktopOptions, Machine, Score
from legato.desktop.sandboxes import providers
from legato.desktop.sandboxes.desktop import SandboxDesktop
from legato.errors import ConfigError, EnvFailure
from tests.desktop.sandboxes.double import Fault, Provider

pytestmark = pytest.mark.desktop

CREATE = {"daytona": "/api/sandbox", "e2b": "/api/v2/sandboxes"}
QUOTA = {
    "daytona": (403, "Total CPU quota exceeded. Maximum allowed: 10"),
    "e2b": (429, "you have reached the maximum number of concurrent E2B sandboxes (20)"),
}
PATIENCE_S = 60.0


class Note:
    """A task that anyone can set up and grade: type a word into an editor's file."""

    task_id = domain = instruction = "note"
    config: dict[str, Any] = {}  # noqa: RUF012 - a protocol's attribute
    lockdown = True

    def __init__(self) -> None:
        self.machine: Machine | None = None

    def setup(self, machine: Machine) -> None:
        self.machine = machine
        machine.write_file("/home/user/note.txt", b"")

    def grade(self, machine: Machine) -> Score:
        return Score(float(machine.list_files("/home/user/Documents") == []))


@contextmanager
def desktop(name: str, **extra: Any) -> Iterator[SandboxDesktop]:
    options = DesktopOptions(width=640, height=480, extra=extra)
    made: SandboxDesktop = providers.make_desktop(name, options, 0)
    try:
        yield made
    finally:
        made.close()


def await_(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def test_an_episode_locked_down_and_the_sandbox_kept_for_the_next(
    name: str, provider: Provider
) -> None:
    with desktop(name, episodes=2) as made:
        task = Note()
        made.reset(task)
        assert made.wait_after_reset().reason == "idle"
        first = list(provider.made)
        assert made.act(Click(x=300, y=200)).ready.reason == "idle"
        made.act(Type(text="x"))
        made.act(Done())
        made.wait_before_eval()
        assert made.evaluate().reward == 1.0
        assert task.machine is not None
        assert task.machine.run(["id", "-u"]).stdout == "1000\n"
        task.machine.write_file("/home/user/Documents/left", b"over")

        made.reset(Note())
        assert list(provider.made) == first
        assert made.evaluate().reward == 1.0  # nothing is left of the last episode
        made.prepare()
        made.check_health()
        assert len(provider.made) == 1
        assert list(provider.made) != first, "a sandbox is replaced after its episodes"
    assert provider.made == {}


def test_what_the_provider_is_asked_for(name: str, provider: Provider) -> None:
    with desktop(name, life_s=120) as made:
        made.prepare()
        (sandbox,) = provider.made.values()
    asked = sandbox.asked
    if name == "daytona":
        assert asked["networkBlockAll"] is True
        assert asked["public"] is False
        assert (asked["autoStopInterval"], asked["autoDeleteInterval"]) == (2, 0)
    else:
        assert asked["allow_internet_access"] is False
        assert asked["network"]["allowPublicTraffic"] is False
        assert asked["timeout"] == 120


def test_a_busy_provider_is_asked_again(name: str, provider: Provider) -> None:
    for status in (429, 503, 500):
        provider.fail(Fault("POST", CREATE[name], status, "try later"))
    provider.start_polls = 2
    with desktop(name) as made:
        made.prepare()
        made.check_health()
    asked = [path for method, path in provider.requests if method == "POST"]
    assert asked.count(CREATE[name]) == 4


def test_a_provider_that_stays_busy_is_given_up_at_the_deadline(
    name: str, provider: Provider
) -> None:
    provider.fail(Fault("POST", CREATE[name], 429, "slow down", times=1000))
    with (
        desktop(name, create_timeout=3) as made,
        pytest.raises(EnvFailure, match=r"not to be had in time.*slow down"),
    ):
        made.prepare()


def test_a_kill_ends_the_wait_for_a_busy_provider(name: str, provider: Provider) -> None:
    provider.fail(Fault("POST", CREATE[name], 429, "slow down", times=1000))
    with desktop(name, create_timeout=600) as made:
        failed: list[Exception] = []

        def prepare() -> None:
            try:
                made.prepare()
            except EnvFailure as e:
                failed.append(e)

        preparing = threading.Thread(target=prepare)
        preparing.start()
        await_(lambda: ("POST", CREATE[name]) in provider.requests)
        made.kill()
        preparing.join(PATIENCE_S)
        assert "not wanted any more" in str(failed[0])


def test_a_full_quota_is_told_in_plain_words(name: str, provider: Provider) -> None:
    provider.fail(Fault("POST", CREATE[name], *QUOTA[name], times=1000))
    with (
        desktop(name) as made,
        pytest.raises(EnvFailure, match=r"limits allow no more: end sandboxes") as failed,
    ):
        made.prepare()
    assert not failed.value.transient


def test_only_so_many_are_created_at_the_same_time(name: str, provider: Provider) -> None:
    provider.start_polls = 2
    options = DesktopOptions(width=320, height=240, extra={"creating": 1})
    both = [providers.make_desktop(name, options, slot) for slot in range(2)]
    preparing = [threading.Thread(target=each.prepare) for each in both]
    try:
        for thread in preparing:
            thread.start()
        for thread in preparing:
            thread.join(PATIENCE_S)
        assert len(provider.made) == 2
        assert provider.most_creating == 1
    finally:
        for each in both:
            each.close()


def test_a_sandbox_that_vanishes_fails_the_call_and_another_takes_its_place(
    name: str, provider: Provider
) -> None:
    with desktop(name) as made:
        made.reset(Note())
        (gone,) = provider.made
        provider.vanish(gone)
        with pytest.raises(EnvFailure):
            made.act(Click(x=10, y=10))
        made.prepare()
        made.check_health()
        assert list(provider.made) != [gone]


def test_a_cut_stream_fails_the_call_and_another_sandbox_takes_its_place(
    name: str, provider: Provider
) -> None:
    with desktop(name) as made:
        made.reset(Note())
        first = list(provider.made)
        provider.cut_streams()
        with pytest.raises(EnvFailure):
            made.act(Click(x=10, y=10))
        assert provider.made == {}, "the sandbox behind it is ended"
        made.prepare()
        made.check_health()
        assert list(provider.made) != first


def test_a_kill_from_elsewhere_ends_a_call_and_the_sandbox(name: str, provider: Provider) -> None:
    with desktop(name) as made:
        made.reset(Note())
        made.kill()
        with pytest.raises(EnvFailure):
            made.act(Click(x=10, y=10))
    assert provider.made == {}


def test_sandboxes_are_renewed_while_their_driver_lives(
    name: str, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("legato.desktop.sandboxes.fleet.RENEWALS", 600)
    with desktop(name, life_s=120) as made:
        made.prepare()
        (sandbox,) = provider.made.values()
        await_(lambda: sandbox.renewed > 1)


def test_an_expired_key_is_a_config_error_before_anything_starts(
    name: str, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = providers.KEYS[name]
    monkeypatch.setenv(key, "expired")
    with pytest.raises(ConfigError, match=f"Check {key}"):
        providers.make_desktop(name, DesktopOptions(), 0)
    monkeypatch.delenv(key)
    with pytest.raises(ConfigError, match=f"{key} is not set"):
        providers.make_desktop(name, DesktopOptions(), 0)


def test_a_key_that_expires_later_is_told_as_such(name: str, provider: Provider) -> None:
    with desktop(name) as made:
        provider.key = "another"
        with pytest.raises(EnvFailure, match="may be wrong or expired"):
            made.prepare()


def test_a_missing_image_names_the_command_that_makes_it(name: str, provider: Provider) -> None:
    provider.images.clear()
    with pytest.raises(ConfigError, match=f"python -m legato.rl sandbox-image {name}"):
        providers.make_desktop(name, DesktopOptions(), 0)


def test_an_unknown_option_is_named(name: str, provider: Provider) -> None:
    with pytest.raises(ConfigError, match="api_key"):
        providers.make_desktop(name, DesktopOptions(extra={"api_key": "x"}), 0)
