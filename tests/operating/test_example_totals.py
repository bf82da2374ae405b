"""How the example project adds up a CSV file, and what it says if it can't."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.operating.conftest import Studio

HEADER = b"region,amount\n"
NAMES_NEEDED = "its first line must name region and amount, with a comma between them"
NO_ORDER = "line 2 is not an order:"


@pytest.mark.parametrize(
    "content",
    [
        b"region,amount\r\nnorth,1.50\r\nsouth,2\r\nnorth,3.25\r\n",
        b"\xef\xbb\xbfregion,amount\r\nnorth,1.50\r\nsouth,2\r\nnorth,3.25\r\n",
        b"\xef\xbb\xbfamount,name,region\n1.50,a,north\n\n2,b,south\n3.25,c,north\n",
    ],
    ids=["plain", "CSV UTF-8 of Excel", "other columns"],
)
def test_the_amounts_of_each_region_are_added_up(
    studio: Studio, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "upload").write_bytes(content)
    studio("totals").add_up(tmp_path / "upload", tmp_path / "totals.csv")
    made = (tmp_path / "totals.csv").read_text().splitlines()
    assert made == ["region,orders,amount", "north,2,4.75", "south,1,2"]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "the file is empty: its first line must name region and amount"),
        (HEADER, "the file has no orders: it needs lines with region and amount"),
        (b"region,total\nnorth,1\n", f"the file has no column amount: {NAMES_NEEDED}"),
        (b"region;amount\nnorth;1\n", f"the file has no columns region and amount: {NAMES_NEEDED}"),
        (HEADER + b"north,1\nnorth,x\n", "line 3 is not an order: its amount 'x' is not a number"),
        (HEADER + b"north,\n", f"{NO_ORDER} its amount '' is not a number"),
        (HEADER + b"north,nan\n", f"{NO_ORDER} its amount 'nan' is not a number"),
        (HEADER + b"north,-inf\n", f"{NO_ORDER} its amount '-inf' is not a number"),
        (HEADER + b"north,sNaN\n", f"{NO_ORDER} its amount 'sNaN' is not a number"),
        (
            HEADER + b"north," + b"9" * 99 + b"\n",
            f"{NO_ORDER} its amount '{'9' * 37}...' is too large",
        ),
        (HEADER + b"north,1e999999\n", f"{NO_ORDER} its amount '1e999999' is too large"),
        (HEADER + b"north\n", f"{NO_ORDER} it has fewer fields than the first line"),
        (HEADER + b"north,1,50\n", f"{NO_ORDER} it has more fields than the first line"),
        (HEADER + b" ,1\n", f"{NO_ORDER} it has no region"),
        ("region,amount\nK\xf6ln,1\n".encode("cp1252"), "the file is not UTF-8 text"),
        ("region,amount\nnorth,1\n".encode("utf-16"), "the file is not UTF-8 text"),
        (HEADER + b'"' + b"x" * 200_000, "the file is not a CSV file: field larger than"),
    ],
)
def test_a_file_that_cannot_be_added_up_says_why_in_plain_words(
    studio: Studio, tmp_path: Path, content: bytes, fault: str
) -> None:
    (tmp_path / "upload").write_bytes(content)
    with pytest.raises(ValueError) as caught:
        studio("totals").add_up(tmp_path / "upload", tmp_path / "totals.csv")
    assert str(caught.value).startswith(fault)
    assert not (tmp_path / "totals.csv").exists()
