"""OSWorld's own machine, set-up and evaluators, in a process of their own.

The backend is :mod:`.desktop`. Nothing is imported here: OSWorld's process, which has none of our
packages, comes through this module too.
"""
