"""Order in a small web shop in Chromium: catalogue, product pages, cart, checkout.

Partial credit is for what was typed as asked into the one order that was placed: the recipient's
name and street. The articles in it and the way of delivery, a few clicks each, count only beside
one of those; a cart that was not ordered counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from legato.desktop.actions import AnyAction, Done, Type
from legato.desktop.contract import Machine
from legato.tasks.desktop_apps.web_shop_pages import (
    Article,
    Shop,
    draw_shop,
    operations,
    render_cart,
    render_catalogue,
    render_checkout,
    render_product,
)
from legato.tasks.draw import Draw
from legato.tasks.place import Place, draw_place
from legato.tasks.web.task import App, WebTask

_NAMES = ("Ines Okafor", "Marek Brandt", "Zoë Moreau", "Tobias Vega", "Priya Costa", "Hana Ito")
_STREETS = ("Mill Lane", "Harbour Road", "Castle Green", "Station Square", "Orchard Way")


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be ordered."""

    lines: tuple[tuple[Article, str, str], ...]
    """Article, variant and quantity."""
    name: str
    street: str
    delivery: str


@dataclass(frozen=True)
class WebShop(WebTask):
    """Order articles in a web shop in Chromium, over product pages, cart and checkout."""

    suite = "desktop_apps"
    name = "web_shop"
    judge = Path(__file__).with_name("web_shop_judge.py")

    @cached_property
    def _plan(self) -> tuple[Shop, Order, Place]:
        draw = Draw(self.name, self.seed)
        shop = draw_shop(draw)
        lines = tuple(
            (article, draw.choice(article.variants), str(draw.between(1, 4)))
            for article in draw.sample(shop.articles, draw.between(1, 2))
        )
        order = Order(
            lines,
            draw.choice(_NAMES),
            f"{draw.choice(_STREETS)} {draw.between(1, 120)}",
            draw.choice(shop.deliveries),
        )
        return shop, order, draw_place(draw)

    @property
    def shop(self) -> Shop:
        return self._plan[0]

    @property
    def order(self) -> Order:
        return self._plan[1]

    @property
    def place(self) -> Place:
        return self._plan[2]

    @property
    def instruction(self) -> str:
        articles = " and ".join(f'{n} x "{a.name}", {v}' for a, v, n in self.order.lines)
        return (
            f'Order in the shop "{self.shop.title}": {articles}. Have it sent to '
            f'"{self.order.name}", "{self.order.street}", delivery "{self.order.delivery}". '
            "Place the order once, and order nothing else."
        )

    @cached_property
    def app(self) -> App:
        pages = {
            "/": partial(render_catalogue, self.shop),
            "/cart": partial(render_cart, self.shop),
            "/checkout": partial(render_checkout, self.shop),
        }
        for article in self.shop.articles:
            pages[article.path] = partial(render_product, self.shop, article)
        state = {"cart": [], "orders": [], "next": 1}
        return App(self.shop.title, pages, state, operations(self.shop))

    def wanted(self) -> Mapping[str, Any]:
        order = self.order
        return {
            "name": order.name,
            "street": order.street,
            "delivery": order.delivery,
            "lines": [{"article": a.name, "variant": v, "quantity": n} for a, v, n in order.lines],
        }

    def reference_actions(self, machine: Machine) -> Iterator[AnyAction]:
        return self._buy(machine, self.order.name, self.order.street)

    def cheap_actions(self, machine: Machine) -> Iterator[AnyAction]:
        """The right articles to the wrong address."""
        return self._buy(machine, "x", "x")

    def _buy(self, machine: Machine, name: str, street: str) -> Iterator[AnyAction]:
        window, shop = self.window(machine), self.shop
        for article, variant, quantity in self.order.lines:
            yield self.click(window, shop.tile(article))
            if variant != article.variants[0]:
                yield self.click(window, shop.variant)
                yield Type(text=f"{variant}\n")
            if quantity != "1":
                yield self.click(window, shop.quantity)
                yield Type(text=f"{quantity}\n")
            yield self.click(window, shop.add)
            yield self.click(window, shop.home)
        yield self.click(window, shop.to_cart)
        yield self.click(window, shop.to_checkout)
        yield self.click(window, shop.name_field)
        yield Type(text=f"{name}\t{street}\t{self.order.delivery}")
        yield self.click(window, shop.place_order)
        yield Done()
