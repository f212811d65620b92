# Builds an image of the server, the command line client and haproxy on Debian 12. It
# runs without root, capabilities or a writable disk:
#
#   deploy/image
#   docker run --read-only --cap-drop ALL --stop-timeout 40 \
#     --publish 127.0.0.1:7070:7070 convgrad:0.1.0
#
# The same with the CUDA backend, for a machine with an NVIDIA GPU, its driver and
# the container toolkit:
#
#   deploy/image cuda
#   docker run --gpus all ... convgrad:0.1.0-cuda
#
# At a stop, the server lets calls finish for --drain_timeout, 30 s. Without
# --stop-timeout, Docker kills it after 10 s.
FROM debian:bookworm-slim AS tools
WORKDIR /build
COPY deploy deploy
RUN deploy/dependencies tracing

FROM tools AS build
COPY . .
# In the runtime image, the loader finds libraries in its default paths.
RUN cmake -S . -B out -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DBUILD_TESTING=OFF -DCMAKE_SKIP_RPATH=ON && \
    cmake --build out --target convgrad-server convgrad-cli
RUN install -D --strip --target-directory=/image/usr/local/bin \
      out/server/convgrad-server out/client/cpp/convgrad && \
    install -D --target-directory=/image/usr/local/lib \
      .cache/onednn/lib/libdnnl.so.3.2 && \
    ln -s libdnnl.so.3.2 /image/usr/local/lib/libdnnl.so.3 && \
    install -D --mode=644 LICENSE /image/usr/share/doc/convgrad/LICENSE && \
    cp -r .cache/onednn/share/doc/onednn /usr/share/doc/libcli11-dev /usr/share/doc/nlohmann-json3-dev \
      /image/usr/share/doc/ && \
    mkdir -p /image/usr/share/convgrad && cp -r deploy/haproxy /image/usr/share/convgrad/

FROM debian:bookworm-slim AS runtime
# Debian's backports have opentelemetry-cpp.
COPY --from=build /etc/apt/sources.list.d/convgrad-backports.list \
     /etc/apt/sources.list.d/
RUN apt-get update && \
    apt-get install -y --no-install-recommends \
      haproxy libcpp-httplib0.11 libgomp1 libgrpc++1.51 libhighwayhash0 libhwy1 \
      libprotobuf32 \
      libspdlog1.10 libprometheus-cpp-core1.0 libprometheus-cpp-pull1.0 libzip4 \
      opentelemetry-cpp && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/dpkg.log
COPY --from=build /image /
# Folders for sockets and --state_dir. A volume that is mounted there gets the folder's owner.
RUN install -d -o 10001 -g 10001 /run/convgrad /var/lib/convgrad
RUN ldconfig && ! ldd /usr/local/bin/convgrad-server /usr/local/bin/convgrad | grep 'not found'

ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="convgrad" \
      org.opencontainers.image.description="Convolution gradients over gRPC" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
USER 10001:10001
EXPOSE 7070 9464
STOPSIGNAL SIGTERM
# Health has its own plaintext port, so that the check needs no TLS settings.
# Docker checks first after one interval.
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=6 \
  CMD ["/usr/local/bin/convgrad-server", "--health_listen=127.0.0.1:7071", "--healthcheck"]
# Defaults for every command; a command can override them.
ENTRYPOINT ["/usr/local/bin/convgrad-server", "--health_listen=127.0.0.1:7071"]
CMD ["--listen=0.0.0.0:7070", "--metrics_listen=0.0.0.0:9464", "--insecure"]

# Toolkit and cuDNN come as wheels, so that the build needs no other image.
FROM tools AS tools-cuda
RUN deploy/dependencies cuda

# Copies only the libraries needed at run time: cuDNN's, and those that they load.
FROM tools-cuda AS build-cuda
COPY --from=build /build /build
RUN cmake -S . -B out -DCONVGRAD_WITH_CUDA=ON && \
    cmake --build out --target convgrad-server
RUN install -D --strip --target-directory=/image-cuda/usr/local/bin \
      out/server/convgrad-server && \
    mkdir -p /image-cuda/usr/local/lib && \
    cp -d .cache/cuda/lib/libcudnn*.so.* .cache/cuda/lib/libcublas*.so.* \
      .cache/cuda/lib/libnvrtc.so.* .cache/cuda/lib/libnvrtc-builtins.so.* \
      /image-cuda/usr/local/lib/

FROM runtime AS runtime-cuda
COPY --from=build-cuda /image-cuda /
USER 0
RUN ldconfig
USER 10001:10001
# Tells the container toolkit what to provide.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
