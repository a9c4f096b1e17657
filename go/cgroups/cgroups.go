//go:build linux

// Package cgroups reads snapshots of the service cgroups-snapshot: every cgroup of a machine at one moment, as
// docs/cgroups-snapshot.md specifies them. A snapshot comes from another process, and nothing of it is used before it was checked.
package cgroups

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Service is the name of the service.
const Service = "cgroups-snapshot"

// Options are properties of a cgroup, as bits.
type Options uint32

// The options of a cgroup.
const (
	Root          Options = 1 << iota // the root of its hierarchy
	Unified                           // in the unified (v2) hierarchy
	Legacy                            // in at least one v1 hierarchy
	Populated                         // a process is in it, or in a cgroup below it
	Leaf                              // it has no child
	SystemService                     // a systemd service directly below /system.slice
	Nested                            // inside the container, virtual machine or unit that named it
	Secondary                         // not in the primary hierarchy: the top 8 bits of its ID are the place of its own in Hierarchies
	Pending                           // a source of names has not answered yet: its name may change
	endOfOptions
)

// Orchestrator is the software that manages a cgroup, as far as its path shows.
type Orchestrator uint8

// The known ones.
const (
	Unknown Orchestrator = iota // the path fits no pattern
	Systemd                     // a service, slice, scope or other unit
	Docker
	Kubernetes // a pod, or a container in one
	KVM        // a virtual machine of libvirt or Proxmox
	LXC        // LXC, LXD, Incus or libvirt-lxc
	Podman
	Nspawn     // systemd-nspawn, or another machine that systemd-machined registered
	Containerd // containerd without Kubernetes
	Nomad      // Nomad's own drivers
	endOfOrchestrators
)

// Pair is a label of a cgroup, or a hierarchy and where the provider has it mounted.
type Pair struct{ Name, Value string }

// Cgroup is one item of a snapshot.
type Cgroup struct {
	ID           uint64 // inode of its directory; what eBPF calls its id, unless it is Secondary
	NameHash     uint64 // FNV-1a of Name
	Path, Name   string // Path begins at the root of its hierarchy
	Options      Options
	Enabled      bool // there is something to collect: it is populated, or a resource controller accounts it
	Orchestrator Orchestrator
	Labels       []Pair // what the source of its name told besides it, in the provider's order
}

// Snapshot is a snapshot that was checked. It does not change, and any number of goroutines may read it.
type Snapshot struct {
	ScannedAt   uint64 // nanoseconds since 1970
	Skipped     uint32 // directories that were left out
	Mode        uint8  // 1: v1, 2: v2, 3: hybrid
	Hierarchies []Pair // the first is the primary one

	items  []Cgroup
	byID   map[uint64]*Cgroup
	byPath map[string]*Cgroup
	byName map[string]*Cgroup
}

// Len is how many cgroups there are.
func (s *Snapshot) Len() int { return len(s.items) }

// All yields the cgroups in the order of their paths.
func (s *Snapshot) All() iter.Seq[*Cgroup] {
	return func(yield func(*Cgroup) bool) {
		for i := range s.items {
			if !yield(&s.items[i]) {
				return
			}
		}
	}
}

// ByID is the cgroup with this id, or nil.
func (s *Snapshot) ByID(id uint64) *Cgroup { return s.byID[id] }

// ByPath is the cgroup with this path, or nil.
func (s *Snapshot) ByPath(path string) *Cgroup { return s.byPath[path] }

// ByName is the first cgroup, in the order of paths, with this name, or nil.
func (s *Snapshot) ByName(name string) *Cgroup { return s.byName[name] }

const (
	headerLen   = 64
	itemLen     = 48
	pairLen     = 4
	mostItems   = 1_000_000
	longestPath = 4095
	longestName = 255
	longestText = 4095
)

// Malformed is a snapshot that breaks a rule.
type Malformed string

func (m Malformed) Error() string { return "cgroups: malformed snapshot: " + string(m) }

var le = binary.LittleEndian

// Parse checks a snapshot, and copies it.
func Parse(b []byte) (*Snapshot, error) {
	if len(b) < headerLen || len(b) > 1<<30 || string(b[:8]) != "BWCGRP\r\n" || le.Uint32(b[8:]) != 1 || int(le.Uint32(b[0xc:])) != len(b) {
		return nil, Malformed("length, magic or layout")
	}
	items, pairs := uint64(le.Uint32(b[0x18:])), uint64(le.Uint32(b[0x30:]))
	pairsAt := headerLen + itemLen*items
	textsAt := pairsAt + pairLen*pairs
	if items > mostItems || textsAt > uint64(len(b)) {
		return nil, Malformed("counts")
	}
	if le.Uint32(b[0x1c:]) != itemLen || le.Uint32(b[0x20:]) != headerLen || uint64(le.Uint32(b[0x24:])) != textsAt ||
		uint64(le.Uint32(b[0x28:])) != uint64(len(b))-textsAt {
		return nil, Malformed("offsets")
	}
	s := &Snapshot{
		ScannedAt: le.Uint64(b[0x10:]), Skipped: le.Uint32(b[0x2c:]), Mode: b[0x34],
		items: make([]Cgroup, items), byID: make(map[uint64]*Cgroup, items),
		byPath: make(map[string]*Cgroup, items), byName: make(map[string]*Cgroup, items),
	}
	if s.Mode < 1 || s.Mode > 3 || !isZero(b[0x36:headerLen]) {
		return nil, Malformed("header")
	}
	r := reader{pairs: b[pairsAt:textsAt], texts: string(b[textsAt:])}
	var err error
	if s.Hierarchies, err = r.take(int(b[0x35])); err != nil {
		return nil, err
	}
	for i := range s.items {
		item := b[headerLen+itemLen*i:][:itemLen]
		if err := s.parseItem(i, item, &r); err != nil {
			return nil, fmt.Errorf("%w, of item %d", err, i)
		}
	}
	if len(r.pairs) > 0 || r.at != len(r.texts) {
		return nil, Malformed("what no item has")
	}
	return s, nil
}

func (s *Snapshot) parseItem(i int, b []byte, r *reader) (err error) {
	c := &s.items[i]
	c.ID, c.NameHash = le.Uint64(b), le.Uint64(b[8:])
	c.Options, c.Enabled, c.Orchestrator = Options(le.Uint32(b[0x1c:])), b[0x20] == 1, Orchestrator(b[0x21])
	if c.Options >= endOfOptions || b[0x20] > 1 || c.Orchestrator >= endOfOrchestrators || !isZero(b[0x23:]) {
		return Malformed("option, flag or orchestrator")
	}
	if c.Path, err = r.text(le.Uint32(b[0x10:]), le.Uint16(b[0x18:]), longestPath); err != nil {
		return err
	}
	if c.Name, err = r.text(le.Uint32(b[0x14:]), le.Uint16(b[0x1a:]), longestName); err != nil {
		return err
	}
	if c.Labels, err = r.take(int(b[0x22])); err != nil {
		return err
	}
	switch {
	case !isPath(c.Path):
		return Malformed("path")
	case i > 0 && c.Path <= s.items[i-1].Path:
		return Malformed("order of paths")
	case c.ID == 0 || s.byID[c.ID] != nil:
		return Malformed("id")
	case c.NameHash != Hash(c.Name):
		return Malformed("hash of the name")
	}
	s.byID[c.ID], s.byPath[c.Path] = c, c
	if s.byName[c.Name] == nil {
		s.byName[c.Name] = c
	}
	return nil
}

// Hash is the hash of a name: FNV-1a of 64 bits.
func Hash(name string) uint64 {
	hash := uint64(0xcbf29ce484222325)
	for i := range len(name) {
		hash = (hash ^ uint64(name[i])) * 0x100000001b3
	}
	return hash
}

// reader takes texts in the order in which they have to lie.
type reader struct {
	pairs []byte
	texts string
	at    int
}

// text takes the next text, which has to be this one.
func (r *reader) text(offset uint32, length uint16, longest int) (string, error) {
	if uint64(offset) != uint64(r.at) || length == 0 {
		return "", Malformed("place of a text")
	}
	return r.next(int(length), longest)
}

func (r *reader) next(length, longest int) (string, error) {
	if length > longest || length > len(r.texts)-r.at {
		return "", Malformed("length of a text")
	}
	text := r.texts[r.at : r.at+length]
	r.at += length
	if !isText(text) {
		return "", Malformed("text: not UTF-8, or with a control character")
	}
	return text, nil
}

// take takes the next pairs and their texts.
func (r *reader) take(count int) ([]Pair, error) {
	if count == 0 {
		return nil, nil
	}
	if pairLen*count > len(r.pairs) {
		return nil, Malformed("count of pairs")
	}
	list := make([]Pair, count)
	for i := range list {
		name, value := int(le.Uint16(r.pairs)), int(le.Uint16(r.pairs[2:]))
		r.pairs = r.pairs[pairLen:]
		if name == 0 {
			return nil, Malformed("name of a pair")
		}
		var err error
		if list[i].Name, err = r.next(name, longestName); err != nil {
			return nil, err
		}
		if list[i].Value, err = r.next(value, longestText); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func isZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

func isText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// isPath reports whether a path can be appended to a mount point and leads nowhere else.
func isPath(text string) bool { return path.IsAbs(text) && path.Clean(text) == text }
