from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.errors import SampleError
from legato.rl.images import ImageSpec
from legato.rl.manifest import Manifest
from legato.rl.record import RunDir
from legato.rl.row import Row
from legato.rl.samples import Vision, read_samples, samples_from, screenshots
from legato.rl.types import Rollout, Status
from tests.rl.factories import IMAGE_ID, IMAGE_TOKENS, make_group, make_rollout

VISION = Vision(
    IMAGE_ID, ImageSpec(patch_size=8, merge_size=2, min_pixels=16 * 16, max_pixels=64 * 64)
)


@st.composite
def a_group(draw: st.DrawFn) -> list[Rollout]:
    rollouts = []
    for attempt in range(draw(st.integers(1, 4))):
        steps = draw(st.integers(0, 7))
        status = draw(st.sampled_from(list(Status)))
        rollouts.append(
            make_rollout(
                steps=steps,
                attempt=attempt,
                status=status,
                reward=draw(st.sampled_from([0.0, 0.5, 1.0])),
                breaks=draw(st.sets(st.integers(1, 7))),
                seed=draw(st.integers(0, 1000)),
                versions=draw(st.sampled_from([("9",), ("9", "10"), ("9", "9", "10")])),
            )
        )
    return rollouts


def trained(rows: list[Row]) -> list[tuple[str, int, float, float]]:
    """Every trained token with its logprob and advantage, in order."""
    out = []
    for row in rows:
        assert row.logprobs is not None
        assert len(row.response_ids) == len(row.loss_mask) == len(row.logprobs)
        for token, keep, logprob in zip(row.response_ids, row.loss_mask, row.logprobs, strict=True):
            if keep:
                out.append((row.rollout_id, token, logprob, row.advantage))
            else:
                assert logprob == 0.0
    return out


@settings(deadline=None)
@given(a_group())
def test_merged_and_per_step_rows_train_the_same(rollouts: list[Rollout]) -> None:
    merged = samples_from(rollouts, merged=True, vision=VISION)
    per_step = samples_from(rollouts, merged=False, vision=VISION)
    assert trained(merged) == trained(per_step)
    kept = [r for r in rollouts if r.status in (Status.OK, Status.TRUNCATED)]
    sampled = [t for r in kept for s in r.steps for t in s.generation.token_ids or ()]
    assert [token for _, token, _, _ in trained(merged)] == sampled


@settings(deadline=None)
@given(a_group())
def test_every_trained_token_sees_the_prompt_it_was_sampled_after(rollouts: list[Rollout]) -> None:
    by_id = {r.rollout_id: r for r in rollouts}
    for row in samples_from(rollouts, merged=True, vision=VISION):
        for turn in row.turns:
            generation = by_id[row.rollout_id].steps[turn.step].generation
            assert row.prompt_ids + row.response_ids[: turn.start] == generation.prompt_ids
            assert row.response_ids[turn.start : turn.stop] == generation.token_ids
            assert set(row.loss_mask[turn.start : turn.stop]) <= {1}


@settings(deadline=None)
@given(a_group())
def test_rows_split_only_where_the_prefix_breaks(rollouts: list[Rollout]) -> None:
    for rollout in rollouts:
        firsts = [
            row.first_step
            for row in samples_from([rollout], merged=True)
            if row.rollout_id == rollout.rollout_id
        ]
        expected = []
        before: tuple[int, ...] | None = None
        for number, step in enumerate(rollout.steps):
            ids, reply = step.generation.prompt_ids, step.generation.token_ids
            assert ids is not None
            assert reply is not None
            if before is None or ids[: len(before)] != before:
                expected.append(number)
            before = ids + reply
        if rollout.status in (Status.OK, Status.TRUNCATED):
            assert firsts == expected
        else:
            assert firsts == []


def test_ten_append_only_steps_are_one_merged_row() -> None:
    rollout = make_rollout(steps=10)
    (row,) = samples_from([rollout])
    assert (row.first_step, row.last_step) == (0, 9)
    assert len(row.images) == 10
    assert row.n_prompt_images == 1
    assert len(samples_from([rollout], merged=False)) == 10


def test_rows_from_disk_equal_rows_from_memory(tmp_path: Path) -> None:
    rollouts = [*make_group([0.0, 1.0, 0.5], breaks={2}), make_rollout(group_id="g1")]
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        for rollout in rollouts:
            run.append(rollout)
        for merged in (True, False):
            assert list(read_samples(run, merged=merged)) == samples_from(rollouts, merged=merged)


def test_images_are_named_in_the_order_of_their_placeholders() -> None:
    rollout = make_rollout(steps=4, breaks={2})
    shown = [step.prompt.images[-1].sha256 for step in rollout.steps]
    rows = samples_from([rollout], vision=VISION)
    assert [[image.sha256 for image in row.images] for row in rows] == [shown[:2], shown[2:]]
    assert screenshots([rollout]).keys() == set(shown)


def test_an_image_exchanged_under_equal_ids_splits_the_row() -> None:
    rollout = make_rollout(steps=2)
    second = rollout.steps[1]
    messages = list(second.prompt.messages)
    other = make_rollout(steps=1, seed=9).steps[0].prompt.messages[1]
    messages[1] = other
    second.prompt = replace(second.prompt, messages=tuple(messages))
    assert len(samples_from([rollout])) == 2


def test_expanding_repeats_each_placeholder() -> None:
    (row,) = samples_from([make_rollout(steps=3)])
    expanded = row.expanded(IMAGE_ID)
    assert expanded.prompt_ids.count(IMAGE_ID) == IMAGE_TOKENS
    assert expanded.response_ids.count(IMAGE_ID) == 2 * IMAGE_TOKENS
    assert len(expanded.prompt_ids) == len(row.prompt_ids) + IMAGE_TOKENS - 1
    assert expanded.logprobs is not None
    assert len(expanded.response_ids) == len(expanded.loss_mask) == len(expanded.logprobs)
    kept = [t for t, m in zip(expanded.response_ids, expanded.loss_mask, strict=True) if m]
    assert kept == [t for t, m in zip(row.response_ids, row.loss_mask, strict=True) if m]
    without = [t for t in expanded.response_ids if t != IMAGE_ID]
    assert without == [t for t in row.response_ids if t != IMAGE_ID]


@pytest.mark.parametrize(
    ("versions", "lowest", "highest"),
    [
        (("9", "10", "9"), "9", "10"),
        (("step-41",), "step-41", "step-41"),
        (("step-9", "step-10"), "step-9", "step-10"),
    ],
)
def test_versions_of_a_row(versions: tuple[str, ...], lowest: str, highest: str) -> None:
    (row,) = samples_from([make_rollout(versions=versions)])
    assert (row.policy_version_min, row.policy_version_max) == (lowest, highest)
    assert tuple(turn.version for turn in row.turns)[: len(versions)] == versions


def test_a_version_that_changed_within_a_reply_counts() -> None:
    rollout = make_rollout(steps=1, versions=("41",))
    change(rollout, version_last="42")
    (row,) = samples_from([rollout])
    assert (row.policy_version_min, row.policy_version_max) == ("41", "42")


def test_without_token_ids_rows_are_text_and_cannot_be_merged() -> None:
    rollout = make_rollout(steps=2, ids=False)
    rows = samples_from([rollout], merged=False)
    for row, step in zip(rows, rollout.steps, strict=True):
        assert not row.has_ids
        assert row.response_ids == ()
        assert row.turns[0].text == step.generation.text
        assert row.turns[0].tokens == step.generation.tokens
        assert row.logprobs == step.generation.logprobs
    with pytest.raises(SampleError, match=r"g0/0, step 0: no token ids.*rows per step"):
        samples_from([rollout], merged=True)


def test_without_logprobs_a_row_says_so() -> None:
    (row,) = samples_from([make_rollout(logprobs=False)])
    assert row.logprobs is None
    assert sum(row.loss_mask) > 0


def change(rollout: Rollout, step: int = -1, **fields: object) -> Rollout:
    target = rollout.steps[step]
    target.generation = replace(target.generation, **fields)  # type: ignore[arg-type]
    return rollout


def with_first_logprob(value: float) -> Callable[[Rollout], Rollout]:
    def alter(rollout: Rollout) -> Rollout:
        logprobs = rollout.steps[-1].generation.logprobs
        assert logprobs is not None
        return change(rollout, logprobs=(value, *logprobs[1:]))

    return alter


def sampled_placeholder(rollout: Rollout) -> Rollout:
    ids = rollout.steps[-1].generation.token_ids
    assert ids is not None
    return change(rollout, token_ids=(IMAGE_ID, *ids[1:]))


def lost_placeholder(rollout: Rollout) -> Rollout:
    ids = rollout.steps[-1].generation.prompt_ids
    assert ids is not None
    last = len(ids) - 1 - ids[::-1].index(IMAGE_ID)
    return change(rollout, prompt_ids=(*ids[:last], 5, *ids[last + 1 :]))


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (with_first_logprob(float("nan")), "not a logprob"),
        (with_first_logprob(float("-inf")), "not a logprob"),
        (with_first_logprob(0.1), "not a logprob"),
        (lambda r: change(r, logprobs=(-0.1,) * 99), "99 logprobs for"),
        (lambda r: change(r, logprobs=None), "no logprobs, but other steps"),
        (lambda r: change(r, token_ids=(-1,), logprobs=(-0.1,)), "negative"),
        (lambda r: change(r, image_tokens=(IMAGE_TOKENS,)), "1 image token counts for 3 images"),
        (lambda r: change(r, image_tokens=(9, 9, 9), prompt_tokens=None), "took 9 tokens"),
        (lambda r: change(r, prompt_tokens=1), "the server counted 1 prompt tokens"),
        (sampled_placeholder, "sampled the image placeholder"),
        (lost_placeholder, "image placeholders"),
    ],
)
def test_a_step_that_does_not_add_up_is_named(
    alter: Callable[[Rollout], Rollout], message: str
) -> None:
    rollout = alter(make_rollout(steps=3))
    with pytest.raises(SampleError, match=rf"rollout g0/0, step \d: .*{message}"):
        samples_from([rollout], vision=VISION)


def test_rounding_just_above_certainty_is_no_error() -> None:
    rows = samples_from([with_first_logprob(1e-7)(make_rollout())])
    assert [row.reward for row in rows] == [1.0]


def test_advantages_of_rows_are_those_of_their_groups() -> None:
    rollouts = [
        *make_group([0.0, 1.0]),
        make_rollout(attempt=2, status=Status.SURPLUS, reward=1.0),
        make_rollout(group_id="alone", reward=1.0),
    ]
    rows = samples_from(rollouts)
    assert [row.rollout_id for row in rows] == ["g0/0", "g0/1", "alone/0"]
    assert rows[0].advantage == pytest.approx(-(0.5**0.5), abs=1e-5)
    assert rows[1].advantage == -rows[0].advantage
    assert rows[2].advantage == 0.0
