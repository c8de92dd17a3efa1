"""What the overview shows, without the page: figures, flow, errors, workers, and where boxes and lines are drawn."""
