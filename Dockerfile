# The proxy with everything it needs on a node: iptables in both flavours and the pinned Node from the lockfile.
# Runs as root with NET_ADMIN, NET_RAW and NET_BIND_SERVICE, on the host's network:
#   docker run --network host --cap-drop ALL --cap-add NET_ADMIN --cap-add NET_RAW --cap-add NET_BIND_SERVICE \
#     -v /run/xtables.lock:/run/xtables.lock -v /lib/modules:/lib/modules:ro -v /etc/manifests:/etc/manifests:ro \
#     kube-userspace-proxy --manifests /etc/manifests
FROM node:24-bookworm-slim AS build
WORKDIR /opt/kube-userspace-proxy
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts
COPY scripts scripts
COPY src src
RUN scripts/build
# What is not in the bundle: koffi, which has an addon, and Node.
RUN mkdir -p packages/@koromix \
  && cp -R node_modules/koffi node_modules/node-linux-* packages/ \
  && cp -R node_modules/@koromix/koffi-linux-* packages/@koromix/

FROM debian:bookworm-slim
RUN apt-get update \
  && apt-get install --yes --no-install-recommends iptables kmod \
  && rm -rf /var/lib/apt/lists/*
# At the same path, which the launcher has in it.
WORKDIR /opt/kube-userspace-proxy
COPY --from=build /opt/kube-userspace-proxy/packages node_modules
COPY --from=build /opt/kube-userspace-proxy/dist dist
COPY LICENSE ./
# The launcher replaces itself with Node, which so is process 1: signals reach it.
ENTRYPOINT ["/opt/kube-userspace-proxy/dist/kube-userspace-proxy"]
