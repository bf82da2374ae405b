"""How tests start Spark. Rows are few, so what counts is planning and the number of tasks.

Nothing is compiled by Spark and little by Java, nothing is planned again between stages, and
nothing is kept for a UI.
"""

from __future__ import annotations

import shlex

#: For every JVM that a test starts: it lives for seconds, so compiling twice is not worth it.
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
#: The variable by which each `java` takes its options, those that Spark starts included.
JAVA_VARIABLE = "JDK_JAVA_OPTIONS"

CHEAP = {
    "spark.master": "local[1]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": f"{JAVA} -Duser.timezone=UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.default.parallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.shuffle.compress": "false",
    "spark.broadcast.compress": "false",
}

#: In `PYSPARK_SUBMIT_ARGS` they are the arguments of `spark-submit`. Then the product does not
#: configure a session, neither in this process nor in another that it starts.
SUBMIT_ARGS = shlex.join(
    [
        f"--master={CHEAP['spark.master']}",
        *(f"--conf={name}={value}" for name, value in CHEAP.items()),
        "pyspark-shell",
    ]
)
