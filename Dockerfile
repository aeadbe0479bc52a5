# Two images: `--target runtime` runs artifacts (some 200 MB), the last one compiles, too, and serves models.
#
#     docker build -t motet .
#     docker run --rm -v "$PWD:/models" motet compile model.onnx -o model.motet
#     docker run --rm -p 8000:8000 -v "$PWD:/models" motet serve model.motet --host 0.0.0.0

FROM python:3.13-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-deps --wheel-dir /wheels .

FROM python:3.13-slim AS runtime
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/motet-*.whl)[cli]" && useradd --create-home motet
USER motet
WORKDIR /models
ENTRYPOINT ["motet"]
CMD ["doctor"]

FROM runtime
USER root
RUN pip install --no-cache-dir "$(echo /wheels/motet-*.whl)[cli,onnx,serve]"
USER motet
