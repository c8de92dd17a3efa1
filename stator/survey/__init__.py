"""The data of the overview, without its page: figures, flow, errors, workers, and the layout of boxes and lines."""
