"""Pictures and pages for people: the HTML report, small SVG figures for event metadata, safe plain text."""
