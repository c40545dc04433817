"""From films to worlds: measuring, storing and reading clips."""
