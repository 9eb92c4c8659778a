"""Stand-ins for packages that OSWorld imports at once and a few of its metrics use.

Whatever is asked of a stand-in is noted as a fault and raises: a metric that needs the package
never comes to a score without it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any, NoReturn

from legato.desktop.osworld.worker.faults import LEDGER

OPTIONAL: dict[str, tuple[str, ...]] = {
    "easyocr": (),
    "librosa": (),
    "borb": ("pdf",),
    "pydrive": ("auth", "drive"),
    "acoustid": (),
    "fastdtw": (),
    "PyPDF2": (),
    "formulas": (),
}
"""Modules that may be missing, with the submodules that OSWorld imports of each."""


def install() -> list[str]:
    """Stand in for what is not installed; returns the names."""
    absent = [name for name in OPTIONAL if importlib.util.find_spec(name) is None]
    for name in absent:
        parent = _module(name, name)
        for part in OPTIONAL[name]:
            setattr(parent, part, _module(f"{name}.{part}", name))
    return absent


def _module(name: str, package: str) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__path__ = []

    def attribute(wanted: str) -> Any:
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        return _missing(wanted, package)

    module.__getattr__ = attribute  # type: ignore[method-assign]
    sys.modules[name] = module
    return module


def _missing(name: str, package: str) -> type:
    """A class, so that it can stand in annotations and be inherited from; using it raises."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        what = f"the package {package!r} is not installed in OSWorld's environment"
        LEDGER.note(what)
        raise ImportError(what)

    meta = type("Missing", (type,), {"__getattr__": lambda cls, attr: refuse(), "__call__": refuse})
    return meta(name, (), {})  # type: ignore[no-any-return]
