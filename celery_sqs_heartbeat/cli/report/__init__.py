"""The command `report`, which writes a page about the messages in the journals."""
