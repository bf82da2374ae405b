"""Draws pictures and makes thumbnails of them."""

from __future__ import annotations

import time
from pathlib import Path

from PIL import Image, ImageDraw, ImageOps

PICTURE = (1600, 1200)
THUMBNAIL = (320, 240)
#: The shortest time for a picture, in seconds. Otherwise a fast machine would finish within the
#: queue's visibility timeout, and no lease would be extended.
PACE = 0.1


def draw(number: int) -> Image.Image:
    """Return a picture, always the same one for a number."""
    ramp = Image.linear_gradient("L").resize(PICTURE)
    bands = (ramp, ImageOps.mirror(ramp.rotate(37 * number)), ImageOps.invert(ramp))
    picture = Image.merge("RGB", bands)
    pen = ImageDraw.Draw(picture)
    for ring in range(3 + number % 7):
        left, top = (number * 131 + ring * 197) % 1200, (number * 71 + ring * 149) % 800
        pen.ellipse((left, top, left + 360, top + 360), outline="white", width=9)
    return picture


def draw_with_thumbnails(count: int, folder: Path) -> None:
    """Write `count` pictures and their thumbnails into a folder, at a fixed pace."""
    started = time.monotonic()
    for number in range(1, count + 1):
        picture = draw(number)
        picture.save(folder / f"picture-{number:03}.jpg", quality=85)
        thumbnail = ImageOps.fit(picture, THUMBNAIL, Image.Resampling.LANCZOS)
        thumbnail.save(folder / f"thumbnail-{number:03}.jpg", quality=85)
        time.sleep(max(0.0, started + number * PACE - time.monotonic()))
