package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// members is how many processes a system has, except Redis: the paper's cell (Chubby §2.2).
const members = 5

// contents is how much is written.
const contents = 256 // bytes

// system is one system to measure.
type system interface {
	// Start brings up the processes with data below dir and returns when they
	// serve. After an error nothing is left running.
	Start(ctx context.Context, dir string) error
	// Connect opens worker i's own connection and session, and what it needs to
	// begin at once.
	Connect(ctx context.Context, i int) (worker, error)
	// Term returns the number of the current leader's term, or epoch.
	Term(ctx context.Context) (uint64, error)
	// Version returns the version that is measured.
	Version() string
	// Processes returns the ids of the processes that were started, of which others may be children.
	Processes() []int
	// Stop ends every process and returns when they are gone.
	Stop() error
}

// mortal is a system that survives the loss of its leader.
type mortal interface {
	system
	// KillLeader kills the process that leads, with SIGKILL, and does not start it again.
	KillLeader(ctx context.Context) error
}

// notifier is a system that tells clients of changes.
type notifier interface {
	system
	// Watch opens a connection of its own and watches one file, or key, that all watchers share. It
	// returns when the watch is set. Then it calls told once for each change, and armed when it will
	// see the next one. Close ends it.
	Watch(ctx context.Context, told, armed func()) (closer, error)
	// Changer returns a function that changes that file, once a call.
	Changer(ctx context.Context) (func(context.Context) error, closer, error)
}

// handOverer is a system whose leader can be told to step down in favour of another.
type handOverer interface {
	system
	// HandOver returns when another process leads.
	HandOver(ctx context.Context) error
}

// sessionKeeper is a system that keeps sessions of clients.
type sessionKeeper interface {
	system
	// OpenSession opens a session of twelve seconds, on a connection of its own, and keeps it until it
	// is closed.
	OpenSession(ctx context.Context) (closer, error)
}

// closer gives back what was opened.
type closer func(context.Context) error

// lock names one of a worker's two locks.
type lock int

const (
	own    lock = iota // no other worker uses it
	shared             // all workers use the same
	locks
)

// worker is one client. Each method returns when it is done, and is called from one goroutine at a
// time.
type worker interface {
	// Lock takes a lock. It returns when the worker has it.
	Lock(ctx context.Context, l lock) error
	// Unlock releases a lock that Lock has taken.
	Unlock(ctx context.Context, l lock) error
	// Write replaces the contents of a file, or key, of the worker's own.
	Write(ctx context.Context) error
	// Read returns that file or key as it is now: linearizable, from the
	// servers, not from a cache.
	Read(ctx context.Context) error
	Close(ctx context.Context) error
}

// cacher is a worker whose client has a consistent cache.
type cacher interface {
	// ReadCached is linearizable, as Read is, because a write waits until the cache has been
	// invalidated.
	ReadCached(ctx context.Context) error
	// LockCached takes and releases a lock that stays with the client until another client wants it.
	LockCached(ctx context.Context, held func()) error
}

// newSystem returns an error for a name that does not exist, and for a system that is not installed.
// A name of Chubby may be followed by @ and another directory of its source.
func newSystem(name string, o options) (system, error) {
	if of, source, _ := strings.Cut(name, "@"); source != "" && (of == "chubby" || slices.Contains(variants(), of)) {
		name, o.repo = of, source
	}
	switch name {
	case "chubby":
		return &chubby{repo: o.repo, logStore: o.logStore, at: o.at}, nil
	case encrypted:
		return &chubby{repo: o.repo, logStore: o.logStore, tls: true}, nil
	case traced:
		return &chubby{repo: o.repo, logStore: o.logStore, traced: true}, nil
	case unmeasured:
		return &chubby{repo: o.repo, logStore: o.logStore, switched: true}, nil
	case switched:
		return &chubby{repo: o.repo, logStore: o.logStore, traced: true, switched: true}, nil
	case "etcd":
		return &etcd{all: o.allEtcd, attempt: o.etcdAttempt, at: o.at}, nil
	case "zookeeper":
		return &zookeeper{at: o.at}, checkZookeeper()
	case "redis":
		if o.disks {
			return nil, errors.New("redis is one process, and nothing waits for another: -disks measures systems of five")
		}
		return &redisNode{}, checkRedis()
	}
	return nil, fmt.Errorf("there is no system %q: want %s or %s", name, strings.Join(systemNames(), ", "), strings.Join(variants(), ", "))
}

// Chubby in another way: no systems of their own, and so they are measured only if they are asked for.
const (
	encrypted  = "chubby-tls"        // with certificates
	traced     = "chubby-traced"     // sends spans of calls to a collector, of as many as is the default
	unmeasured = "chubby-unmeasured" // what it measures for metrics, and traces, is switched off
	switched   = "chubby-switched"   // both, one after the other
)

func variants() []string { return []string{encrypted, traced, unmeasured} }

// systemNames lists the systems that newSystem knows.
func systemNames() []string { return []string{"chubby", "etcd", "zookeeper", "redis"} }

// installedSystems lists those that can be measured here, and says on out what the others lack.
func installedSystems(o options, out io.Writer) []string {
	return slices.DeleteFunc(systemNames(), func(name string) bool {
		_, err := newSystem(name, o)
		if err != nil {
			fmt.Fprintf(out, "%s is left out: %v\n", name, err)
		}
		return err != nil
	})
}
