"""The work of both sites: thumbnails, a PDF report, totals of a CSV file."""
