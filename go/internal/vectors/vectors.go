//go:build linux

// Package vectors reads the files of docs/wire/vectors for tests.
package vectors

import (
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Case is one case of a file: its name, and its other lines in order, each as a key and a value.
type Case struct {
	Name  string
	Lines [][2]string
}

// Read returns the cases of a file, of which there is at least one.
func Read(t testing.TB, path string) []Case {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var cases []Case
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, _ := strings.Cut(line, " ")
		if key == "case" {
			cases = append(cases, Case{Name: value})
			continue
		}
		last := &cases[len(cases)-1]
		last.Lines = append(last.Lines, [2]string{key, value})
	}
	if len(cases) == 0 {
		t.Fatal("no cases in ", path)
	}
	return cases
}

// Text returns the first value of a key, or "".
func (c Case) Text(key string) string {
	for _, line := range c.Lines {
		if line[0] == key {
			return line[1]
		}
	}
	return ""
}

// Number returns the first value of a key as a number.
func (c Case) Number(t testing.TB, key string) uint64 { return Number(t, c.Text(key)) }

// Bytes returns the bytes of all lines of a key.
func (c Case) Bytes(t testing.TB, key string) (all []byte) {
	for _, line := range c.Lines {
		if line[0] == key {
			all = append(all, Bytes(t, line[1])...)
		}
	}
	return all
}

// Number reads a number, in hexadecimal digits behind 0x.
func Number(t testing.TB, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Bytes reads hexadecimal digits.
func Bytes(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
