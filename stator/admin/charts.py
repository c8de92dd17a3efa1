"""Charts of the overview, for pages of other apps: include ``stator/admin/overview_chart.html`` with a chart."""

from stator.overview.charts import Chart, Point, chart

__all__ = ["Chart", "Point", "chart"]
