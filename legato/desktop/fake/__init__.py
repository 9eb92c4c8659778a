"""A desktop drawn in this process: real widgets, real verdicts, faults on demand.

For wiring up a trainer before any desktops exist, and for tests and load benches. Choose it with
``--backend fake``; it runs any tasks file, and :func:`fake_tasks` makes tasks of its own.
"""

from legato.desktop.fake.desktop import FakeDesktop, make_desktop
from legato.desktop.fake.faults import FakeOptions, Fault
from legato.desktop.fake.generate import KINDS, fake_tasks
from legato.desktop.fake.solve import reference_actions

__all__ = [
    "KINDS",
    "FakeDesktop",
    "FakeOptions",
    "Fault",
    "fake_tasks",
    "make_desktop",
    "reference_actions",
]
