# One image for brokers, controllers and the page; docker-compose.yml says which a container is.

# The very bytes of one image, for all its platforms; docker-compose.yml names it, too.
ARG BARNABAS_BASE_IMAGE=python:3.11.15-slim-bookworm@sha256:b18992999dbe963a45a8a4da40ac2b1975be1a776d939d098c647482bcad5cba
FROM ${BARNABAS_BASE_IMAGE}

# The number is fixed: it owns the data in volumes that outlive the image.
RUN useradd --uid 1000 --no-create-home --home-dir /var/lib/barnabas --shell /usr/sbin/nologin barnabas \
    && install --directory --owner=barnabas --group=barnabas /var/lib/barnabas

WORKDIR /usr/src/barnabas

# What we depend on changes seldom: a layer of its own. Nothing is installed whose hash is not in the list.
COPY docker/requirements.lock ./
RUN pip install --no-cache-dir --require-hashes --requirement requirements.lock

COPY . .
RUN pip install --no-cache-dir --no-deps --no-index --no-build-isolation . && rm -rf build *.egg-info

COPY cluster-configs/compose /etc/barnabas
COPY docker/entrypoint docker/healthcheck /usr/local/bin/

USER barnabas
WORKDIR /var/lib/barnabas
VOLUME /var/lib/barnabas
ENTRYPOINT ["entrypoint"]
CMD ["barnabas", "--help"]
