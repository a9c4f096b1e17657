//go:build linux

package cgroups

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// example is the snapshot at the end of docs/cgroups-snapshot.md.
func example(t testing.TB) []byte {
	t.Helper()
	page, err := os.ReadFile("../../docs/cgroups-snapshot.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "## Example")
	_, rest, _ = strings.Cut(rest, "```\n")
	dump, _, _ := strings.Cut(rest, "```")
	var b []byte
	for line := range strings.Lines(dump) {
		// The offset, 16 bytes at most, and what they are.
		digits := strings.ReplaceAll(line[4:min(len(line), 4+16*3+1)], " ", "")
		line, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, line...)
	}
	return b
}

func TestTheExampleOfTheSpecification(t *testing.T) {
	s, err := Parse(example(t))
	if err != nil {
		t.Fatal(err)
	}
	c := s.ByID(5)
	if s.Len() != 1 || s.ScannedAt != 100 || s.Skipped != 2 || s.Mode != 2 || c == nil {
		t.Fatalf("%+v", s)
	}
	if c.Path != "/x" || c.Name != "foobar" || !c.Enabled || c.Orchestrator != Systemd || c.Options != Unified || c.Labels != nil {
		t.Fatalf("%+v", c)
	}
	if s.ByPath("/x") != c || s.ByName("foobar") != c || s.ByID(6) != nil || s.ByPath("/y") != nil {
		t.Fatal("look-ups")
	}
}

// No byte of the example may have another value, but those that may.
func TestEachByteIsChecked(t *testing.T) {
	valid := example(t)
	free := map[int]string{}
	for at := 0x10; at < 0x18; at++ {
		free[at] = "scanned_at"
	}
	for at := 0x2c; at < 0x30; at++ {
		free[at] = "skipped"
	}
	for at := 0x40; at < 0x48; at++ {
		free[at] = "id"
	}
	for at := range valid {
		for _, flip := range []byte{1, 0x80} {
			b := bytes.Clone(valid)
			b[at] ^= flip
			_, err := Parse(b)
			// Another mode, orchestrator, option, flag and path are as good.
			mayBe := free[at] != "" || at == 0x34 || at == 0x5c || at == 0x5d || at == 0x60 || at == 0x61 || at == 0x71
			if err == nil && !mayBe {
				t.Errorf("byte %#x with %#x was taken", at, flip)
			}
			if err != nil && free[at] != "" {
				t.Errorf("%s: %v", free[at], err)
			}
		}
	}
	for length := range valid {
		if _, err := Parse(valid[:length]); err == nil {
			t.Errorf("%d bytes were taken", length)
		}
	}
}

// build writes a snapshot of cgroups in the order of their paths, unchecked.
func build(items []Cgroup, hierarchies ...Pair) []byte {
	var table, pairs, texts []byte
	put := func(list []Pair) {
		for _, p := range list {
			pairs = le.AppendUint16(le.AppendUint16(pairs, uint16(len(p.Name))), uint16(len(p.Value)))
			texts = append(append(texts, p.Name...), p.Value...)
		}
	}
	put(hierarchies)
	for _, c := range items {
		item := make([]byte, itemLen)
		le.PutUint64(item, c.ID)
		le.PutUint64(item[8:], Hash(c.Name))
		le.PutUint32(item[0x10:], uint32(len(texts)))
		le.PutUint32(item[0x14:], uint32(len(texts)+len(c.Path)))
		le.PutUint16(item[0x18:], uint16(len(c.Path)))
		le.PutUint16(item[0x1a:], uint16(len(c.Name)))
		item[0x22] = byte(len(c.Labels))
		texts = append(append(texts, c.Path...), c.Name...)
		put(c.Labels)
		table = append(table, item...)
	}
	b := make([]byte, headerLen)
	copy(b, "BWCGRP\r\n")
	total := len(b) + len(table) + len(pairs) + len(texts)
	for at, value := range map[int]int{
		8: 1, 0xc: total, 0x18: len(items), 0x1c: itemLen, 0x20: headerLen, 0x24: total - len(texts), 0x28: len(texts),
		0x30: len(pairs) / pairLen, 0x34: 2 | len(hierarchies)<<8,
	} {
		le.PutUint32(b[at:], uint32(value))
	}
	return append(append(append(b, table...), pairs...), texts...)
}

func TestLabelsAndHierarchies(t *testing.T) {
	label := []Pair{{"image", "w:1"}, {"empty", ""}}
	b := build([]Cgroup{{ID: 1, Path: "/", Name: "n"}, {ID: 2, Path: "/a", Name: "n", Labels: label}}, Pair{"unified", "/sys/fs/cgroup"})
	s, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if s.Hierarchies[0].Value != "/sys/fs/cgroup" || s.ByPath("/a").Labels[0] != label[0] || s.ByPath("/a").Labels[1] != label[1] {
		t.Fatalf("%+v", s)
	}
	if s.ByName("n").Path != "/" {
		t.Fatal("a name is not that of the first path")
	}
}

func TestSnapshotsThatBreakARuleAreRefused(t *testing.T) {
	one := func(path, name string) []Cgroup { return []Cgroup{{ID: 1, Path: path, Name: name}} }
	for what, items := range map[string][]Cgroup{
		"relative": one("a", "n"), "end": one("/a/", "n"), "empty part": one("//a", "n"), "dot": one("/a/.", "n"), "up": one("/../a", "n"),
		"no name": one("/a", ""), "UTF-8": one("/\xff", "n"), "control": one("/a", "\x1b[m"), "C1": one("/a", "\u0085"),
		"long name": one("/a", strings.Repeat("n", 256)), "long path": one("/"+strings.Repeat("a", 4095), "n"), "id 0": {{Path: "/", Name: "n"}},
		"order":    {{ID: 1, Path: "/b", Name: "n"}, {ID: 2, Path: "/a", Name: "n"}},
		"twice":    {{ID: 1, Path: "/a", Name: "n"}, {ID: 2, Path: "/a", Name: "n"}},
		"same ids": {{ID: 1, Path: "/a", Name: "n"}, {ID: 1, Path: "/b", Name: "n"}},
	} {
		if _, err := Parse(build(items)); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(example(f))
	f.Add(build([]Cgroup{{ID: 1, Path: "/", Name: "n", Labels: []Pair{{"a", "b"}}}}, Pair{"unified", "/"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			return
		}
		for c := range s.All() {
			if s.ByID(c.ID) != c || s.ByPath(c.Path) != c || s.ByName(c.Name) == nil {
				t.Errorf("%+v is not found", c)
			}
		}
	})
}

// many is a snapshot with so many cgroups.
func many(t testing.TB, count int) *Snapshot {
	t.Helper()
	items := make([]Cgroup, count)
	for i := range items {
		items[i] = Cgroup{ID: uint64(i)*7919 + 1, Path: fmt.Sprintf("/system.slice/unit-%06d.service", i), Name: fmt.Sprintf("unit-%06d", i)}
	}
	s, err := Parse(build(items))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// onProcessor runs a look-up that has to find something, and reports what it takes of the processor, whatever else runs there.
func onProcessor(b *testing.B, lookUp func(i int) *Cgroup) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() int64 {
		var at unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
			b.Fatal(err)
		}
		return at.Nano()
	}
	start := now()
	for i := range b.N {
		if lookUp(i&1023) == nil {
			b.Fatal(i)
		}
	}
	b.ReportMetric(float64(now()-start)/float64(b.N), "cpu-ns/op")
}

func BenchmarkByID(b *testing.B) {
	s := many(b, 1024)
	onProcessor(b, func(i int) *Cgroup { return s.ByID(uint64(i)*7919 + 1) })
}

func BenchmarkByName(b *testing.B) {
	s := many(b, 1024)
	names := make([]string, 1024)
	for i, c := range s.items {
		names[i] = strings.Clone(c.Name)
	}
	onProcessor(b, func(i int) *Cgroup { return s.ByName(names[i]) })
}
