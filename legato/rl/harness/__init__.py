"""How screenshots, history and instruction become a prompt, and a reply becomes actions."""

from legato.rl.harness.registry import harness_names, make_harness

__all__ = ["harness_names", "make_harness"]
