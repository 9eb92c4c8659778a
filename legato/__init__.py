"""legato: graded desktop rollouts for computer-use RL."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("legatolabs")
except PackageNotFoundError:  # a source tree on the path, not installed
    __version__ = "0+unknown"
