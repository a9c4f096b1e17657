// disk-stats is the consumer of docs/tutorial.md in Go: it asks for one disk, or counts all of them and waits for new ones.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	bellwire "bellwire.dev/go"
)

const noSuchDisk = 1

type disk struct {
	Name          string
	Reads, Writes uint64
}

// UnmarshalBinary takes a disk from a message, of which nothing is known but its length.
func (d *disk) UnmarshalBinary(b []byte) error {
	var fixed struct {
		NameLen, _    uint32
		Reads, Writes uint64
	}
	n, err := binary.Decode(b, binary.LittleEndian, &fixed)
	if err != nil || int(fixed.NameLen) != len(b)-n {
		return errors.New("the message is no disk")
	}
	*d = disk{string(b[n:]), fixed.Reads, fixed.Writes}
	return nil
}

func ask(dir, name string) error {
	// A provider whose types are others refuses this client.
	schema := bellwire.Schema("str -> {name:str,reads:u64,writes:u64}")
	client, err := bellwire.NewClient[bellwire.Bytes, disk](dir, "disk-stats", schema, bellwire.Idempotent())
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	d, err := client.Call(ctx, bellwire.Bytes(name))
	var failed *bellwire.CallError
	switch {
	case errors.As(err, &failed) && failed.Code == noSuchDisk:
		fmt.Println("no disk", name)
	case err != nil:
		return err
	default:
		fmt.Printf("%s: %d reads, %d writes\n", d.Name, d.Reads, d.Writes)
	}
	return nil
}

func follow(dir string) error {
	ctx := context.Background()
	all, err := bellwire.NewSnapshotReader(dir, "disk-list")
	if err != nil {
		return err
	}
	defer all.Close()
	snapshot, err := all.Next(ctx)
	if err != nil {
		return err
	}
	// The list begins with the number of its disks.
	var count uint32
	if _, err := binary.Decode(snapshot.Bytes, binary.LittleEndian, &count); err != nil {
		return err
	}
	fmt.Println(count, "disks")
	appeared, err := bellwire.Subscribe(ctx, dir, "disk-appeared", true)
	if err != nil {
		return err
	}
	defer appeared.Close()
	for {
		event, err := appeared.Next(ctx)
		if err != nil {
			return err
		}
		if event.Missed > 0 {
			fmt.Println(event.Missed, "more appeared")
		}
		var d disk
		if err := d.UnmarshalBinary(event.Bytes); err != nil {
			return err
		}
		fmt.Println(d.Name, "appeared")
	}
}

func main() {
	run := func() error { return follow(bellwire.RunDir()) }
	if len(os.Args) > 1 {
		run = func() error { return ask(bellwire.RunDir(), os.Args[1]) }
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
