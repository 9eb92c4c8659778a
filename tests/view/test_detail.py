from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from legato.rl.manifest import Manifest, read_manifest
from legato.rl.record import RunDir, load_request, read_records
from legato.rl.schema import IMAGE_SCHEME
from legato.rl.tokens import HFTokenizer
from legato.view.detail import rollout_detail, screen_of
from legato.view.gaps import Gap
from legato.view.token_text import TokenText
from tests.rl.factories import make_rollout
from tests.rl.servers import byte_level


def details(path: Path, spelling: TokenText | None = None) -> list[dict[str, Any]]:
    manifest = read_manifest(path)
    return [rollout_detail(path, manifest, r, spelling) for r in read_records(path)]


def test_prompts_are_those_that_were_sent(fake_run: Path) -> None:
    for record, detail in zip(read_records(fake_run), details(fake_run), strict=True):
        for number, step in enumerate(detail["steps"]):
            sent = load_request(fake_run, record, number)
            shown = [detail["messages"][index] for index in step["request"]]
            assert [m["role"] for m in shown] == [m["role"] for m in sent]
            assert [_flat(m["parts"]) for m in shown] == [_sent(m["content"]) for m in sent]


def test_the_picture_of_a_step_is_what_was_seen_last(fake_run: Path) -> None:
    for record, detail in zip(read_records(fake_run), details(fake_run), strict=True):
        for number, step in enumerate(detail["steps"]):
            urls = [
                part["image_url"]["url"]
                for message in load_request(fake_run, record, number)
                if isinstance(message["content"], list)
                for part in message["content"]
                if part["type"] == "image_url"
            ]
            assert IMAGE_SCHEME + detail["images"][step["image"]]["sha256"] == urls[-1]


def test_tokens_are_spelled_where_the_tokenizer_is_known(fake_run: Path) -> None:
    spelling = TokenText(HFTokenizer(byte_level()))
    for detail in details(fake_run, spelling):
        for step in detail["steps"]:
            assert "".join(step["tokens"]) == step["content"] + "<|im_end|>"
            assert len(step["tokens"]) == len(step["ids"]) == len(step["logprobs"])
            assert len(step["prompt_tokens"]) == len(step["prompt_ids"])
    assert all(step["tokens"] is None for d in details(fake_run) for step in d["steps"])


def test_a_server_without_ids_still_gives_its_tokens(tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        run.append(make_rollout(ids=False, steps=1))
    (detail,) = details(run.path)
    assert detail["steps"][0]["ids"] is None
    assert len(detail["steps"][0]["tokens"]) == len(detail["steps"][0]["logprobs"])


def test_a_damaged_message_says_so_in_its_place(tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        run.append(make_rollout(steps=1))
    (record,) = read_records(run.path)
    name = record["steps"][0]["request"][0]
    (run.path / "messages" / f"{name}.json").write_bytes(b"{}")
    (detail,) = details(run.path)
    assert detail["messages"][0]["role"] == "missing"
    assert "damaged" in detail["messages"][0]["parts"][0]["text"]
    assert detail["messages"][1]["role"] == "user"


def test_the_instruction_is_known_without_a_manifest_that_names_it(tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        run.append(make_rollout(steps=1))
    (record,) = read_records(run.path)
    (detail,) = details(run.path)
    sent = load_request(run.path, record, 0)
    first = next(m["content"] for m in sent if m["role"] == "user")
    assert isinstance(first, list)
    assert detail["instruction"] in [part.get("text") for part in first]
    named = Manifest(tasks=[{"task_id": record["task_id"], "instruction": "Press B"}])
    assert rollout_detail(run.path, named, record)["instruction"] == "Press B"


def test_gaps_stand_at_their_steps(tmp_path: Path) -> None:
    with RunDir.create_or_resume(tmp_path / "run", Manifest()) as run:
        run.append(make_rollout(steps=3))
    (record,) = read_records(run.path)
    detail = rollout_detail(run.path, Manifest(), record, gaps=[Gap(1, 0.5, 0.75)])
    assert [step["gap"] for step in detail["steps"]] == [None, Gap(1, 0.5, 0.75), None]


def test_it_is_json(fake_run: Path) -> None:
    for record, detail in zip(read_records(fake_run), details(fake_run), strict=True):
        told = json.loads(json.dumps(detail, allow_nan=False))
        assert told["rollout_id"] == record["rollout_id"]
        assert len(told["steps"]) == record["n_steps"]


def test_coordinates_refer_to_the_screen_that_the_run_names() -> None:
    assert screen_of(Manifest(settings={"desktop": {"width": 1920, "height": 1080}})) == (
        1920,
        1080,
    )
    assert screen_of(Manifest()) is None
    assert screen_of(Manifest(settings={"desktop": {"width": None}})) is None


def _flat(parts: list[dict[str, str]]) -> list[str]:
    return [part.get("text", part.get("image", "")) for part in parts]


def _sent(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [
        p["text"] if p["type"] == "text" else p["image_url"]["url"].removeprefix(IMAGE_SCHEME)
        for p in content
    ]
