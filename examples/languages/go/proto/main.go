// proto calls a provider in Rust with messages of google.golang.org/protobuf: one call for each line of its input.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	bellwire "bellwire.dev/go"
	"google.golang.org/protobuf/proto"

	"languages/disks"
)

// message lets any message of protobuf be a request or an answer.
type message[T any, P interface {
	*T
	proto.Message
}] struct{ m T }

func (m *message[T, P]) AppendBinary(b []byte) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(b, P(&m.m))
}

func (m *message[T, P]) UnmarshalBinary(b []byte) error { return proto.Unmarshal(b, P(&m.m)) }

type (
	ask  = message[disks.Ask, *disks.Ask]
	disk = message[disks.Disk, *disks.Disk]
)

func main() {
	schema := bellwire.Schema("proto:disks.v1.Ask -> proto:disks.v1.Disk")
	client, err := bellwire.NewClient[*ask, disk](bellwire.RunDir(), "disk-proto", schema, bellwire.Idempotent())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	names := bufio.NewScanner(os.Stdin)
	for names.Scan() {
		request := &ask{}
		request.m.Name = names.Text()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		// It finds the provider's successor by itself.
		answer, err := client.Call(ctx, request)
		cancel()
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%s: %d reads, %d writes\n", answer.m.GetName(), answer.m.GetReads(), answer.m.GetWrites())
	}
}
