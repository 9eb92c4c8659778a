"""Scripts that run inside an OSWorld guest, sent to it whole with every call.

They know nothing of each other or of legato: the guest has its own Python (3.8 or later), its
standard library and python-xlib, which OSWorld's own server needs.
"""
