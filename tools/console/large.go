package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"golang.org/x/sync/errgroup"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Of a large cell.
const (
	perCell = 1000 // sessions share connections
	atATime = 32   // that are made
	queued  = 200  // sessions that wait for a lock, too
	maxCPU  = 0.02 // processors that an open page may take
	// maxMemory is how many MiB the pages may add, and half of what there was. A replica collects garbage when there is as much of it as its state and
	// 32 MiB: whatever it does, it comes to have more memory up to that.
	maxMemory = 32.0
)

// measureLarge fills a cell with n sessions, of as many principals, each of which holds a lock, and measures how soon every page is painted and what
// an open page costs the replica that serves it, and the master.
func measureLarge(ctx context.Context, b *browser, cell *devCell, n int, watched time.Duration) error {
	crowd := newActors(ctx)
	defer crowd.stop() // the sessions end with their leases
	began := time.Now()
	sessions, close, err := fill(ctx, crowd, cell, n)
	defer close()
	if err != nil {
		return err
	}
	fmt.Printf("%d sessions of as many principals, each with a lock, and %d requests that wait, made in %.0f s\n", n, queued, time.Since(began).Seconds())
	master, _, err := cell.master(ctx)
	if err != nil {
		return err
	}
	serving := (master + 1) % replicas
	costs := costs{cell: cell, watched: watched, of: map[string]int{"the replica that serves it": serving, "the master": master}}
	if err := costs.measure("nobody has looked yet", nil); err != nil {
		return err
	}
	one := sessions[n/2].Session().String()
	pages := []string{
		"", "locks", "locks?under=/ls/local/many", "waits", "sessions", "sessions/" + one, "tree", "tree?path=/ls/local/many", "tree?path=/ls/local/many/00000",
		"explain", "explain?path=/ls/local/many/00000", "events", "events?path=/ls/local/many", "quotas", "misuse", "takeovers", "act/break?path=/ls/local/many/00000", "act/end?session=" + one, "act/transfer", "act/quota?principal=principal-00042",
	}
	if err := b.run(chromedp.Navigate(cell.console(serving)+"events"), chromedp.WaitReady("footer")); err != nil { // the first paint of all is that of the browser
		return err
	}
	for _, path := range pages {
		if err := b.paintLarge(cell.console(serving), path); err != nil {
			return err
		}
	}
	leave := func() error { return b.run(chromedp.Navigate("about:blank")) }
	if err := costs.measure("before", leave); err != nil {
		return err
	}
	for _, path := range []string{"", "locks", "sessions"} {
		if err := costs.watch(b, cell.console(serving), path); err != nil {
			return err
		}
	}
	if err := costs.measure("after", leave); err != nil {
		return err
	}
	costs.judge(b)
	now, _, err := cell.master(ctx)
	if err == nil && now != master {
		err = fmt.Errorf("r%d is the master, which was r%d: the machine is too busy to measure on", now+1, master+1)
	}
	return err
}

// fill makes n sessions, each of which holds a lock, in one directory; the first of them are waited for by the last.
func fill(ctx context.Context, crowd *actors, cell *devCell, n int) (sessions []*client.Client, end func(), err error) {
	var cells []*client.Cell
	end = func() {
		for _, c := range cells {
			_ = c.Close()
		}
	}
	for len(cells)*perCell < n {
		c, err := client.Dial(ctx, client.Config{Servers: cell.servers})
		if err != nil {
			return nil, end, err
		}
		cells = append(cells, c)
	}
	sessions = make([]*client.Client, n)
	path := func(i int) string { return fmt.Sprintf("/ls/local/many/%05d", i) }
	making, ctx := errgroup.WithContext(ctx)
	making.SetLimit(atATime)
	first, err := cells[0].NewSession(ctx, client.SessionConfig{As: "principal-00000", NoCache: true, Lease: api.MaxLease})
	if err != nil {
		return nil, end, err
	}
	sessions[0] = first
	if _, err := first.Open(ctx, "/ls/local/many", client.OpenOptions{Read: true, Write: true, Create: client.Directory}); err != nil {
		return nil, end, err
	}
	for i := range n {
		making.Go(func() (err error) {
			if i > 0 {
				sessions[i], err = cells[i/perCell].NewSession(ctx, client.SessionConfig{As: fmt.Sprintf("principal-%05d", i), NoCache: true, Lease: api.MaxLease})
			}
			if err == nil {
				err = crowd.hold(sessions[i], path(i), "one of many", api.Exclusive)
			}
			return err
		})
	}
	if err := making.Wait(); err != nil {
		return nil, end, err
	}
	for i := range min(queued, n/2) {
		if err := crowd.wait(sessions[n-1-i], path(i), "waits in the large cell"); err != nil {
			return nil, end, err
		}
	}
	return sessions, end, nil
}

// paintLarge looks at a page some times, each as if for the first time, and expects it to be painted soon.
func (b *browser) paintLarge(console, path string) error {
	var served, painted []float64
	for range tries {
		if err := b.run(network.ClearBrowserCache(), chromedp.Navigate(console+path), chromedp.WaitReady("footer")); err != nil {
			return err
		}
		ms, err := b.firstPaint()
		if err != nil {
			return fmt.Errorf("/console/%s: %w", path, err)
		}
		var took float64
		if err := b.run(chromedp.Evaluate(`(t => t.responseEnd - t.requestStart)(performance.getEntriesByType("navigation")[0])`, &took)); err != nil {
			return err
		}
		served, painted = append(served, took), append(painted, ms)
	}
	slices.Sort(served)
	slices.Sort(painted)
	fmt.Printf("  %-48s served in %4.0f ms, first paint after %4.0f ms (median of %d; at most %.0f)\n", "/console/"+path, served[tries/2], painted[tries/2], tries, painted[tries-1])
	if painted[tries/2] > maxPaint {
		b.fault("/console/%s: the first paint is after %.0f ms", path, painted[tries/2])
	}
	return nil
}

// costs are what some replicas of a cell use, in one phase of a measurement after the other.
type costs struct {
	cell    *devCell
	watched time.Duration  // for which each is measured
	of      map[string]int // replicas, by what they are
	phases  []phase
}

// phase is what replicas used meanwhile: processors, and MiB of memory at the end.
type phase struct {
	name        string
	cpu, memory map[string]float64
}

// measure does something, and then watches what the replicas use for a while.
func (c *costs) measure(name string, do func() error) error {
	if do != nil {
		if err := do(); err != nil {
			return err
		}
	}
	p := phase{name: name, cpu: map[string]float64{}, memory: map[string]float64{}}
	for who, i := range c.of {
		cpu, _, err := c.uses(i)
		if err != nil {
			return err
		}
		p.cpu[who] = -cpu
	}
	began := time.Now()
	time.Sleep(c.watched)
	took := time.Since(began).Seconds()
	for who, i := range c.of {
		cpu, memory, err := c.uses(i)
		if err != nil {
			return err
		}
		p.cpu[who], p.memory[who] = (p.cpu[who]+cpu)/took, memory
		fmt.Printf("  %-24s %-28s %5.1f %% of a processor, %4.0f MiB\n", name, who, 100*p.cpu[who], memory)
	}
	c.phases = append(c.phases, p)
	return nil
}

// watch measures with a page open, which has to renew itself.
func (c *costs) watch(b *browser, console, path string) error {
	open := func() error { return b.run(chromedp.Navigate(console+path), chromedp.WaitReady("footer")) }
	if err := c.measure("/console/"+path+" open", open); err != nil {
		return err
	}
	var renewed int
	if err := b.run(chromedp.Evaluate(`performance.getEntriesByType("resource").filter(e => e.initiatorType === "xmlhttprequest").length`, &renewed)); err != nil {
		return err
	}
	fmt.Printf("  it has renewed itself %d times\n", renewed)
	if renewed < int(c.watched/(4*time.Second)) {
		b.fault("/console/%s has renewed itself %d times in %v", path, renewed, c.watched)
	}
	return nil
}

// judge expects that the pages add little memory to what there was before anybody looked, in the first phase, and that an open page takes little of a
// processor beside what was used before it was opened, in the second.
func (c *costs) judge(b *browser) {
	first, before := c.phases[0], c.phases[1]
	for _, p := range c.phases[1:] {
		for who := range c.of {
			if more := p.cpu[who] - before.cpu[who]; more > maxCPU {
				b.fault("%s: %s uses %.1f %% of a processor more", p.name, who, 100*more)
			}
			if more := p.memory[who] - first.memory[who]; more > maxMemory+first.memory[who]/2 {
				b.fault("%s: %s uses %.0f MiB more", p.name, who, more)
			}
		}
	}
}

// uses returns the seconds of processor time that a replica has used, and the MiB of memory that it has, as Linux counts them.
func (c *costs) uses(replica int) (cpu, memory float64, err error) {
	pid, err := c.cell.process(replica)
	if err != nil {
		return 0, 0, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // behind the name of the program
	fields := strings.Fields(rest)
	if len(fields) < 22 {
		return 0, 0, errors.New("/proc/PID/stat is of another form")
	}
	for _, at := range []int{11, 12} { // in user mode, and in the kernel
		ticks, err := strconv.ParseFloat(fields[at], 64)
		if err != nil {
			return 0, 0, err
		}
		cpu += ticks / 100 // a second, on every Linux
	}
	pages, err := strconv.ParseFloat(fields[21], 64)
	return cpu, pages * float64(os.Getpagesize()) / (1 << 20), err
}
