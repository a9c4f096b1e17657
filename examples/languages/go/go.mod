module languages

go 1.24

require (
	bellwire.dev/go v0.0.0
	google.golang.org/protobuf v1.36.6
)

require golang.org/x/sys v0.30.0 // indirect

replace bellwire.dev/go => ../../../go

tool google.golang.org/protobuf/cmd/protoc-gen-go
