"""Steps on Spark: from raw logs to a plan, its replay and its drift.

`import distributary` does not load this package; Spark starts only when a caller asks for it.
"""

from distributary.extras import require

require("spark")  # before the imports that need it

from distributary.pipeline.job import Job, Outcome
from distributary.pipeline.run import replay_plan, run
from distributary.pipeline.spark import spark_session, use_spark

__all__ = ["Job", "Outcome", "replay_plan", "run", "spark_session", "use_spark"]
