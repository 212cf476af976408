# One file for CPU and CUDA images: WHEEL_INDEX chooses where torch comes from, TORCH which one; README.md says how.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
ARG TORCH=2.13.0
ARG WHEEL_INDEX=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY constraints.txt ./
# torch alone in a layer: it is by far the largest part and seldom changes.
RUN python -m venv /opt/autoplan \
    && sed "s/^torch==.*/torch==${TORCH}/" constraints.txt > /tmp/constraints.txt \
    && /opt/autoplan/bin/pip install ${WHEEL_INDEX:+--extra-index-url "${WHEEL_INDEX}"} \
        --constraint /tmp/constraints.txt "torch==${TORCH}"
COPY pyproject.toml README.md LICENSE ./
COPY autoplan autoplan
COPY costmodels costmodels
COPY solver solver
COPY api api
RUN /opt/autoplan/bin/pip install ${WHEEL_INDEX:+--extra-index-url "${WHEEL_INDEX}"} \
        --constraint /tmp/constraints.txt .

FROM python:${PYTHON}-slim
RUN useradd --create-home --uid 10001 autoplan \
    && install --directory --owner autoplan --group autoplan /data
COPY --from=build /opt/autoplan /opt/autoplan
# The service listens to other machines here, since a container's own address is all that can be published.
ENV PATH="/opt/autoplan/bin:${PATH}" \
    PYTHONUNBUFFERED=1 \
    PYTHONSAFEPATH=1 \
    XDG_DATA_HOME=/data \
    AUTOPLAN_HOST=0.0.0.0 \
    AUTOPLAN_PORT=8000 \
    AUTOPLAN_ALLOW_REMOTE=true \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER autoplan
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['AUTOPLAN_PORT'] + '/healthz', timeout=4)"]
ENTRYPOINT ["autoplan"]
CMD ["serve"]
