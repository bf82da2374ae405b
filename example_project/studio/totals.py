"""Adds up the orders of a CSV file."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

COLUMNS = ("region", "amount")
#: Below this, amounts with cents add up without rounding: Decimal has 28 digits.
TOO_LARGE = Decimal(10) ** 15


def add_up(source: Path, target: Path) -> None:
    """Write the number and the sum of the orders of each region.

    Args:
        source: A CSV file with the columns `region` and `amount`, in UTF-8.

    Raises:
        ValueError: There is no order, or a line is not an order. The text is for the customer.
    """
    amounts: dict[str, list[Decimal]] = defaultdict(list)
    try:
        # Excel's "CSV UTF-8" begins with a byte order mark. "-sig" reads files with and without.
        with source.open(newline="", encoding="utf-8-sig") as lines:
            for region, amount in _orders(csv.DictReader(lines)):
                amounts[region].append(amount)
    except UnicodeDecodeError:
        raise ValueError('the file is not UTF-8 text: save it as "CSV UTF-8"') from None
    except csv.Error as error:
        raise ValueError(f"the file is not a CSV file: {error}") from None
    if not amounts:
        raise ValueError("the file has no orders: it needs lines with region and amount")
    with target.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["region", "orders", "amount"])
        for region in sorted(amounts):
            writer.writerow([region, len(amounts[region]), sum(amounts[region])])


def _orders(reader: csv.DictReader[str]) -> Iterator[tuple[str, Decimal]]:
    wanted = "its first line must name region and amount, with a comma between them"
    if reader.fieldnames is None:
        raise ValueError(f"the file is empty: {wanted}")
    missing = [column for column in COLUMNS if column not in reader.fieldnames]
    if missing:
        columns = "column" if len(missing) == 1 else "columns"
        raise ValueError(f"the file has no {columns} {' and '.join(missing)}: {wanted}")
    for row in reader:
        if fault := _fault(row):
            raise ValueError(f"line {reader.line_num} is not an order: {fault}")
        yield row["region"], Decimal(row["amount"])


def _fault(row: dict[Any, Any]) -> str:
    """Return the fault of a line, or ""."""
    if None in row:
        # The amount may have a decimal comma. Without its cents the total would be wrong.
        return "it has more fields than the first line"
    if None in row.values():
        return "it has fewer fields than the first line"
    if not row["region"].strip():
        return "it has no region"
    amount = row["amount"]
    shown = repr(amount if len(amount) <= 40 else f"{amount[:37]}...")
    try:
        value = Decimal(amount)
    except InvalidOperation:
        return f"its amount {shown} is not a number"
    if not value.is_finite():
        return f"its amount {shown} is not a number"
    return f"its amount {shown} is too large" if abs(value) >= TOO_LARGE else ""
