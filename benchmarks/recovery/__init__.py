"""How long messages stay hidden after something has failed: a stock worker beside ours."""
