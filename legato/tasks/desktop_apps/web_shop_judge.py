"""Judge of ``web_shop``. Stdlib only; runs in the verifier process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legato.tasks.judging.checks import Check, guard, progress, settled
from legato.tasks.judging.web import saved_state, trust


def judge(evidence: Mapping[str, Any]) -> list[Check]:
    state, wanted = saved_state(evidence), evidence["wanted"]
    orders = state["orders"]
    order: Mapping[str, Any] = orders[0] if orders else {"lines": []}
    lines = [{k: v for k, v in line.items() if k != "id"} for line in order["lines"]]
    checks = [
        progress("name", order.get("name") == wanted["name"]),
        progress("street", order.get("street") == wanted["street"]),
        progress("delivery", order.get("delivery") == wanted["delivery"], cheap=True),
    ]
    checks += [
        progress(f"article {line['article']}", lines.count(line) == 1, cheap=True)
        for line in wanted["lines"]
    ]
    asked = {line["article"] for line in wanted["lines"]}
    strange = [line["article"] for line in lines if line["article"] not in asked]
    many = len(lines) > len(wanted["lines"])
    left = [line["article"] for line in state["cart"]]
    checks.append(guard("the order was not placed twice", len(orders) <= 1))
    checks.append(guard("nothing else was ordered", not strange and not many, ", ".join(strange)))
    checks.append(guard("nothing is left in the cart", not left, ", ".join(left)))
    return settled(checks + trust(evidence))
