# The operator's image: Python, dlop and its dependencies, and nothing that builds or installs.
#   docker build --tag dlop:latest .
# It runs as nobody and writes no file, so a read-only root file system suits it.

# The version that the tests run on.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
WORKDIR /source
COPY pyproject.toml README.md ./
COPY dlop dlop
# Compiled here, because the running operator cannot write: its start would be slow every time.
RUN python -m venv /opt/dlop \
    && /opt/dlop/bin/pip install --no-cache-dir --compile . \
    && /opt/dlop/bin/pip uninstall --yes pip setuptools

FROM python:${PYTHON}-slim
COPY --from=build /opt/dlop /opt/dlop
# What came with Python to install packages goes. What the operator imports is compiled, as the base image has no compiled library;
# so it is also known to import.
RUN python -m pip uninstall --yes pip setuptools wheel \
    && /opt/dlop/bin/python -c "import uvloop, dlop.operator.main, dlop.frameworks.registry; dlop.frameworks.registry.load_registry()"
ENV PATH=/opt/dlop/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# By number, so that `runAsNonRoot` can be checked without a look into the image.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["python", "-m", "dlop"]
CMD ["run"]
