"""The model server: what is asked of it, and what is believed of its answers."""

from legato.rl.policy.config import KEY_VARIABLE, Api, PolicyConfig, tokenizer_for
from legato.rl.policy.http import HttpPolicy

__all__ = ["KEY_VARIABLE", "Api", "HttpPolicy", "PolicyConfig", "tokenizer_for"]
