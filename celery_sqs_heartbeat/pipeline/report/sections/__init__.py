"""The report's sections: their content as text, listings and plots.

Each has its own template. No section makes markup: everything from a journal stays text, and the
templates escape it. A section without content is a sentence.
"""
