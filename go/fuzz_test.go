//go:build linux

package bellwire

import (
	"bytes"
	"testing"
	"unsafe"

	"bellwire.dev/go/internal/vectors"
)

// seeds adds the bytes of every case of some vectors.
func seeds(f *testing.F, key string, files ...string) {
	for _, file := range files {
		for _, v := range casesOf(f, file) {
			f.Add(v.Bytes(f, key))
		}
	}
}

func FuzzControlMessage(f *testing.F) {
	seeds(f, "bytes", "control.txt", "control-bad.txt")
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 8 {
			return
		}
		fds := int(le.Uint16(b[6:]))
		again, err := reencode(b, fds)
		if err == nil && len(again) != len(b) {
			t.Fatalf("%x became %x", b, again)
		}
		_, _ = options{serviceVersion: 1}.readHello(b, fds, "increment")
	})
}

func FuzzHeaders(f *testing.F) {
	seeds(f, "bytes", "memory.txt", "memory-bad.txt")
	seeds(f, "header", "broadcast.txt")
	f.Fuzz(func(_ *testing.T, b []byte) {
		if len(b) < memoryHeaderSize {
			return
		}
		_ = pageHeader{role: roleClient, name: "increment"}.check(b)
		_ = checkBoard(b, "increment")
		_, _ = parseRing(b, "increment")
	})
}

func FuzzBatch(f *testing.F) {
	seeds(f, "bytes", "batches.txt", "batches-bad.txt")
	f.Fuzz(func(t *testing.T, b []byte) {
		items, err := parseBatch(b)
		if err != nil {
			return
		}
		again, err := parseBatch(appendBatch(nil, items))
		if err != nil || len(again) != len(items) {
			t.Fatalf("%x: %v", b, err)
		}
		for i := range items {
			if again[i].Status != items[i].Status || !bytes.Equal(again[i].Bytes, items[i].Bytes) {
				t.Fatalf("%x, item %d", b, i)
			}
		}
	})
}

// FuzzLane reads a lane whose bytes and words are the peer's, in each role.
func FuzzLane(f *testing.F) {
	seeds(f, "bytes", "records.txt")
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, toServer := range []bool{false, true} {
			r := receiver{
				mem: alignedMemory(4096), epoch: epoch{1, 4096}, toServer: toServer, least: 4096, largest: 8192,
				maxMessage: 1024, waits: func(id uint64) bool { return id%2 == 1 },
			}
			copy(r.mem, b)
			if r.checkTail(min(uint64(len(b))&^15, 4096)) != nil {
				t.Fatal("the tail")
			}
			for {
				h, ok, err := r.peek()
				if err != nil || !ok || h.kind == kindSwitch {
					break
				}
				if r.head+h.size() > r.tail || len(r.payload(h)) != int(h.len) {
					t.Fatalf("%+v reaches behind the tail", h)
				}
				r.advance(h)
			}
		}
	})
}

// alignedMemory is as a map: its words are whole ones.
func alignedMemory(size int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint64, size/8)))), size)
}

// FuzzBroadcastRing reads a ring whose bytes and words are the peer's.
func FuzzBroadcastRing(f *testing.F) {
	for _, file := range []string{"broadcast.txt", "broadcast-bad.txt"} {
		for _, v := range casesOf(f, file) {
			if v.Text("tail") == "" {
				continue
			}
			var records []byte
			for _, line := range v.Lines {
				if line[0] == "records" {
					records = append(records, vectors.Bytes(f, line[1][len("0x0000 "):])...)
				}
			}
			f.Add(records, v.Number(f, "oldest"), v.Number(f, "intent"), v.Number(f, "latest"), v.Number(f, "tail"))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, oldest, intent, latest, tail uint64) {
		ring := words(alignedMemory(broadcastStart + 4096))
		copy(ring[broadcastStart:], b)
		for offset, word := range map[int]uint64{
			wordOldest: oldest, wordIntent: intent, wordLatest: latest, wordPublished: tail,
		} {
			ring.store(offset, word)
		}
		c := newRingReader(ring, ringHeader{size: 4096, number: 1, first: 1})
		for range 4096 {
			before := c.at
			r, ok, err := c.next(nil)
			if err != nil || !ok || r.next != 0 {
				return
			}
			if len(r.bytes) > 1008 || c.at <= before {
				t.Fatalf("%+v", r)
			}
		}
		_, _ = c.toNewest()
	})
}
