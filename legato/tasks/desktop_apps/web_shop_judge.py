"""Judge of ``web_shop``. Stdlib only; runs in the verifier process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from legato.tasks.judging.checks import Check, guard, progress, settled
from legato.tasks.judging.web import saved_state, trust


def judge(evidence: Mapping[str, Any]) -> list[Check]:
    state, wanted = saved_state(evidence), evidence["wanted"]
    orders = state["orders"]
    order: Mapping[str, Any] = orders[0] if orders else {"lines": []}
    ordered: Counter[tuple[str, str]] = Counter()  # the same twice is one line of the order, too
    for line in order["lines"]:
        ordered[line["article"], line["variant"]] += int(line["quantity"])
    asked = {(w["article"], w["variant"]): int(w["quantity"]) for w in wanted["lines"]}
    checks = [
        progress("name", order.get("name") == wanted["name"]),
        progress("street", order.get("street") == wanted["street"]),
        progress("delivery", order.get("delivery") == wanted["delivery"], cheap=True),
    ]
    checks += [
        progress(f"article {article}", ordered[article, variant] == quantity, cheap=True)
        for (article, variant), quantity in asked.items()
    ]
    articles = [article for article, _ in ordered]
    strange = sorted(set(articles) - {article for article, _ in asked})
    strange += sorted(article for article, n in Counter(articles).items() if n > 1)
    left = [line["article"] for line in state["cart"]]
    checks.append(guard("the order was not placed twice", len(orders) <= 1))
    checks.append(guard("nothing else was ordered", not strange, ", ".join(strange)))
    checks.append(guard("nothing is left in the cart", not left, ", ".join(left)))
    return settled(checks + trust(evidence))
