# One image for every process of foldlog: the command says which.
# Without a network, give wheels: --build-arg PIP_NO_INDEX=1 --build-arg PIP_FIND_LINKS=/source/wheels
ARG PYTHON_IMAGE=python:3.13-slim
FROM ${PYTHON_IMAGE}

ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
ARG PIP_NO_CACHE_DIR=1
ARG PIP_ROOT_USER_ACTION=ignore
RUN --mount=type=bind,target=/source,rw \
    cd /source \
    && python -m pip install --constraint constraints.txt hatchling editables \
    && python -m pip install --constraint constraints.txt --no-build-isolation '.[server]'

USER 10001:10001
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
CMD ["foldlog", "--help"]
