# For those who build images with an engine of their own, on a base of their own. The image of a release is ready, and
# needs no engine (docs/adr/0043-a-release-is-files.md). The context is where scripts/package has left the tarball:
#   docker build --file Dockerfile --build-arg VERSION=0.1.0 --tag REGISTRY/kube-userspace-proxy:0.1.0 dist
#   docker run --network host --cap-drop ALL --cap-add NET_ADMIN --cap-add NET_RAW --cap-add NET_BIND_SERVICE \
#     -v /run/xtables.lock:/run/xtables.lock -v /etc/manifests:/etc/manifests:ro IMAGE --manifests /etc/manifests
#
# Why this base: distroless images have no iptables, Kubernetes' own that has them (distroless-iptables) lacks libstdc++,
# and Alpine lacks glibc, with which Node is built. Why not kmod: it would need SYS_MODULE; the kernel loads by itself
# what a rule needs.
FROM debian:bookworm-slim
RUN apt-get update \
  && apt-get install --yes --no-install-recommends iptables libstdc++6 nftables \
  && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/apt /var/log/dpkg.log /var/log/alternatives.log

LABEL org.opencontainers.image.title="kube-userspace-proxy" \
  org.opencontainers.image.description="TCP and UDP load balancer for Kubernetes Services on a node" \
  org.opencontainers.image.licenses="Apache-2.0"

ARG VERSION
# Docker says which: amd64 or arm64. It unpacks what it adds.
ARG TARGETARCH
ADD kube-userspace-proxy_${VERSION}_linux_${TARGETARCH}.tar.gz /usr/local/

# Saves about 8 MB: fewer memory pools, and large blocks go back to the kernel. See mallopt(3).
ENV MALLOC_ARENA_MAX=2 MALLOC_MMAP_THRESHOLD_=65536

# No USER: iptables-legacy takes a lock that only root can open, and capabilities that are added to a container count
# for uid 0 alone. NET_ADMIN and NET_RAW are for iptables and conntrack, NET_BIND_SERVICE for ports below 1024.
ENTRYPOINT ["/usr/local/sbin/kube-userspace-proxy"]
