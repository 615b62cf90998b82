"""A small market with known ranks, prices and services for the sandbox tests."""

from __future__ import annotations

from typing import Any

from trajectory_platform.sandbox.products import load_products
from trajectory_platform.sandbox.search import SearchIndex
from trajectory_platform.sandbox.tools import World


def product(product_id: str, **fields: Any) -> dict[str, Any]:
    """A document with every field; ``fields`` override."""
    return {
        "product_id": product_id,
        "shop_id": "s1",
        "brand": "",
        "category": "Kitchen > Mugs",
        "title": f"mug {product_id}",
        "short_description": "",
        "description": "",
        "specification": "",
        "price": 100.0,
        "sold_count": 0,
        "sku_options": {},
        "attributes": {},
        "main_image_url": "",
        "product_url": "",
        "service": [],
    } | fields


def world_of(*documents: dict[str, Any]) -> World:
    catalogue = load_products(documents)
    return World(catalogue, SearchIndex(catalogue))
