"""The pages of ``web_shop``: what is sold, where things stand, and how each page is drawn."""

from __future__ import annotations

from dataclasses import dataclass

from legato.tasks.draw import Draw
from legato.tasks.web.layout import Box, Theme, draw_theme
from legato.tasks.web.markup import script_value
from legato.tasks.web.ops import Operations
from legato.tasks.web.page import button, choice, document, heading, label, notice, text_field

_TITLES = ("Tin Lantern", "Quay Supplies", "Green Shelf", "Paper Mill", "North Pantry")
_GOODS = {
    "Notebook": ("lined", "plain", "squared"),
    "Mug": ("blue", "grey", "red"),
    "Scarf": ("cotton", "linen", "wool"),
    "Lamp": ("brass", "steel", "white"),
    "Basket": ("large", "medium", "small"),
    "Pencil set": ("hard", "medium", "soft"),
    "Tea": ("black", "green", "mint"),
    "Soap": ("lavender", "olive", "pine"),
    "Candle": ("short", "tall", "wide"),
    "Apron": ("blue", "green", "striped"),
}
_DELIVERIES = ("Courier", "Letter post", "Parcel shop", "Van")
_QUANTITIES = ("1", "2", "3", "4", "5")


@dataclass(frozen=True, slots=True)
class Article:
    name: str
    price: str
    variants: tuple[str, ...]
    path: str


@dataclass(frozen=True, slots=True)
class Shop:
    """One seed's shop; boxes of a page that others have, too, stand at the same place there."""

    title: str
    theme: Theme
    articles: tuple[Article, ...]
    deliveries: tuple[str, ...]
    left: int
    columns: int
    home: Box
    to_cart: Box
    variant: Box
    quantity: Box
    add: Box
    to_checkout: Box
    name_field: Box
    street_field: Box
    delivery_field: Box
    place_order: Box
    status: Box

    def tile(self, article: Article) -> Box:
        """The button that opens an article's page."""
        row, column = divmod(self.articles.index(article), self.columns)
        return Box(self.left + 290 * column, 130 + 92 * row, 270, 72)


def draw_shop(draw: Draw) -> Shop:
    left, columns = draw.choice((30, 50, 80)), draw.choice((2, 3))
    names = draw.sample(sorted(_GOODS), draw.between(6, 8))
    articles = tuple(
        Article(
            name,
            f"{draw.between(2, 60)}.{draw.between(10, 99)}",
            tuple(draw.shuffled(_GOODS[name])),
            f"/article/{number}",
        )
        for number, name in enumerate(names, 1)
    )
    indent = draw.choice((170, 200, 240))
    first, pitch = draw.choice((140, 160)), draw.choice((52, 58))
    field = Box(left + indent, first, 260, 34)
    end = Box(left, first + 4 * pitch, 180, 40)
    return Shop(
        title=draw.choice(_TITLES),
        theme=draw_theme(draw),
        articles=articles,
        deliveries=tuple(draw.shuffled(_DELIVERIES)),
        left=left,
        columns=columns,
        home=Box(left, 66, 130, 36),
        to_cart=Box(left + 150, 66, 130, 36),
        variant=field,
        quantity=field.down(pitch),
        add=end,
        to_checkout=Box(left, 540, 180, 40),
        name_field=field,
        street_field=field.down(pitch),
        delivery_field=field.down(2 * pitch),
        place_order=end,
        status=Box(left + 200, end.y, 400, 40),
    )


def operations(shop: Shop) -> Operations:
    text = {"kind": "text", "min": 1}
    names = [article.name for article in shop.articles]
    variants = sorted({v for article in shop.articles for v in article.variants})
    return {
        "put": {
            "kind": "add",
            "into": "cart",
            "fields": {
                "article": {"kind": "choice", "options": names},
                "variant": {"kind": "choice", "options": variants},
                "quantity": {"kind": "choice", "options": _QUANTITIES},
            },
        },
        "take": {"kind": "remove", "into": "cart"},
        "order": {
            "kind": "add",
            "into": "orders",
            "takes": "cart",
            "fields": {
                "name": text,
                "street": text,
                "delivery": {"kind": "choice", "options": shop.deliveries},
            },
        },
    }


def render_catalogue(shop: Shop, secret: str) -> str:
    parts = _top(shop)
    for article in shop.articles:
        text = f"{article.name} · {article.price}"
        parts.append(button(shop.tile(article), "", text, f"go({script_value(article.path)})"))
    return document(shop.title, shop.theme, parts, _PLAIN, secret)


def render_product(shop: Shop, article: Article, secret: str) -> str:
    parts = _top(shop)
    parts += [
        heading(Box(shop.left + 310, 66, 500, 36), f"{article.name} · {article.price}"),
        label(_before(shop, shop.variant), "Kind", "variant"),
        choice(shop.variant, "variant", article.variants),
        label(_before(shop, shop.quantity), "Quantity", "quantity"),
        choice(shop.quantity, "quantity", _QUANTITIES),
        button(shop.add, "add", "Add to cart", "add()", "strong"),
    ]
    script = f"const article = {script_value(article.name)};{_PRODUCT}"
    return document(shop.title, shop.theme, parts, script, secret)


def render_cart(shop: Shop, secret: str) -> str:
    parts = _top(shop)
    parts.append(button(shop.to_checkout, "checkout", "Checkout", 'go("/checkout")', "strong"))
    script = f"const left = {shop.left};{_CART}"
    return document(shop.title, shop.theme, parts, script, secret)


def render_checkout(shop: Shop, secret: str) -> str:
    parts = _top(shop)
    parts += [
        label(_before(shop, shop.name_field), "Name", "name"),
        text_field(shop.name_field, "name"),
        label(_before(shop, shop.street_field), "Street", "street"),
        text_field(shop.street_field, "street"),
        label(_before(shop, shop.delivery_field), "Delivery", "delivery"),
        choice(shop.delivery_field, "delivery", shop.deliveries),
        button(shop.place_order, "order", "Place order", "order()", "strong"),
    ]
    return document(shop.title, shop.theme, parts, _CHECKOUT, secret)


def _top(shop: Shop) -> list[str]:
    return [
        heading(Box(shop.left, 16, 600, 32), shop.title),
        button(shop.home, "home", "Articles", 'go("/")'),
        button(shop.to_cart, "cart", "Cart", 'go("/cart")'),
        notice(shop.status),
    ]


def _before(shop: Shop, box: Box) -> Box:
    return Box(shop.left, box.y, box.x - shop.left - 10, box.height)


_PLAIN = """
function dirty() { return false; }
function render() { }
"""
_PRODUCT = """
function dirty() { return false; }
function render() { }
function add() {
  send({op: "put", values: {article, variant: value("variant"), quantity: value("quantity")}},
    "It is in the cart");
}
"""
_CART = """
function dirty() { return false; }
function render() {
  field("drawn").replaceChildren();
  state.cart.forEach((line, i) => {
    const top = 130 + 46 * i;
    make("div", `left:${left}px;top:${top}px;width:480px;height:34px`,
      `${line.quantity} x ${line.article}, ${line.variant}`, {className: "cell"});
    make("button", `left:${left + 500}px;top:${top}px;width:100px;height:34px`, "Remove",
      {onclick: () => send({op: "take", id: line.id}, "Removed")});
  });
}
"""
_CHECKOUT = """
function dirty() { return value("name") !== "" || value("street") !== ""; }
function render() { put("name", ""); put("street", ""); }
function order() {
  if (!state.cart.length) return say("The cart is empty");
  if (!value("name").trim() || !value("street").trim()) return say("Fill in name and street");
  send({op: "order", values: {name: value("name"), street: value("street"),
    delivery: value("delivery")}}, "Thank you for your order");
}
for (const id of ["name", "street"]) field(id).addEventListener("input", mark);
"""
