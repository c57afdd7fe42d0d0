module userspace-proxy.bench.invalid

go 1.19
