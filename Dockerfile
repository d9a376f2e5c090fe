# Written and not tried: no Docker was at hand. docs/serve.md says how it is meant to be used.
#   docker build -t fscl . && docker run --rm -p 127.0.0.1:8420:8420 -v fscl-models:/models fscl --name localhost:8420
FROM python:3.12-slim AS build
COPY . /src
# torch without its parts for GPUs: a "+cpu" version of that index counts as higher than the same one without
RUN python -m venv /opt/fscl && /opt/fscl/bin/pip install --no-cache-dir -c /src/constraints.txt \
    --extra-index-url https://download.pytorch.org/whl/cpu "/src[serve]"

FROM python:3.12-slim
RUN useradd --create-home --uid 10001 fscl && mkdir /models && chown fscl /models
COPY --from=build /opt/fscl /opt/fscl
ENV PATH=/opt/fscl/bin:$PATH OMP_NUM_THREADS=1

USER fscl
VOLUME /models
EXPOSE 8420
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8420/api/v1/health', timeout=4)"]
ENTRYPOINT ["fscl", "serve", "/models/model", "--host", "0.0.0.0", "--port", "8420", "--token", "--no-browser"]
