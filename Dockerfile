# The image holds the static binary and nothing else.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
RUN make build VERSION=$VERSION

FROM scratch
COPY --from=build /src/bin/peerdns /peerdns
USER 65532:65532
EXPOSE 53/udp 53/tcp
ENTRYPOINT ["/peerdns"]
