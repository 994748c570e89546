// Command primary is a service of which any number of processes run, and one is the primary. It
// campaigns for a lock, advertises its address in the lock's file, and, while it is the primary,
// writes to a ledger that refuses earlier primaries (Chubby §2.4, §2.8).
//
//	primary --name a --lock /ls/local/primary --ledger http://127.0.0.1:8080
//
// The work runs under the lock's context, which ends before another can be the primary. With
// --stubborn it ignores that context on purpose, as any program does for a moment after it was
// paused: then the sequencer that it sends with every write protects the ledger.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer/seqhttp"
)

type options struct {
	name, servers, lock, ledger string
	lease, delay, every         time.Duration
	stubborn                    bool
}

func main() {
	var o options
	flag.StringVar(&o.name, "name", "a", "this candidate's name, which is what it advertises")
	flag.StringVar(&o.servers, "servers", "", "replicas of the cell, host:port,...; found by configuration if empty")
	flag.StringVar(&o.lock, "lock", "/ls/local/primary", "the lock to campaign for")
	flag.StringVar(&o.ledger, "ledger", "http://127.0.0.1:8080", "the ledger to write to")
	flag.DurationVar(&o.lease, "lease", api.DefaultLease, "session lease")
	flag.DurationVar(&o.delay, "lock-delay", api.DefaultLockDelay, "how long nobody gets the lock if this process fails")
	flag.DurationVar(&o.every, "every", 200*time.Millisecond, "time between writes")
	flag.BoolVar(&o.stubborn, "stubborn", false, "go on writing when the lock's context has ended, on purpose")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", o.name, err)
		os.Exit(1)
	}
}

// run campaigns once, and is primary until the lock is lost.
func (o options) run(ctx context.Context) error {
	config := client.Config{Lease: o.lease}
	if o.servers != "" {
		config.Servers = strings.Split(o.servers, ",")
	}
	c, err := client.New(ctx, config)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	h, err := c.Open(ctx, o.lock, client.OpenOptions{Read: true, Write: true, Create: client.File, LockDelay: o.delay})
	if err != nil {
		return err
	}
	l, err := h.Acquire(ctx, api.Exclusive, client.Reason("primary "+o.name))
	if err != nil {
		return err
	}
	o.say("primary, token %d", l.Token())
	work, cancel := context.WithCancel(l.Context())
	defer cancel()
	context.AfterFunc(ctx, cancel)
	if _, err := h.SetContents(work, []byte(o.name), client.IfSequencer(l.Sequencer())); err != nil {
		return err
	}
	return errors.Join(o.serve(work, ctx, l), l.Release(ctx))
}

// serve writes to the ledger while this process is the primary; with --stubborn, until it is
// interrupted.
func (o options) serve(work, stop context.Context, l *client.Lock) error {
	ledger := &http.Client{
		Timeout:   5 * time.Second,
		Transport: seqhttp.Transport(http.DefaultTransport, func() string { return l.Sequencer().String() }),
	}
	lost := work.Done()
	tick := time.NewTicker(o.every)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-stop.Done():
			return nil
		case <-lost:
			if !o.stubborn {
				return context.Cause(work)
			}
			o.say("the lock's context has ended (%v); ignoring that on purpose", context.Cause(work))
			lost = nil
		case <-tick.C:
		}
		o.write(ledger, l.Token(), n)
	}
}

// write writes one entry, and prints the ledger's answer.
func (o options) write(ledger *http.Client, token uint64, n int) {
	reply, err := ledger.Post(o.ledger+"/entries", "text/plain", strings.NewReader(fmt.Sprintf("entry %d of %s", n, o.name)))
	if err != nil {
		o.say("write failed: %v", err)
		return
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(io.LimitReader(reply.Body, 4<<10))
	switch {
	case err != nil:
		o.say("write failed: %v", err)
	case reply.StatusCode == http.StatusPreconditionFailed:
		o.say("write REFUSED with token %d: %s", token, strings.TrimSpace(string(text)))
	case reply.StatusCode != http.StatusOK:
		o.say("write failed: %s", reply.Status)
	case n == 1:
		o.say("first write accepted with token %d", token)
	}
}

func (o options) say(format string, args ...any) {
	fmt.Printf("%s: %s\n", o.name, fmt.Sprintf(format, args...))
}
