"""Charts of the overview, for pages of other apps: include ``stator/admin/overview_chart.html`` with a chart."""

from stator.overview.charts import Chart, Point, chart
from stator.overview.flow import HOUR, PERIODS, flows

__all__ = ["HOUR", "PERIODS", "Chart", "Point", "chart", "flows"]
