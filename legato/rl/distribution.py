"""Are a server's logprobs those of the distribution that was asked for?

Trained on other logprobs, a policy gradient is biased and nothing shows it. Servers go wrong in
three ways: they report the model's own logprobs whatever was asked (vLLM's ``raw_logprobs``),
they truncate although told not to (a ``generation_config`` with top_k), or they leave the
truncation that was asked for out of the logprobs (SGLang).

Each leaves a mark in the twenty most likely first tokens. With p the reported probabilities at a
position, for any tokens a and b:

temperature
    log p_T(a) - log p_T(b) = (log p_1(a) - log p_1(b)) / T
bans
    with the tokens S banned, log p'(a) - log p(a) = -log(1 - p(S)) for every a that is left: what
    S had is shared out in proportion. Under a hidden top_k or top_p the support refills from
    below instead, and raw logprobs do not move at all.
truncation
    log p_K(a) - log p(a) = -log p(K) for every a in the support K, with p(K) as far as top_k and
    top_p determine it.

The identities are exact, whatever the model and its number format, as long as the logits are the
same. They nearly are: batching and caching move the last bits of a bf16 server's logits. So each
query is made twice, and a deviation counts when it exceeds four times the difference between
the two, plus :data:`ROUNDING`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from legato.rl.types import Prompt, Sampling

TOP = 20
"""Most alternatives every server gives."""

ROUNDING = 1e-3
"""Deviation in nats left to servers that round their logprobs; one truncated token in a thousand
already shows as much."""

NOISY = 0.25
"""A server whose own two answers differ by more nats than this cannot be judged."""

MARK = 5.0
"""How many tolerances an error would have to be seen as, for its absence to prove anything."""

LIKELY = 0.1
"""Tokens of a larger share are banned first, to see what lies below them."""

HOT = 2.0
"""Where bans are looked at again when nothing is seen at the temperature asked for: the highest
that every server takes. It does not matter to bans, and shows the alternatives of a sure model."""

FLATTENING = 8
"""Most rounds of that. A model trained to begin its replies in one of a few ways needs several."""

Top = tuple[tuple[str, float], ...]
"""Most likely tokens, as the server names them, with log-probabilities."""
Query = Callable[[Prompt, Sampling], Awaitable[Top]]
TokenId = Callable[[str], int | None]


@dataclass(frozen=True, slots=True)
class Finding:
    """Outcome of one test. ``unknown``: the server or the model let nothing be concluded."""

    test: Literal["temperature", "bans", "truncation"]
    verdict: Literal["right", "wrong", "unknown"]
    reason: str


@dataclass(frozen=True, slots=True)
class Measured:
    """One distribution, asked for twice."""

    top: Top
    """The mean of the two."""
    noise: float
    """Largest difference between the two, in nats."""

    @property
    def by_name(self) -> dict[str, float]:
        """Without names that stand for several tokens (fragments of characters, often)."""
        count = Counter(name for name, _ in self.top)
        return {name: lp for name, lp in self.top if count[name] == 1}

    @property
    def mass(self) -> float:
        return math.fsum(math.exp(lp) for _, lp in self.top)


async def measure(query: Query, prompt: Prompt, sampling: Sampling) -> Measured:
    first = dict(await query(prompt, sampling))
    second = await query(prompt, sampling)
    noise = max((abs(lp - first[name]) for name, lp in second if name in first), default=0.0)
    return Measured(tuple((name, (lp + first.get(name, lp)) / 2) for name, lp in second), noise)


async def check_temperature(
    query: Query, prompts: Sequence[Prompt], sampling: Sampling, temperature: float
) -> Finding:
    """Compare ``temperature`` with temperature 1, or with 0.7 if it is 1."""
    other = 1.0 if temperature != 1.0 else 0.7
    whole = replace(sampling, top_k=0, top_p=1.0)
    seen = 0.0
    for prompt in prompts:
        asked = await measure(query, prompt, replace(whole, temperature=temperature))
        reference = await measure(query, prompt, replace(whole, temperature=other))
        error, spread = temperature_error(reference, other, asked, temperature)
        tolerance = ROUNDING + 4 * max(asked.noise, reference.noise)
        seen = max(seen, spread / tolerance)
        if max(asked.noise, reference.noise) <= NOISY and error > tolerance:
            return Finding(
                "temperature",
                "wrong",
                f"logprobs do not follow temperature {temperature:g}: they are off by "
                f"{error:.2g} nats (vLLM: start it with --logprobs-mode processed_logprobs)",
            )
    if seen < MARK:
        return Finding("temperature", "unknown", "the model's alternatives are too few or too even")
    return Finding("temperature", "right", f"logprobs follow temperature {temperature:g}")


async def check_bans(
    query: Query, prompts: Sequence[Prompt], sampling: Sampling, token_id: TokenId
) -> Finding:
    """Ban the most likely tokens and see whether the others get what those had."""
    found = await _check_bans(query, prompts, sampling, token_id)
    if found.verdict == "unknown" and sampling.temperature < HOT:
        found = await _check_bans(query, prompts, replace(sampling, temperature=HOT), token_id)
    return found


async def _check_bans(
    query: Query, prompts: Sequence[Prompt], sampling: Sampling, token_id: TokenId
) -> Finding:
    whole = replace(sampling, top_k=0, top_p=1.0)
    proven = False
    for prompt in prompts:
        # a model that is sure of one token says nothing about the rest until that is banned
        base = whole
        before = await measure(query, prompt, base)
        for _ in range(FLATTENING):
            likely = [
                (i, n)
                for n, p in before.by_name.items()
                if (i := token_id(n)) is not None and math.exp(p) > LIKELY
            ]
            if not likely:
                break
            base = replace(base, banned_ids=(*base.banned_ids, *(i for i, _ in likely)))
            after = await measure(query, prompt, base)
            if wrong := _still_there(after, [n for _, n in likely]):
                return wrong
            before = after
        chosen = _choose(before, token_id)
        if not chosen:
            continue
        banned = replace(base, banned_ids=(*base.banned_ids, *chosen.values()))
        after = await measure(query, prompt, banned)
        if wrong := _still_there(after, list(chosen)):
            return wrong
        found = ban_error(before, after, list(chosen))
        noise = max(before.noise, after.noise)
        if found is None or noise > NOISY:
            continue
        error, shift = found
        # an error of p(S) is magnified where little is left over
        tolerance = (ROUNDING + 4 * noise) * math.exp(shift)
        if error > tolerance:
            return Finding(
                "bans",
                "wrong",
                f"the server truncates although told not to (off by {error:.2g} nats when "
                f"{len(chosen)} tokens are banned): look for top_k, top_p or min_p in its "
                f"generation_config (vLLM: --generation-config vllm) or logits processors",
            )
        refill = set(after.by_name) - set(before.by_name)
        visible = math.fsum(math.exp(after.by_name[name]) for name in refill)
        proven = proven or min(shift, visible) > MARK * tolerance
    if not proven:
        return Finding(
            "bans",
            "unknown",
            "the model is too sure of its tokens, or the server does not tell which they are",
        )
    return Finding("bans", "right", "the whole vocabulary counts, and bans enter the logprobs")


async def check_truncation(query: Query, prompts: Sequence[Prompt], sampling: Sampling) -> Finding:
    """With top_k or top_p asked for: are the logprobs those of the truncated distribution?"""
    compared = False
    for prompt in prompts:
        whole = await measure(query, prompt, replace(sampling, top_k=0, top_p=1.0))
        cut = await measure(query, prompt, sampling)
        noise = max(whole.noise, cut.noise)
        if noise > NOISY or len(whole.top) < 2 or not set(whole.by_name) & set(cut.by_name):
            continue
        tolerance = ROUNDING + 4 * noise
        kept, problem = kept_mass(whole, cut, sampling, tolerance)
        # what hardly truncates looks the same in logprobs that leave it out
        compared = compared or kept < 1 - MARK * tolerance
        if problem:
            return Finding(
                "truncation",
                "wrong",
                f"{problem}; train with top_k 0 and top_p 1, which need no truncation (vLLM: or "
                f"start it with --logprobs-mode processed_logprobs)",
            )
    if not compared:
        text = "too little is cut off, or too few alternatives are given, to tell"
        return Finding("truncation", "unknown", text)
    return Finding("truncation", "right", "logprobs are those of the truncated distribution")


# --- the identities ----------------------------------------------------------------------------


def temperature_error(
    reference: Measured, reference_t: float, asked: Measured, asked_t: float
) -> tuple[float, float]:
    """(largest deviation, what the deviation would be if temperature did nothing), in nats."""
    a, b = asked.by_name, reference.by_name
    shared = [name for name in a if name in b]
    if len(shared) < 2:
        return 0.0, 0.0
    anchor = shared[0]
    scale = reference_t / asked_t
    gaps = [(a[name] - a[anchor], b[name] - b[anchor]) for name in shared]
    error = max(abs(x - y * scale) for x, y in gaps)
    return error, max(abs(y * (scale - 1)) for _, y in gaps)


def ban_error(
    before: Measured, after: Measured, banned: Sequence[str]
) -> tuple[float, float] | None:
    """(largest deviation, expected shift) in nats; ``None`` if no token is seen both times."""
    a, b = before.by_name, after.by_name
    mass = math.fsum(math.exp(a[name]) for name in banned)
    shared = [name for name in b if name in a and name not in banned]
    if not shared or mass >= 1:
        return None
    shift = -math.log1p(-mass)
    return max(abs(b[name] - a[name] - shift) for name in shared), shift


def kept_mass(
    whole: Measured, cut: Measured, sampling: Sampling, tolerance: float
) -> tuple[float, str | None]:
    """Share of ``whole`` that ``cut`` renormalises, and what is wrong with that, if anything."""
    full, support = whole.by_name, cut.by_name
    offsets = [support[name] - full[name] for name in support if name in full]
    kept = math.exp(-math.fsum(offsets) / len(offsets))
    if max(offsets) - min(offsets) > 2 * tolerance:
        return kept, "truncating changed the proportions of the tokens that are left"
    if 0 < sampling.top_k <= TOP and abs(cut.mass - 1) > tolerance:
        return kept, f"{len(cut.top)} tokens hold {cut.mass:.3g} of the mass, against top_k"
    least, most = _kept_bounds(whole.top, sampling)
    if not least - tolerance <= kept <= most + tolerance:
        return kept, f"logprobs are those of {kept:.3g} of the mass, against top_k and top_p"
    return kept, None


def _kept_bounds(whole: Top, sampling: Sampling) -> tuple[float, float]:
    """Least and most probability that top_k and top_p can leave, from the likeliest tokens."""
    # the least likely may be there only because it was sampled
    probabilities = sorted((math.exp(lp) for _, lp in whole), reverse=True)[:-1]
    last = probabilities[-1]
    least, most = 1.0, 1.0
    if sampling.top_k:
        least = math.fsum(probabilities[: sampling.top_k])
        most = min(1.0, least + max(0, sampling.top_k - len(probabilities)) * last)
    if sampling.top_p < 1:
        # top_p counts within what top_k left, and keeps the token that crosses it
        wanted = sampling.top_p * least
        totals = zip(probabilities, accumulate(probabilities), strict=True)
        crossing = next((p for p, total in totals if total >= wanted), last)
        least, most = wanted, min(most, sampling.top_p * most + crossing)
    return least, most


def _choose(before: Measured, token_id: TokenId) -> dict[str, int]:
    """The ten likeliest tokens with their ids, fewer if hardly anything would be left."""
    chosen: dict[str, int] = {}
    mass = 0.0
    for name, lp in sorted(before.by_name.items(), key=lambda item: -item[1]):
        found = token_id(name)
        if found is None:
            continue
        mass += math.exp(lp)
        if mass > 0.9 or len(chosen) == TOP // 2:
            break
        chosen[name] = found
    return chosen


def _still_there(after: Measured, banned: Sequence[str]) -> Finding | None:
    visible: Mapping[str, float] = after.by_name
    # e^-100 of the largest logit is far below every other token's share
    still = [name for name in banned if visible.get(name, -math.inf) > -20]
    if not still:
        return None
    return Finding(
        "bans",
        "wrong",
        f"banned tokens keep a probability of {math.exp(visible[still[0]]):.2g}: bans do not enter "
        f"the logprobs (vLLM: start it with --logprobs-mode processed_logprobs), or are ignored",
    )
