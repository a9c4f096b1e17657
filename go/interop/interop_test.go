//go:build linux

// Package interop runs two real processes against each other, each in Rust, C or Go, and kills them. It checks the table of
// docs/interop.md, and with -update it writes it.
package interop

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bellwire.dev/go/internal/vectors"
)

var (
	update = flag.Bool("update", false, "write the table of docs/interop.md")
	long   = flag.Bool("long", false, "every doorbell of a client with every doorbell of a server, and more kills")
)

// peer is a program that plays either end.
type peer struct {
	name    string
	command []string
	rung    []string // doorbells as a client
	serves  []string // doorbells as a server
}

// scenarios are what a client plays against a server that goes on.
var scenarios = []struct{ name, what string }{
	{"calls", "calls of 0 bytes to 5 MiB, and a failure with its code and reason"},
	{largest, "a call of 64 MiB"},
	{"pipeline", "20 000 requests, as many in flight as there is room for"},
	{"batches", "a batch of 1000"},
	{"posts", "10 000 one-way requests, and a flush"},
	{"events", "200 events in order"},
	{"snapshots", "snapshots of 16 bytes to 12 MB, by ring and by memfd"},
	{"resize", "lanes that grow and are trimmed"},
	{"cancel", "a cancelled request"},
	{"deadlines", "a deadline that passes"},
	{"fingerprint", "fingerprints that differ"},
	{"version", "a version that the provider does not serve"},
}

const (
	largest = "largest" // which takes long
	restart = "a provider is killed, and another one comes"
	killed  = "a client is killed again and again, and its sessions are gone"
)

var allDoorbells = []string{"futex", "eventfd", "socket"}

// peers builds the programs in Go and C, and finds what ci/go has built with cargo.
func peers(t *testing.T) []peer {
	t.Helper()
	dir := t.TempDir()
	build := func(name string, command ...string) string {
		binary := filepath.Join(dir, name)
		command = slices.Insert(command, 2, "-o", binary)
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
		return binary
	}
	golang := build("bellwire-go", "go", "build", "../cmd/bellwire-go")
	c := build("bellwire-c", "cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-I../../c/include", "../../c/tests/c/interop.c",
		rust(t, "libbellwire_c.a"), "-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl")
	return []peer{
		{"Rust", []string{rust(t, "examples/interop")}, allDoorbells, allDoorbells},
		// Its server has no choice of doorbells.
		{"C", []string{c}, allDoorbells, allDoorbells[:1]},
		// It waits on no futex.
		{"Go", []string{golang, "interop"}, allDoorbells[1:], allDoorbells[1:]},
	}
}

// rust is what cargo has built.
func rust(t *testing.T, name string) string {
	t.Helper()
	target := os.Getenv("CARGO_TARGET_DIR")
	if target == "" {
		target = "../../target"
	}
	path := filepath.Join(target, "debug", name)
	if _, err := os.Stat(path); err != nil {
		t.Skip("nothing to talk to: run ci/go, which builds it: ", err)
	}
	return path
}

// process is one that was started, and is killed at the end of the test.
type process struct {
	*exec.Cmd
	out    *bufio.Reader
	errors bytes.Buffer
}

func start(t *testing.T, dir string, command ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(command[0], command[1:]...)}
	p.Env = append(os.Environ(), "BELLWIRE_RUN_DIR="+dir)
	p.Stderr = &p.errors
	// It ends with its input.
	if _, err := p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

// expects waits for a line, which must be this one.
func (p *process) expects(t *testing.T, line string) {
	t.Helper()
	got, err := p.out.ReadString('\n')
	if strings.TrimSpace(got) != line {
		_ = p.Wait()
		t.Fatalf("%s said %q, %v\n%s", p, got, err, p.errors.String())
	}
}

func (p peer) start(t *testing.T, dir, scenario, doorbell string) *process {
	t.Helper()
	return start(t, dir, append(slices.Clone(p.command), scenario, doorbell)...)
}

// ends is a client and a server, with their doorbells.
type ends struct {
	client, server   peer
	rung, serverRung string
	first            bool // of these languages
}

func (e ends) String() string { return e.client.name + " to " + e.server.name }

func (e ends) serve(t *testing.T, dir string) *process {
	t.Helper()
	server := e.server.start(t, dir, "serve", e.serverRung)
	server.expects(t, "ready")
	return server
}

func (e ends) play(t *testing.T, dir, scenario string) *process {
	t.Helper()
	return e.client.start(t, dir, scenario, e.rung)
}

// pairs are all that talk to each other: each doorbell of each end, and in a long run every pair of doorbells.
func pairs(all []peer) (list []ends) {
	for _, client := range all {
		for _, server := range all {
			n, m := len(client.rung), len(server.serves)
			for i := range n * m {
				if *long {
					list = append(list, ends{client, server, client.rung[i/m], server.serves[i%m], i == 0})
				} else if i < max(n, m) {
					list = append(list, ends{client, server, client.rung[i%n], server.serves[i%m], i == 0})
				}
			}
		}
	}
	return list
}

// table is which rows hold in which columns.
type table struct {
	mu    sync.Mutex
	tried map[[2]string]bool
}

func newTable() *table { return &table{tried: map[[2]string]bool{}} }

// row runs a cell, or a part of it: it holds if all parts do.
func (m *table) row(t *testing.T, what, column string, run func(t *testing.T)) {
	held := t.Run(what, run)
	m.mu.Lock()
	defer m.mu.Unlock()
	cell := [2]string{what, column}
	before, ok := m.tried[cell]
	m.tried[cell] = held && (before || !ok)
}

func scenarioRows() (rows []string) {
	for _, scenario := range scenarios {
		rows = append(rows, scenario.what)
	}
	return append(rows, restart, killed)
}

func columnsOf(all []peer) (columns []string) {
	for _, client := range all {
		for _, server := range all {
			columns = append(columns, ends{client: client, server: server}.String())
		}
	}
	return columns
}

func (m *table) format(rows, columns []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| what | %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)+1))
	for _, what := range rows {
		b.WriteString("| " + what)
		for _, column := range columns {
			b.WriteString(" | " + map[bool]string{true: "yes", false: "no"}[m.tried[[2]string{what, column}]])
		}
		b.WriteString(" |\n")
	}
	return b.String()
}

// check compares a table of the documentation, or writes it.
func (m *table) check(t *testing.T, name, is string) {
	const page = "../../docs/interop.md"
	from, to := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), from)
	was, tail, ok := strings.Cut(rest, to)
	switch {
	case !ok:
		t.Fatalf("%s has no place for the table %q", page, name)
	case *update:
		err = os.WriteFile(page, []byte(head+from+is+to+tail), 0o644)
	case was != is:
		err = fmt.Errorf("%s says otherwise, go test ./interop -update writes it:\n%s", page, is)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestTheTableOfTheDocumentationHolds(t *testing.T) {
	all := peers(t)
	m := newTable()
	t.Run("matrix", func(t *testing.T) {
		for _, e := range pairs(all) {
			t.Run(fmt.Sprintf("%v by %s and %s", e, e.rung, e.serverRung), func(t *testing.T) {
				t.Parallel()
				e.run(t, m)
			})
		}
	})
	m.check(t, "pairs", m.format(scenarioRows(), columnsOf(all)))
}

// run plays all rows between two programs.
func (e ends) run(t *testing.T, m *table) {
	dir := t.TempDir()
	provider := e.serve(t, dir)
	for _, scenario := range scenarios {
		if scenario.name == largest && !e.first && !*long {
			continue
		}
		m.row(t, scenario.what, e.String(), func(t *testing.T) { e.play(t, dir, scenario.name).expects(t, "ok") })
	}
	m.row(t, killed, e.String(), func(t *testing.T) {
		for range 5 {
			caller := e.play(t, dir, "forever")
			until(t, "it calls", func() bool { return sessions(t, provider) > 0 })
			caller.kill()
			until(t, "its session is gone", func() bool { return sessions(t, provider) == 0 })
		}
		e.play(t, dir, "batches").expects(t, "ok")
	})
	m.row(t, restart, e.String(), func(t *testing.T) {
		caller := e.play(t, dir, "restart")
		caller.expects(t, "called")
		provider.kill()
		e.serve(t, dir)
		caller.expects(t, "ok")
	})
}

// sessions is how many pages of sessions a process has mapped.
func sessions(t *testing.T, p *process) int {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "bellwire-page-")
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 2000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("never: ", what)
}

const (
	refuses = "as a server, it refuses each first message to one, and other versions, with the code"
	blames  = "as a client, it ends at each first message to one, and other versions, as the provider's fault"
)

// The first messages of docs/wire/vectors/control-bad.txt, to a process of each language.
func TestFirstMessagesOfTheVectors(t *testing.T) {
	all := peers(t)
	m := newTable()
	cases := vectors.Read(t, "../../docs/wire/vectors/control-bad.txt")
	var columns []string
	for _, p := range all {
		columns = append(columns, p.name)
		m.row(t, refuses, p.name, func(t *testing.T) { refusesEach(t, p, cases) })
		m.row(t, blames, p.name, func(t *testing.T) { blamesEach(t, p, cases) })
	}
	m.check(t, "vectors", m.format([]string{refuses, blames}, columns))
}

func TestTheCommandShowsAProviderInGo(t *testing.T) {
	command := rust(t, "bellwire")
	dir := t.TempDir()
	golang := peers(t)[2]
	golang.start(t, dir, "serve", "eventfd").expects(t, "ready")
	bellwire := func(args ...string) string {
		cmd := exec.Command(command, append([]string{"--run-dir", dir}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("bellwire %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	has := func(out string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("no %q in\n%s", word, out)
			}
		}
	}
	caller := golang.start(t, dir, "forever", "eventfd")
	has(bellwire("ls"), "interop-echo", "interop-clock", "alive")
	has(bellwire("ping", "interop-echo", "-c", "3", "-i", "0s"), "3 answered")
	has(bellwire("stat", "interop-echo"), "interop-echo", "eventfd")
	has(bellwire("stat", "--format", "openmetrics"), "bellwire_")
	has(bellwire("watch", "interop-news", "--oldest", "--count", "3", "--timeout", "10s"), "0000000000")
	has(bellwire("top", "--once"), "interop-echo")
	caller.kill()
}

func TestGoReadsWhatTheCommandProvides(t *testing.T) {
	command := rust(t, "bellwire")
	dir := t.TempDir()
	start(t, dir, command, "provide", "apps")
	binary := peers(t)[2].command[0]
	// Process 1 is known to every kernel.
	caller := start(t, dir, binary, "call", "apps-lookup", "01000000")
	line, err := caller.out.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "01") {
		t.Fatalf("%q, %v\n%s", line, err, caller.errors.String())
	}
}
