"""What is missing on this machine is named before a desktop is made."""

import pytest

from legato.desktop import local
from legato.desktop.contract import DesktopOptions
from legato.desktop.local import requirements
from legato.errors import ConfigError


def test_a_missing_program_is_named_by_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    local._check_once.cache_clear()
    monkeypatch.setitem(requirements.PACKAGES, "no-such-program", "no-such-package")
    with pytest.raises(ConfigError, match="apt-get install no-such-package"):
        local.make_desktop(DesktopOptions(), 0)
    monkeypatch.undo()
    local.make_desktop(DesktopOptions(), 0).close()
