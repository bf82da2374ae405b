"""Writes a PDF report."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from studio.pictures import draw

#: A4 at 100 dots per inch.
PAGE = (827, 1169)
DOTS_PER_INCH = 100


def write_report(pages: int, path: Path) -> None:
    """Write a PDF with one picture and its caption on each page."""
    first, *others = [_page(number, pages) for number in range(1, pages + 1)]
    first.save(
        path, save_all=True, append_images=others, resolution=DOTS_PER_INCH, title="Studio report"
    )


def _page(number: int, pages: int) -> Image.Image:
    page = Image.new("RGB", PAGE, "white")
    page.paste(draw(number).resize((727, 545)), (50, 120))
    font = ImageFont.load_default(size=28)
    ImageDraw.Draw(page).text(
        (50, 60), f"Picture {number}, page {number} of {pages}", "black", font
    )
    return page
