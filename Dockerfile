# The operator's image: Python, dlop and its dependencies, without build tools and package managers.
#   docker build --tag dlop:latest .
# It runs as a non-root user and writes no files, so the root file system can be read-only.

# The Python version of the tests.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
WORKDIR /source
COPY pyproject.toml README.md ./
COPY dlop dlop
# Compile bytecode here, because the running operator cannot write it and would start slowly each time.
RUN python -m venv /opt/dlop \
    && /opt/dlop/bin/pip install --no-cache-dir --compile . \
    && /opt/dlop/bin/pip uninstall --yes pip setuptools

FROM python:${PYTHON}-slim
COPY --from=build /opt/dlop /opt/dlop
# Remove the package managers of the base image. Import the operator once: this compiles the standard library modules that it uses,
# which the base image does not, and checks that the imports work.
RUN python -m pip uninstall --yes pip setuptools wheel \
    && /opt/dlop/bin/python -c "import uvloop, dlop.operator.main, dlop.frameworks.registry; dlop.frameworks.registry.load_registry()"
ENV PATH=/opt/dlop/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# A numeric user, so that the kubelet can verify `runAsNonRoot`.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["python", "-m", "dlop"]
CMD ["run"]
