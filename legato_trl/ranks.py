"""Work that only the main process does, in a program that runs as several.

Its outcome reaches every process: the value, or the error, which each of them raises. A process
that was left waiting in a collective for one that had failed would hang until NCCL gives up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch.distributed as dist

T = TypeVar("T")


def world_size() -> int:
    return dist.get_world_size() if _several() else 1


def rank() -> int:
    return dist.get_rank() if _several() else 0


def broadcast(value: Any) -> Any:
    """The main process's ``value``, on every process."""
    if not _several():
        return value
    held = [value]
    dist.broadcast_object_list(held, src=0)
    return held[0]


def on_main(work: Callable[[], T]) -> T:
    """Run ``work`` on the main process; all processes return its result or raise its error."""
    if not _several():
        return work()
    outcome: list[Any] = [_attempt(work) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(outcome, src=0)
    result: T = _settle(outcome[0])
    return result


def scatter_from_main(work: Callable[[], Sequence[T]]) -> T:
    """Run ``work`` on the main process; it gives one item for each process, in order of rank."""
    if not _several():
        return work()[0]
    outcomes: list[Any] | None = None
    if dist.get_rank() == 0:
        done = _attempt(work)
        outcomes = (
            [done] * world_size()
            if isinstance(done, BaseException)
            else [_Done(item) for item in done.value]
        )
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, outcomes, src=0)
    result: T = _settle(mine[0])
    return result


def gather(items: Sequence[T]) -> list[T]:
    """The items of all processes on each of them, in order of rank."""
    if not _several():
        return list(items)
    everyones: list[Any] = [None] * world_size()
    dist.all_gather_object(everyones, list(items))
    return [item for theirs in everyones for item in theirs]


class _Done:
    def __init__(self, value: Any) -> None:
        self.value = value


def _attempt(work: Callable[[], Any]) -> Any:
    try:
        return _Done(work())
    except Exception as e:
        return e


def _settle(outcome: Any) -> Any:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome.value


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
