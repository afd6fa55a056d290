module github.com/dibslock/dibs/contrib/dibsgrpc

go 1.26.0

require (
	google.golang.org/genproto/googleapis/rpc v0.0.0-20240227224415-6ceb2ff114de
	google.golang.org/grpc v1.63.0
	google.golang.org/protobuf v1.33.0
)

require (
	golang.org/x/net v0.21.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.14.0 // indirect
)
