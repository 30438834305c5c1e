#!/bin/sh
# What a pod of this image runs. Spark starts executors as `executor` and, in cluster mode, the driver as
# `driver …`, and tells the rest through the environment; everything else is run as it is.
set -eu

SPARK_HOME="${SPARK_HOME:-$(python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')}"
export SPARK_HOME PYSPARK_PYTHON="${PYSPARK_PYTHON:-python}"

case "${1:-}" in
driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
        --deploy-mode client "$@"
    ;;
executor)
    # Options of the JVM come as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …, one each, in order.
    set --
    n=0
    while eval "[ \"\${SPARK_JAVA_OPT_$n+set}\" = set ]"; do
        eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$n\""
        n=$((n + 1))
    done
    exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$@"
    ;;
esac
