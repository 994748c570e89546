// The laws of this module that a compiler does not keep. Each says why it
// exists and what to do when it is broken; a law that turns out wrong is changed
// here, in the open, with its reason, not worked around.
//
// This file holds the laws on imports and packages; the files laws_*_test.go, those that their names say (laws_shape_test.go: what makes a
// package hard to read); source_test.go reads the source for them. Other modules (contrib, bench, tools, examples/sqlfence) are not in the
// table of rooms.
package chubby_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/chubbylock/chubby"

// Libraries that are confined to the rooms that name them. Other libraries go
// where they serve.
const (
	raft    = "github.com/hashicorp/raft"
	boltlog = "github.com/hashicorp/raft-boltdb/v2"
	walLog  = "github.com/hashicorp/raft-wal"
	hclog   = "github.com/hashicorp/go-hclog"
	bbolt   = "go.etcd.io/bbolt"
	btree   = "github.com/tidwall/btree"
	grpc    = "google.golang.org/grpc"
	bufconn = "google.golang.org/grpc/test/bufconn"
	proto   = "google.golang.org/protobuf"
	cobra   = "github.com/spf13/cobra"
	minio   = "github.com/minio/minio-go/v7"
	miekg   = "github.com/miekg/dns"
	jose    = "github.com/go-jose/go-jose/v4"
	prom    = "github.com/prometheus/client_golang"
	rapid   = "pgregory.net/rapid"
	goleak  = "go.uber.org/goleak"
	otel    = "go.opentelemetry.io/otel"
	otelSDK = "go.opentelemetry.io/otel/sdk"
	otelOut = "go.opentelemetry.io/otel/exporters"
)

func confined() []string {
	return []string{raft, boltlog, walLog, hclog, bbolt, btree, bufconn, grpc, proto, cobra, prom, rapid, goleak, otel, otelSDK, otelOut}
}

// room is one package and the arrows that leave it. A path that ends in "/..."
// is a tree of packages, which may also import each other.
type room struct {
	path    string
	imports []string // the rooms it may import
	libs    []string // the confined libraries it may import
	why     string
}

// rooms is the whole module. A package that is not here is a violation: a new
// package is a decision, and this table is where it is recorded.
func rooms() []room {
	return []room{
		{"", nil, nil, "the front page; it holds no code"},
		{"api", nil, nil, "the words of the protocol: every program links them, so they cost nothing but std"},
		{"api/chubbypb", []string{"api"}, []string{grpc, proto}, "the wire, and the one table between codes and gRPC statuses"},
		{"internal/bootclock", nil, nil, "leases and deadlines are counted by one clock, in replicas, clients and guardians"},
		{"internal/cowmap", nil, []string{btree}, "what is replicated is kept in one kind of map, of which a snapshot costs nothing"},
		{"internal/durable", nil, nil, "what must survive a crash of the machine is written in one way, and files are locked against other processes in one way"},
		{"internal/helptext", nil, []string{cobra}, "the help of both programs fits the terminal in one way"},
		{"internal/load", nil, nil, "chubbyctl bench and the bench of this project load a cell in one way, and count alike"},
		{"internal/supervise", []string{"internal/bootclock"}, nil, "what ends a command in time depends on nothing that can block"},
		{"internal/tenure", []string{"api", "client", "sequencer", "internal/durable", "internal/supervise"}, nil, "commands of all programs run under what is held in one way"},
		{"internal/certs", nil, nil, "certificates are read, checked and made in one place, by the standard library"},
		{"internal/tokens", nil, []string{jose}, "bearer tokens are checked in one place: no other room knows what a JWT is"},
		{"sequencer", []string{"api", "internal/durable"}, nil, "a server that checks a sequencer must not have to link the client, or gRPC"},
		{"sequencer/internal/carried", []string{"sequencer"}, nil, "the check as an interceptor and as middleware differ in the wire only"},
		{"sequencer/seqgrpc", []string{"sequencer", "sequencer/internal/carried", "api"}, []string{grpc}, "the check as a gRPC interceptor"},
		{"sequencer/seqhttp", []string{"sequencer", "sequencer/internal/carried", "api"}, nil, "the check as net/http middleware"},
		{"refusal", []string{"api"}, nil, "pure: why the state machine says no, and the one place where that is put into words"},
		{"misuse", []string{"api"}, nil, "pure: the words for clients that misuse a cell, shared by master, client and console"},
		{"namespace", []string{"api", "refusal", "internal/cowmap"}, nil, "pure: the tree and its locks, tested without a cell"},
		{"session", []string{"api", "refusal", "internal/cowmap"}, nil, "pure: sessions and the arithmetic of leases, shared by master and client"},
		{"raftfsm", []string{"api", "refusal", "namespace", "session", "internal/cowmap"}, nil, "what is replicated: no wire, no clock and no Raft, so every replica computes the same"},
		{"internal/backupstore", []string{"internal/durable"}, []string{minio}, "where backups are kept: the only room that knows a bucket from a directory"},
		{"internal/backup", []string{"api", "namespace", "raftfsm"}, nil, "the format of backups: masters write it, and whoever has the file reads it"},
		{
			"cell/internal/identity", []string{"api"}, nil,
			"what its data directory and the other replicas both say of a replica: values, for the two rooms that do not know each other",
		},
		{
			"cell/internal/disk", []string{"api", "session", "cell/internal/identity", "internal/durable"}, []string{raft, boltlog, walLog, hclog, bbolt},
			"what a replica keeps: the only room that knows a store, so that a log store is replaced here alone",
		},
		{
			"cell/internal/peer", []string{"api", "session", "cell/internal/identity", "cell/internal/loglimit", "cell/internal/origin", "internal/certs"}, []string{raft, hclog},
			"what replicas say to each other: no store and no master, so that a proof of leadership rests on answers alone",
		},
		{
			"cell/internal/fsm", []string{"raftfsm", "session"}, []string{raft},
			"the replicated state as Raft's state machine: it alone knows both, so the state and the master that reads it link no Raft",
		},
		{
			"cell/recovery", []string{"api", "raftfsm", "cell/internal/disk", "cell/internal/fsm"}, nil,
			"what is left of a cell without a majority: it reads the directories of replicas, and starts none",
		},
		{"internal/otlp", nil, []string{otel, otelSDK, otelOut}, "spans go to a collector in one way; what makes them knows the interface alone, as the library of clients does"},
		{"internal/frames", nil, []string{grpc, proto}, "calls over one connection without HTTP/2: one format for the Go client and the port for clients"},
		{"cell/internal/audit", []string{"session", "cell/internal/loglimit", "internal/durable"}, nil, "a file of lines: it knows neither calls nor rights"},
		{"cell/internal/origin", nil, nil, "the port of clients, that of replicas and the console tell machines apart in the same way"},
		{"cell/internal/loglimit", nil, nil, "the port of clients and that of replicas bound what they log of strangers in the same way"},
		{"cell/internal/memnet", nil, nil, "tests in virtual time have one network, of packages and of whole cells"},
		{"cell/internal/testbed", []string{"session"}, []string{raft}, "what tests of a replica and of its rooms share: no room imports it but their tests"},
		{"cell/internal/steps", []string{"api", "session"}, nil, "what a master says of a call that is traced, and package cell makes spans of: values, for the two that do not know each other's words"},
		{"cell/internal/master/tables", []string{"api", "refusal", "namespace", "session", "raftfsm", "cell/internal/steps"}, nil, "pure: what a master remembers, and forgets with its epoch"},
		{
			"cell/internal/master", []string{"api", "misuse", "refusal", "namespace", "session", "raftfsm", "sequencer", "internal/backup", "cell/internal/master/tables", "cell/internal/steps"}, nil,
			"one epoch of a master: neither the wire nor Raft; of its tests only one has a log store, to see that large entries fit",
		},
		{
			"cell/internal/wire", []string{"api", "api/chubbypb", "misuse", "sequencer", "namespace", "session", "raftfsm", "cell/internal/audit", "cell/internal/loglimit", "cell/internal/master", "cell/internal/origin", "cell/internal/steps", "internal/frames"}, []string{grpc, proto},
			"the services for clients, and what bounds them: every call is one of the master's",
		},
		{"cell/internal/console", []string{"api", "cell/internal/origin", "client", "misuse", "session"}, nil, "pages for browsers: a client in a replica, which knows of the cell what the exported client tells"},
		{
			"cell", []string{"api", "session", "raftfsm", "refusal", "cell/internal/audit", "cell/internal/console", "cell/internal/disk", "cell/internal/fsm", "cell/internal/identity", "cell/internal/loglimit", "cell/internal/master", "cell/internal/peer", "cell/internal/steps", "cell/internal/wire", "internal/bootclock", "internal/certs", "internal/tokens"},
			[]string{raft, grpc, prom, otel}, "one replica: the only room where state, time, disk and network meet",
		},
		{"cell/celltest", []string{"cell", "cell/internal/memnet", "client", "api", "session", "internal/frames"}, []string{grpc}, "real replicas in one process, for tests, ours and users'"},
		{"cell/celltest/recipetest", []string{"cell/celltest", "client", "api"}, nil, "what the tests of recipes share, here and in contrib/recipes"},
		{"internal/seeds", nil, nil, "what fuzzing has found is kept in one way, and in one file for each test"},
		{"internal/ports", nil, nil, "ports for processes that are about to start are found in one way, in which no two have the same"},
		{"cell/celltest/processes", []string{"client", "api", "internal/ports"}, nil, "a cell of processes that a test kills, for our tests in other modules and for users'; it knows of the cell what clients know"},
		{
			"client", []string{"api", "api/chubbypb", "misuse", "sequencer", "session", "internal/bootclock", "internal/certs", "internal/frames", "internal/tokens"}, []string{grpc, otel},
			"what applications link: never raft, never the server",
		},
		{"client/clientprom", []string{"client", "api", "session"}, []string{prom}, "metrics of sessions: only programs that import it link Prometheus's library"},
		{"internal/hold", []string{"client", "api"}, nil, "recipes, here and in contrib/recipes, hold things and give them back in one way"},
		{"client/recipe", []string{"client", "api", "sequencer", "internal/hold"}, nil, "recipes use what users can use, the exported client only, as their core does"},
		{"cmd/chubbyd", []string{"cell", "api", "cmd/chubbyd/internal/names", "internal/backupstore", "internal/certs", "internal/durable", "internal/helptext", "internal/otlp", "internal/tokens"}, []string{cobra}, "the daemon wires a replica and does nothing itself"},
		{"cmd/chubbyd/internal/names", []string{"cell"}, []string{miekg}, "clients find the replicas by the cell's name: only the daemon of one that publishes links a DNS library"},
		{
			"client/recipe/resolver", []string{"client", "client/recipe", "api"}, []string{grpc},
			"names of services for gRPC: only who uses them for that links this",
		},
		{
			"cmd/chubbyctl", []string{"client", "client/recipe", "sequencer", "api", "misuse", "cmd/chubbyctl/internal/sizing", "cmd/chubbyctl/internal/term", "internal/supervise", "internal/tenure", "internal/durable", "internal/backup", "internal/backupstore", "internal/helptext", "internal/load", "internal/otlp", "cell/recovery"}, []string{cobra, otel},
			"whatever the command line can do, a program can do over the exported client",
		},
		{"cmd/chubbyctl/internal/sizing", []string{"api"}, nil, "what a cell needs is arithmetic with what was measured: it asks no cell"},
		{"cmd/chubbyctl/internal/term", nil, nil, "how things are written to a terminal or for a program; it knows nothing of cells"},
		{"e2e", nil, nil, "the whole as its users have it; it holds tests only"},
		{
			"examples/...", []string{"client", "client/recipe", "sequencer", "sequencer/seqgrpc", "sequencer/seqhttp", "api"},
			[]string{grpc}, "examples show what users write, so they import what users import",
		},
	}
}

// without names packages of std that a room may not import.
func without() map[string][]string {
	return map[string][]string{"cell/internal/master": {"net", "net/http", "os", "os/exec", "io/fs", "syscall"}, "cell/internal/master/tables": {"context", "log/slog"}}
}

// fileOf confines a library further, to some files of a room that may import it.
func fileOf() []struct {
	room, lib string
	files     []string
	why       string
} {
	return []struct {
		room, lib string
		files     []string
		why       string
	}{
		{"cell/internal/disk", walLog, []string{"wallog.go"}, "a log store is a row in logstores.go and files of its own, so that it can be replaced"},
		{"cell/internal/disk", boltlog, []string{"boltlog.go"}, "a log store is a row in logstores.go and files of its own, so that it can be replaced"},
		{"cell/internal/disk", bbolt, []string{"bboltfile.go", "votes.go"}, "what is particular to bbolt is in one place"},
	}
}

// pkg is what go list tells of one package.
type pkg struct {
	ImportPath string
	Name       string
	Deps       []string // everything it is linked with
}

// in returns the path of an import within the module, and whether it is.
func in(importPath string) (string, bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// under reports whether an import path is root or a package below it.
func under(importPath, root string) bool {
	return importPath == root || strings.HasPrefix(importPath, root+"/")
}

func isStd(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// libOf returns the confined library that an import belongs to: the longest
// that matches.
func libOf(importPath string) string {
	longest := ""
	for _, lib := range confined() {
		if under(importPath, lib) && len(lib) > len(longest) {
			longest = lib
		}
	}
	return longest
}

func (r room) is(p string) bool {
	if tree, ok := strings.CutSuffix(r.path, "/..."); ok {
		return under(p, tree)
	}
	return p == r.path
}

func roomOf(p string) (room, bool) {
	for _, r := range rooms() {
		if r.is(p) {
			return r, true
		}
	}
	return room{}, false
}

// names reports whether a room may import a confined library. A room with gRPC has
// its in-memory connections too.
func (r room) names(lib string) bool {
	return slices.Contains(r.libs, lib) || lib == bufconn && slices.Contains(r.libs, grpc)
}

// mayLink returns every confined library that a room may be linked with: its
// own with what they are made of, and those of the rooms it may import.
func mayLink(r room, seen map[string]bool) []string {
	if seen[r.path] {
		return nil
	}
	seen[r.path] = true
	madeOf := map[string][]string{raft: {hclog}, bufconn: {grpc, proto}, grpc: {proto}, otelOut: {otelSDK, otel, grpc, proto}, otelSDK: {otel}}
	libs := slices.Clone(r.libs)
	for _, lib := range r.libs {
		libs = append(libs, madeOf[lib]...)
	}
	for _, p := range r.imports {
		if next, ok := roomOf(p); ok {
			libs = append(libs, mayLink(next, seen)...)
		}
	}
	return libs
}

// modulePackages asks the go command, once, for the packages of this module.
func modulePackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Deps", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list ./...: %v\n%s", err, stderr.String())
	}
	var list []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("go list ./... wrote something else than packages: %v", err)
		}
		list = append(list, p)
	}
}

func TestImportLaws(t *testing.T) {
	packages, files := modulePackages(t), sources(t)
	t.Run("every package is in the table", func(t *testing.T) { lawListed(t, packages) })
	t.Run("arrows", func(t *testing.T) { lawArrows(t, files) })
	t.Run("links", func(t *testing.T) { lawLinked(t, packages) })
	t.Run("confined files", func(t *testing.T) { lawFiles(t, files) })
	t.Run("the vocabulary is std only", func(t *testing.T) { lawStdOnly(t, packages) })
	t.Run("names", func(t *testing.T) { lawNames(t, packages) })
}

func lawListed(t *testing.T, packages []pkg) {
	for _, p := range packages {
		rel, _ := in(p.ImportPath)
		if _, ok := roomOf(rel); !ok {
			t.Errorf("package %s is not in the table of rooms: a package is a decision; add it there with its arrows and its reason", rel)
		}
	}
	for _, r := range rooms() {
		if r.why == "" {
			t.Errorf("room %s has no reason", r.path)
		}
		for _, to := range r.imports {
			if _, ok := roomOf(to); !ok {
				t.Errorf("room %s has an arrow to %s, which is not in the table", r.path, to)
			}
		}
	}
}

// lawArrows binds imports within the module, for every system it is built for.
// Tests are free: they may build a whole cell to test a client.
func lawArrows(t *testing.T, files []source) {
	for _, f := range files {
		r, ok := roomOf(f.dir)
		if !ok || !f.ours || f.test {
			continue // of a package without a room, lawListed speaks
		}
		for _, importPath := range f.imports {
			to, ours := in(importPath)
			if ours && !slices.Contains(r.imports, to) && !(strings.HasSuffix(r.path, "/...") && r.is(to)) {
				t.Errorf("%s imports %s: there is no such arrow (%s); move the code to the room it belongs in", f.path, to, r.why)
			}
			if slices.Contains(without()[f.dir], importPath) {
				t.Errorf("%s imports %s, which this room does without (%s)", f.path, importPath, r.why)
			}
			if lib := libOf(importPath); lib != "" && !r.names(lib) {
				t.Errorf("%s imports %s, which belongs to other rooms (%s)", f.path, importPath, r.why)
			}
		}
	}
}

// lawLinked binds what a package is linked with through others, as go list
// -deps tells it.
func lawLinked(t *testing.T, packages []pkg) {
	for _, p := range packages {
		rel, _ := in(p.ImportPath)
		r, ok := roomOf(rel)
		if !ok {
			continue
		}
		linked := mayLink(r, map[string]bool{})
		reported := map[string]bool{}
		for _, dep := range p.Deps {
			lib := libOf(dep)
			if lib == "" || reported[lib] || slices.Contains(linked, lib) {
				continue
			}
			reported[lib] = true
			t.Errorf("%s is linked with %s (%s); go list -deps shows the way", rel, lib, r.why)
		}
	}
}

func lawFiles(t *testing.T, files []source) {
	for _, law := range fileOf() {
		for _, f := range files {
			if f.dir != law.room || f.test || slices.Contains(law.files, path.Base(f.path)) {
				continue
			}
			for _, importPath := range f.imports {
				if libOf(importPath) == law.lib {
					t.Errorf("%s imports %s; only %s may: %s", f.path, law.lib, strings.Join(law.files, ", "), law.why)
				}
			}
		}
	}
}

func lawStdOnly(t *testing.T, packages []pkg) {
	for _, p := range packages {
		if rel, _ := in(p.ImportPath); rel != "api" {
			continue
		}
		for _, dep := range p.Deps {
			if !isStd(dep) {
				t.Errorf("api is linked with %s: every program of users links api, so it imports std only", dep)
			}
		}
	}
}

func lawNames(t *testing.T, packages []pkg) {
	vague := []string{"base", "common", "core", "helper", "helpers", "lib", "manager", "misc", "shared", "types", "util", "utils"}
	for _, p := range packages {
		rel, _ := in(p.ImportPath)
		if slices.Contains(vague, p.Name) || slices.Contains(vague, path.Base(rel)) {
			t.Errorf("package %s is named for nothing: a package is one idea; name it for that, or put its parts where they are used", rel)
		}
		if want := path.Base(p.ImportPath); p.Name != want && p.Name != "main" && p.Name != "" {
			t.Errorf("package %s calls itself %s: imports should read as what they are", rel, p.Name)
		}
	}
}
