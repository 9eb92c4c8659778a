from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.rl.advantage import Outcome, advantages, group_advantages
from legato.rl.types import VERDICTS, Status

rewards = st.floats(0, 1, allow_nan=False)
groups = st.lists(rewards, min_size=2, max_size=12)


def outcome(
    attempt: int, reward: float | None, status: Status = Status.OK, group: str = "g"
) -> Outcome:
    return Outcome(f"{group}/{attempt}", group, status, reward)


@given(groups)
def test_advantages_are_centred_and_keep_the_order(values: list[float]) -> None:
    result = group_advantages(dict(enumerate(values)))
    assert sum(result.values()) == pytest.approx(0, abs=1e-6)
    for i, a in enumerate(values):
        for j, b in enumerate(values):
            if a < b:
                assert result[i] <= result[j]


@given(groups)
def test_scaled_to_the_sample_deviation(values: list[float]) -> None:
    spread = statistics.stdev(values)
    result = list(group_advantages(dict(enumerate(values))).values())
    if min(values) == max(values):
        assert result == [0.0] * len(values)
    else:
        assert statistics.stdev(result) == pytest.approx(spread / (spread + 1e-6), rel=1e-6)


@given(st.lists(rewards, max_size=5), st.integers(2, 6))
def test_too_few_verdicts_have_no_advantage(values: list[float], min_group: int) -> None:
    result = group_advantages(dict(enumerate(values)), min_group=min_group)
    assert len(result) == len(values)
    if len(values) < min_group:
        assert not any(result.values())


@given(
    groups,
    st.lists(st.tuples(st.sampled_from([s for s in Status if s not in VERDICTS]), rewards)),
)
def test_only_verdicts_of_the_group_count(
    values: list[float], others: list[tuple[Status, float]]
) -> None:
    kept = [outcome(i, r, Status.OK if i % 2 else Status.TRUNCATED) for i, r in enumerate(values)]
    rest = [outcome(100 + i, r, status) for i, (status, r) in enumerate(others)]
    elsewhere = [outcome(i, r, group="other") for i, r in enumerate((0.0, 1.0))]
    result = advantages([*rest, *kept, *elsewhere])
    expected = group_advantages({f"g/{i}": r for i, r in enumerate(values)})
    assert {k: v for k, v in result.items() if k.startswith("g/")} == expected
    assert result["other/0"] == -result["other/1"] != 0


def test_a_failure_is_not_a_reward_of_zero() -> None:
    lost = outcome(2, None, Status.ERROR)
    assert advantages([outcome(0, 1.0), outcome(1, 1.0), lost]) == {"g/0": 0.0, "g/1": 0.0}


def test_a_verdict_without_a_reward_is_refused() -> None:
    with pytest.raises(ValueError, match="without a reward"):
        advantages([outcome(0, None)])


def test_a_rollout_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        advantages([outcome(0, 1.0), outcome(0, 0.0)])


def test_equals_verls_grpo() -> None:
    import torch
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    rng = np.random.default_rng(0)
    cases = [rng.random(n).round(2) for n in (2, 3, 4, 8, 16)]
    cases += [rng.integers(0, 2, 8).astype(float), np.ones(4), np.array([0.0, 1e-3])]
    for number, values in enumerate(cases):
        ours = group_advantages(dict(enumerate(values.tolist())))
        scores = torch.tensor(values, dtype=torch.float32).unsqueeze(-1)
        theirs, _ = compute_grpo_outcome_advantage(
            scores, torch.ones_like(scores), np.array([number] * len(values), dtype=object)
        )
        assert list(ours.values()) == pytest.approx(theirs[:, 0].tolist(), abs=1e-3)
