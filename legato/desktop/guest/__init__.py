"""The guest program: the one process of ours that runs inside a desktop's machine.

It starts the X session, runs programs, keeps files, relays bytes and cleans up, on request of
the driver. The same program serves every kind of machine (a namespace, a container): it needs
only the system's own Python 3.9+ and its standard library, and speaks over a unix socket or its
standard streams.

The modules here import nothing of legato but each other, so that :mod:`.bundle` can copy them
into a machine as they are. On the driver's side stay :mod:`.bundle`, :mod:`.box` (what a kind of
machine must offer), :mod:`.client` with :mod:`.nearby` and :mod:`.remote`, :mod:`.machine` and
:mod:`.desktop`.
"""
