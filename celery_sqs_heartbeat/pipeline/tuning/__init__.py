"""What settings would have meant for the messages that were measured, and which are best."""
