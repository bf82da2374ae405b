"""The report's sections: what each shows, as text, listings and plots.

Each has a template of its own. None makes any markup: whatever comes from a journal stays text,
and the templates escape it. One that has nothing to show is a sentence.
"""
