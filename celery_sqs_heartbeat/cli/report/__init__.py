"""The command `report`, which writes a page on what happened."""
