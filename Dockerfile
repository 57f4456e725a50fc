# One image for brokers, controllers and the page; docker-compose.yml says which a container is.

FROM python:3.11-slim-bookworm

# The number is fixed: it owns the data in volumes that outlive the image.
RUN useradd --uid 1000 --no-create-home --home-dir /var/lib/barnabas --shell /usr/sbin/nologin barnabas \
    && install --directory --owner=barnabas --group=barnabas /var/lib/barnabas

WORKDIR /usr/src/barnabas

# What we depend on changes seldom: a layer of its own.
COPY pyproject.toml ./
RUN python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
            print(*project['dependencies'], *project['optional-dependencies']['page'], sep='\n')" \
        > /tmp/requirements.txt \
    && pip install --no-cache-dir --requirement /tmp/requirements.txt \
    && rm /tmp/requirements.txt

COPY . .
RUN pip install --no-cache-dir --no-deps . && rm -rf build *.egg-info

COPY cluster-configs/compose /etc/barnabas
COPY docker/entrypoint docker/healthcheck /usr/local/bin/

USER barnabas
WORKDIR /var/lib/barnabas
VOLUME /var/lib/barnabas
ENTRYPOINT ["entrypoint"]
CMD ["barnabas", "--help"]
