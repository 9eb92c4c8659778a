"""The lockdown of a desktop, checked from within: once applied, and again once the desktop runs.

The boundaries of a desktop (its own user without privileges, no network, the app's server and the
verifier outside of it) do not depend on this; the secret that a web app's page holds does, since
any program of the agent's choice could ask for that page. The lockdown closes the known ways from
the GUI to a command line on top of them: what the agent's programs can execute is an allow-list,
the browser is under a policy that it cannot write, and no key, menu or dialog starts a command. A
probe with the rights of the agent's programs tries every step; a single miss, or a step that it
did not report, and the desktop is not handed out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from legato.desktop.contract import Completed
from legato.errors import SandboxError

STEPS = frozenset(
    {
        "no privileges",
        "other programs out of reach",
        "no network",
        "no open ports",
        "no commands",
        "only allowed programs",
        "no commands of the users own",
        "browser policy",
        "office policy",
        "no run dialog",
        "menus start only programs",
    }
)
"""What the probe tries (:mod:`legato.desktop.guest.probe`)."""


def check_lockdown(probe: Completed, outsiders: Iterable[str] = ()) -> None:
    """Raise :class:`~legato.errors.SandboxError` unless every step held.

    ``outsiders`` are programs that were found running outside of the agent's view.
    """
    try:
        found = dict(json.loads(probe.stdout))
    except (ValueError, TypeError):
        said = (probe.stderr or probe.stdout).strip()[-500:]
        raise SandboxError(f"the lockdown's probe did not answer: {said}") from None
    wrong = [f"{step}: {what}" for step, what in sorted(found.items()) if what is not None]
    wrong += [f"{step}: not tried" for step in sorted(STEPS - set(found))]
    wrong += [f"{name} runs with more rights than the agent's" for name in outsiders]
    if wrong:
        raise SandboxError(f"the desktop is not locked down: {'; '.join(wrong)}", transient=False)
