# The operator's image: Python, dlop and its dependencies, without build tools and package managers.
#   docker build --tag dlop:latest .
# It runs as a non-root user and writes no files, so the root file system can be read-only. All packages have the versions and hashes of
# the lock files, which `hack/generate` writes.

# The Python version of the tests. Another base image needs Python 3.11 or newer, with pip and venv for the build.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /source
COPY hack/requirements.txt hack/build-requirements.txt hack/
# Compile bytecode here, because the running operator cannot write it and would start slowly each time.
RUN python3 -m venv /build && /build/bin/pip install --no-cache-dir --require-hashes --requirement hack/build-requirements.txt \
    && python3 -m venv /opt/dlop && /opt/dlop/bin/pip install --no-cache-dir --compile --require-hashes --requirement hack/requirements.txt
COPY pyproject.toml README.md ./
COPY dlop dlop
RUN /build/bin/pip wheel --no-cache-dir --no-index --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/dlop/bin/pip install --no-cache-dir --compile --no-index --no-deps /wheels/*.whl
# Remove what the operator does not use, a third of the bytes: the API models of kubernetes-asyncio, and the CEL library of the embedded
# API server with its dependencies. `dlop local` and `dlop render` are not for this image.
RUN cd /opt/dlop/lib/python3*/site-packages/kubernetes_asyncio/client && rm -r api models \
    && /opt/dlop/bin/pip uninstall --yes common-expression-language annotated-doc prompt-toolkit shellingham typer wcwidth pip setuptools

FROM ${BASE}
COPY --from=build /opt/dlop /opt/dlop
# Remove the package managers of the base image. Import the operator once: this compiles the standard library modules that it uses,
# which the base image does not, and checks that the imports work.
RUN if python3 -m pip --version; then python3 -m pip uninstall --yes pip setuptools wheel; fi \
    && /opt/dlop/bin/python -c "import uvloop, dlop.operator.main, dlop.frameworks.registry, dlop.kube.config.loaders as loaders; \
        dlop.frameworks.registry.load_registry(); loaders.import_loaders()"
ENV PATH=/opt/dlop/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# A numeric user, so that the kubelet can verify `runAsNonRoot`.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["python", "-m", "dlop"]
CMD ["run"]
