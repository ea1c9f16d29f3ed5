# One image for every process of foldlog: the command says which.
ARG PYTHON_IMAGE=python:3.13-slim
FROM ${PYTHON_IMAGE}

WORKDIR /app
COPY pyproject.toml constraints.txt README.md ./
COPY events events
COPY projections projections
COPY services services
RUN python -m pip install --no-cache-dir --constraint constraints.txt hatchling editables \
    && python -m pip install --no-cache-dir --constraint constraints.txt --no-build-isolation '.[server]' \
    && useradd --system --uid 10001 --create-home foldlog

USER 10001
ENV PYTHONUNBUFFERED=1
CMD ["foldlog", "--help"]
