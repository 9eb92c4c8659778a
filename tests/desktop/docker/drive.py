"""Another driver, to be killed: ``drive.py ENGINE``. Says its container's id, answers checks."""

from __future__ import annotations

import sys

from legato.desktop.contract import DesktopOptions
from legato.desktop.docker import make_desktop
from tests.desktop.local.conftest import ScriptedTask


def main() -> None:
    desktop = make_desktop(DesktopOptions(extra={"engine": sys.argv[1]}), 0)
    desktop.reset(ScriptedTask())
    print(desktop._box._id, flush=True)  # type: ignore[union-attr]
    for _ in sys.stdin:
        desktop.check_health()
        print("healthy", flush=True)


if __name__ == "__main__":
    main()
