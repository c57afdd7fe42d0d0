# The proxy with everything it needs on a node: iptables in both flavours and the pinned Node from the lockfile.
# Runs as root with NET_ADMIN, NET_RAW and NET_BIND_SERVICE, on the host's network:
#   docker run --network host --cap-drop ALL --cap-add NET_ADMIN --cap-add NET_RAW --cap-add NET_BIND_SERVICE \
#     -v /run/xtables.lock:/run/xtables.lock -v /lib/modules:/lib/modules:ro -v /etc/manifests:/etc/manifests:ro \
#     kube-userspace-proxy --manifests /etc/manifests
FROM node:24-bookworm-slim AS packages
WORKDIR /opt/kube-userspace-proxy
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts --omit=dev

FROM debian:bookworm-slim
RUN apt-get update \
  && apt-get install --yes --no-install-recommends iptables kmod \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/kube-userspace-proxy
COPY --from=packages /opt/kube-userspace-proxy/node_modules node_modules
COPY package.json LICENSE ./
COPY src src
# Not through the launcher in dist/: Node itself is process 1, so signals reach it.
ENTRYPOINT ["/opt/kube-userspace-proxy/node_modules/.bin/node", "/opt/kube-userspace-proxy/src/main.ts"]
