"""Tasks that let no other thread of their process run, and what happens to the messages."""
