"""The program that owns one OSWorld machine; runs in OSWorld's environment, not in ours.

``python -m legato.desktop.osworld.worker FD`` talks over the socket ``FD`` in the frames of
:mod:`legato.desktop.guest.wire`. It imports nothing of legato that needs more than the standard
library.
"""
