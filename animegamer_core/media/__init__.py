"""Files for people: video clips, contact sheets, and HTML pages."""
