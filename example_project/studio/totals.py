"""Adds up the orders of a CSV file."""

from __future__ import annotations

import csv
from collections import defaultdict
from decimal import Decimal, InvalidOperation
from pathlib import Path


def add_up(source: Path, target: Path) -> None:
    """Write number and sum of the orders of each region.

    Args:
        source: A CSV file with the columns `region` and `amount`.

    Raises:
        ValueError: There is no order, or a line has no region, or no amount that is a number.
    """
    amounts: dict[str, list[Decimal]] = defaultdict(list)
    with source.open(newline="", encoding="utf-8") as lines:
        reader = csv.DictReader(lines)
        for row in reader:
            try:
                amounts[row["region"]].append(Decimal(row["amount"]))
            except (KeyError, TypeError, InvalidOperation):
                raise ValueError(f"line {reader.line_num} is not an order: {row}") from None
    if not amounts:
        raise ValueError("the file has no orders: it needs lines with region and amount")
    with target.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["region", "orders", "amount"])
        for region in sorted(amounts):
            writer.writerow([region, len(amounts[region]), sum(amounts[region])])
