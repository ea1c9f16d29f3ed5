"""The figures that the demo's tools answer with: invented, and the same in every run."""

from typing import NamedTuple

LAST_NIGHT = "2026-05-14"
WEEK_BEFORE = "2026-05-07"
NIGHT_BEFORE = "2026-05-13"

PAGES = ("20:00", "20:30", "21:00", "21:30")
"""Beginnings of the half hours that the show lasts."""
PAGE = 30
"""Minutes on a page of traffic."""

STANDSTILL = range(41, 50)
"""Minutes into last night's show in which the picture stood still."""
CORRECTED_MINUTE = 107
"""A minute into last night's show whose orders were booked twice at first."""
BOOKED_TWICE = 131


class Product(NamedTuple):
    """A product, its price in euros, and how many were sold in each show."""

    name: str
    kind: str
    price: int
    night_before: int
    week_before: int
    last_night: int


PRODUCTS = (
    Product("Linen apron", "regular", 29, 310, 298, 301),
    Product("Oak board", "regular", 45, 205, 211, 207),
    Product("Clay teapot", "regular", 59, 122, 118, 116),
    Product("Wool throw", "regular", 79, 140, 133, 137),
    Product("Brass scale", "regular", 65, 88, 92, 90),
    Product("Glow kettle", "new", 89, 164, 171, 68),
    Product("Fold lamp", "new", 69, 151, 148, 83),
    Product("Cold press", "new", 119, 97, 102, 61),
    Product("Herb tower", "new", 99, 76, 74, 70),
    Product("Kettle and cups", "new bundle", 129, 64, 66, 35),
    Product("Lamp pair", "new bundle", 119, 41, 43, 24),
)

_SHOWS = {NIGHT_BEFORE: "night_before", WEEK_BEFORE: "week_before", LAST_NIGHT: "last_night"}
_SCOPES = {
    "whole show": ("regular", "new", "new bundle"),
    "new products": ("new", "new bundle"),
    "new products without bundles": ("new",),
}


def show_figures(show: str, scope: str) -> str:
    """Pieces and revenue of each product in a show, and their sum."""
    kinds = _SCOPES[scope]
    lines = [f"{show}, {scope}: product | pieces | revenue EUR"]
    total = 0
    for product in PRODUCTS:
        if product.kind in kinds:
            pieces = getattr(product, _SHOWS[show])
            total += pieces * product.price
            lines.append(f"{product.name} | {pieces} | {pieces * product.price:,}")
    return "\n".join([*lines, f"total | | {total:,}"])


def traffic(start: str, *, corrected: bool = False) -> str:
    """Half an hour of last night's show, minute by minute."""
    first = PAGES.index(start) * PAGE
    head = "minute | viewers | from home | from push | video kbit/s | carts | orders"
    lines = [f"{LAST_NIGHT} from {start}: {head}"]
    for minute in range(first, first + PAGE):
        viewers, carts, orders = _minute(minute)
        if minute == CORRECTED_MINUTE and not corrected:
            orders = BOOKED_TWICE
        home = viewers * (50 + minute * 5 % 11) // 100
        video = 0 if minute in STANDSTILL else 4_200 + minute * 131 % 600
        sources = f"{home:,} | {viewers - home:,} | {video:,}"
        lines.append(f"{clock(minute)} | {viewers:,} | {sources} | {carts} | {orders}")
    return "\n".join(lines)


def orders_at_the_end() -> int:
    """Orders in the last half hour, as the corrected table has them."""
    last = len(PAGES) * PAGE
    return sum(_minute(minute)[2] for minute in range(last - PAGE, last))


def comments(start: str, end: str) -> str:
    """What viewers wrote, by how many of them wrote the like."""
    said = (
        ("the picture stands still", 412),
        ("sound but no picture", 187),
        ("where is the kettle offer?", 96),
        ("I could not put it into the cart", 41),
        ("is the lamp still to come?", 38),
        ("it froze again", 35),
        ("what does the press cost?", 29),
        ("it is back", 27),
        ("nice teapot", 12),
    )
    lines = [f"{LAST_NIGHT} {start} to {end}: what viewers wrote | how many"]
    return "\n".join([*lines, *(f"{text} | {count}" for text, count in said)])


def clock(minute: int) -> str:
    """The time of day of a minute of the show."""
    return f"{20 + minute // 60}:{minute % 60:02d}"


def _minute(minute: int) -> tuple[int, int, int]:
    viewers = 9_120 + 37 * (minute * 17 % 23)
    carts = 96 + minute * 11 % 29
    orders = 11 + minute * 7 % 9
    if minute in STANDSTILL:
        return viewers * 2 // 9, carts // 4, orders // 6
    return viewers, carts, orders
