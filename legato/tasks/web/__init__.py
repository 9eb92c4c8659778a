"""Small web apps as tasks: their server and state live outside of the agent's sandbox.

``ops`` and ``server`` run in confined processes too, so this package imports nothing by itself.
"""
