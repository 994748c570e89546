package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sizingLimit bounds all of -sizing.
const sizingLimit = 15 * time.Minute

// What -sizing measures with: enough of each thing that the noise of a collected heap is small beside it.
const (
	sizingClients  = 8      // that write, read and lock at a time
	sizingSessions = 10_000 // fewer than those for which a master lengthens leases
	sizingNodes    = 100_000
	sizingOpeners  = 20 // sessions that open handles, take locks and fill caches
	sizingHandles  = 2_000
	sizingPrograms = 1_000 // each with two connections, of the 4,000 that an address may have
	sizingBytes    = 4_096 // of contents
	sizingWatchers = 500   // handles that are told of each change
	sizingChanges  = 20    // a second
)

// sizingScale makes a run smaller, for its test.
type sizingScale struct {
	things  int           // by which the numbers of things are divided
	measure time.Duration // for each act
	settle  time.Duration // after things were made, and before
	looks   int           // at the heap, at most, 20 ms apart
}

// runSizing measures what one session, one node, one write costs a replica.
func runSizing(ctx context.Context, o options, dir string, results *record, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sizingLimit, fmt.Errorf("not measured within %v", sizingLimit))
	defer cancel()
	found, err := measureSizing(ctx, o, dir, results, sizingScale{things: 1, measure: 5 * time.Second, settle: 5 * time.Second, looks: maxHeapLooks})
	if err != nil {
		return err
	}
	if err := found.table().writeText(out); err != nil || o.page == "" {
		return err
	}
	return found.writePage(o.page)
}

func measureSizing(ctx context.Context, o options, dir string, results *record, scale sizingScale) (*costs, error) {
	c := &costs{Date: results.Date, Machine: results.Machine.String(), Quiet: isQuiet(results.Machine.LoadAvg), WriteBytes: contents, Clients: sizingClients}
	var clients [3]act // what acts cost in a cell of one replica: there is no network but that to clients
	plain := func(replicas int) *chubby { return &chubby{repo: o.repo, logStore: o.logStore, members: replicas} }
	err := onCell(ctx, plain(1), dir, scale, func(m *sizer) (err error) {
		c.Version = m.cell.Version()
		_, clients, err = m.acts(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("a cell of one replica: %w", err)
	}
	if err = onCell(ctx, plain(members), dir, scale, func(m *sizer) error { return m.measureAll(ctx, c, clients) }); err != nil {
		return nil, err
	}
	secure := plain(1)
	secure.tls = true
	if err = onCell(ctx, secure, dir, scale, func(m *sizer) error { return m.programs(ctx, c) }); err != nil {
		return nil, fmt.Errorf("programs: %w", err)
	}
	return c, nil
}

// isQuiet reports whether the load of the last minute was below a tenth of a processor.
func isQuiet(load string) bool {
	first, _, _ := strings.Cut(load, " ")
	now, err := strconv.ParseFloat(first, 64)
	return err == nil && now < 0.1
}

// sizer measures one cell.
type sizer struct {
	cell   *chubby
	scale  sizingScale
	pids   []int // of the replicas, that of the master first
	pages  []string
	master string // the directory of the master's data
	idle   reading

	readers []worker // of serveReads
}

// onCell starts a cell, and measures it.
func onCell(ctx context.Context, c *chubby, parent string, scale sizingScale, measure func(*sizer) error) (err error) {
	dir, err := os.MkdirTemp(parent, "cell-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := c.Start(ctx, dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	m := &sizer{cell: c, scale: scale}
	status, err := c.status(ctx)
	if err != nil {
		return err
	}
	list, err := devReplicas(c.file)
	if err != nil {
		return err
	}
	slices.SortStableFunc(list, func(a, b devReplica) int { return first(b.ID == status.Master) - first(a.ID == status.Master) })
	m.master = filepath.Join(dir, "cell", status.Master)
	for _, r := range list {
		host, port, err := net.SplitHostPort(r.Client)
		if err != nil {
			return err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return err
		}
		m.pids, m.pages = append(m.pids, r.PID), append(m.pages, "http://"+net.JoinHostPort(host, strconv.Itoa(number+20))+"/metrics")
	}
	if err := sleep(ctx, scale.settle); err != nil {
		return err
	}
	before, err := m.read(ctx)
	if err != nil {
		return err
	}
	if err := sleep(ctx, 2*scale.measure); err != nil {
		return err
	}
	after, err := m.read(ctx)
	if err != nil {
		return err
	}
	m.idle = after.since(before)
	return measure(m)
}

func first(is bool) int {
	if is {
		return 1
	}
	return 0
}

// reading is what the replicas have used at one moment; or between two.
type reading struct {
	at        time.Time
	took      time.Duration
	master    time.Duration // processor time
	followers time.Duration // of one, on average
	sent      float64       // bytes on the loopback interface
	commands  float64
	entries   float64
	logged    float64 // bytes of entries
}

func (m *sizer) read(ctx context.Context) (r reading, err error) {
	r.at = time.Now()
	for i, id := range m.pids {
		p, err := readProcess(id)
		if err != nil {
			return r, err
		}
		if i == 0 {
			r.master = p.used
		} else {
			r.followers += p.used / time.Duration(len(m.pids)-1)
		}
	}
	r.sent = float64(loopbackBytes())
	page, err := readMetrics(ctx, m.pages[0])
	r.commands, r.entries, r.logged = page["chubby_commands_total"], page["chubby_entries_total"], page["chubby_entry_bytes_sum"]
	return r, err
}

func (r reading) since(before reading) reading {
	return reading{
		took: r.at.Sub(before.at), master: r.master - before.master, followers: r.followers - before.followers, sent: r.sent - before.sent,
		commands: r.commands - before.commands, entries: r.entries - before.entries, logged: r.logged - before.logged,
	}
}

// readMetrics reads the metrics without labels of a replica.
func readMetrics(ctx context.Context, address string) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	values := map[string]float64{}
	lines := bufio.NewScanner(reply.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if number, err := strconv.ParseFloat(value, 64); err == nil {
			values[name] = number
		}
	}
	return values, lines.Err()
}

// per returns what one of so many acts has taken, beyond what the idle cell takes in that time. Followers and clients share the
// bytes of the network later.
func (m *sizer) per(used reading, acts float64) act {
	idle := used.took.Seconds() / m.idle.took.Seconds()
	return act{
		Master:   max(0, float64(used.master)-idle*float64(m.idle.master)) / acts,
		Follower: max(0, float64(used.followers)-idle*float64(m.idle.followers)) / acts,
		Clients:  max(0, used.sent-idle*m.idle.sent) / acts,
		Log:      used.logged / acts,
	}
}

// share takes those bytes that go between master and clients, which a cell of one replica shows, from the others, which
// are for the other replicas.
func (m *sizer) share(all, alone act) act {
	all.Replica = max(0, all.Clients-alone.Clients) / float64(max(1, len(m.pids)-1))
	all.Clients = min(all.Clients, alone.Clients)
	return all
}

// memory returns what the master needs for what it has: twice what is alive in its heap and on its stacks, because Go's collector runs
// when there is as much garbage. Resident memory would hide what fits into memory that earlier work has left. So it has the master serve
// reads until its collector has run, and takes the least that was in use meanwhile.
func (m *sizer) memory(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- m.serveReads(ctx) }()
	least, runs := math.Inf(1), math.Inf(1)
	var err error
	for n := 0; n < m.scale.looks && err == nil; n++ {
		var page map[string]float64
		if page, err = readMetrics(ctx, m.pages[0]); err != nil {
			break
		}
		runs = min(runs, page["go_gc_duration_seconds_count"]+collections)
		least = min(least, page["go_memstats_heap_alloc_bytes"]+page["go_memstats_stack_inuse_bytes"])
		if page["go_gc_duration_seconds_count"] >= runs {
			break
		}
		err = sleep(ctx, 20*time.Millisecond)
	}
	cancel()
	return 2 * least, errors.Join(err, <-served)
}

const (
	collections  = 3   // of garbage, for which memory waits
	maxHeapLooks = 500 // at the heap: ten seconds
)

// snapshot returns how long a snapshot would be: as long as a backup.
func (m *sizer) snapshot(ctx context.Context) (float64, error) {
	var size counter
	err := m.cell.withCell(ctx, func(ctx context.Context, c backuper) error { return c.Backup(ctx, &size) })
	return float64(size), err
}

// counter counts what is written.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

type backuper interface {
	Backup(ctx context.Context, w io.Writer) error
}

// thing measures what one of so many things takes that add makes.
func (m *sizer) thing(ctx context.Context, number int, add func() error) (thing, error) {
	if err := sleep(ctx, m.scale.settle); err != nil {
		return thing{}, err
	}
	size, err := m.snapshot(ctx)
	if err != nil {
		return thing{}, err
	}
	before, err := m.memory(ctx)
	if err != nil {
		return thing{}, err
	}
	if err := add(); err != nil {
		return thing{}, err
	}
	if err := sleep(ctx, m.scale.settle); err != nil {
		return thing{}, err
	}
	larger, err := m.snapshot(ctx)
	if err != nil {
		return thing{}, err
	}
	after, err := m.memory(ctx)
	return thing{Memory: max(0, after-before) / float64(number), Snapshot: max(0, larger-size) / float64(number)}, err
}

// diskOf returns the bytes of the files in a directory.
func diskOf(dir string) (size float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed meanwhile
		}
		if err == nil {
			size += float64(info.Size())
		}
		return err
	})
	return size, err
}
