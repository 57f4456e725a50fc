# One image for brokers, controllers, the page and the schema registry; the command of a container chooses.

# Pinned by digest, for all platforms; docker-compose.yml has the same.
ARG BARNABAS_BASE_IMAGE=python:3.11.15-slim-bookworm@sha256:b18992999dbe963a45a8a4da40ac2b1975be1a776d939d098c647482bcad5cba
FROM ${BARNABAS_BASE_IMAGE}

LABEL org.opencontainers.image.title="Barnabas" \
      org.opencontainers.image.description="A replicated, durable event log that speaks the Apache Kafka protocol" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="The Barnabas authors"

# A fixed uid, because it owns the data in volumes that outlive the image.
RUN useradd --uid 1000 --no-create-home --home-dir /var/lib/barnabas --shell /usr/sbin/nologin barnabas \
    && install --directory --owner=barnabas --group=barnabas /var/lib/barnabas \
    && install --directory --owner=barnabas --group=barnabas --mode=0700 /var/lib/barnabas-security

WORKDIR /usr/src/barnabas

# Dependencies change seldom, so they have a layer of their own. Every package is checked against its hash.
COPY docker/requirements.lock ./
RUN pip install --no-cache-dir --require-hashes --requirement requirements.lock

COPY . .
RUN pip install --no-cache-dir --no-deps --no-index --no-build-isolation . && rm -rf build *.egg-info

COPY cluster-configs/compose /etc/barnabas
COPY docker/entrypoint docker/healthcheck /usr/local/bin/

USER barnabas
WORKDIR /var/lib/barnabas
VOLUME /var/lib/barnabas
# Kafka inside and outside of the compose network, that for clients and nodes with certificates, controllers, the HTTP
# pages of nodes, the page, the schema registry.
EXPOSE 9092 19092 19192 9094 9093 9292 9644 8081
# For brokers and controllers. Of other commands it means nothing; docker-compose.yml switches it off for the page.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["healthcheck", "9292"]
ENTRYPOINT ["entrypoint"]
CMD ["barnabas", "--help"]
