package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// withCell calls use with access to the cell.
func (c *chubby) withCell(ctx context.Context, use func(context.Context, backuper) error) (err error) {
	cell, err := client.Dial(ctx, c.config())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cell.Close()) }()
	return use(ctx, cell)
}

// act returns what one act takes of those that the operations do, and how many of commands and entries were made a second.
func (m *sizer) act(ctx context.Context, ops []operation) (_ act, rate, entries float64, err error) {
	if _, err := runLoad(ctx, plan{measure: m.scale.measure / 5}, ops); err != nil { // warms up
		return act{}, 0, 0, err
	}
	before, err := m.read(ctx)
	if err != nil {
		return act{}, 0, 0, err
	}
	done, err := runLoad(ctx, plan{measure: m.scale.measure}, ops)
	if err != nil {
		return act{}, 0, 0, err
	}
	after, err := m.read(ctx)
	if err != nil {
		return act{}, 0, 0, err
	}
	if done.Ops == 0 {
		return act{}, 0, 0, errors.New("nothing was done in that time")
	}
	used := after.since(before)
	return m.per(used, float64(done.Ops)), done.Rate, used.entries / used.took.Seconds(), nil
}

// mostWriters is how many clients write at a time to see how many writes there can be.
const mostWriters = 64

// acts measures a write, a read and a turn of a lock; and of writes how many there can be, with how many entries.
func (m *sizer) acts(ctx context.Context) (most [2]float64, each [3]act, err error) {
	workers, err := connect(ctx, m.cell, mostWriters)
	defer func() { err = errors.Join(err, disconnect(ctx, workers)) }()
	if err != nil {
		return most, each, err
	}
	ops := func(n int, do func(context.Context, worker) error) []operation {
		list := make([]operation, n)
		for i := range list {
			list[i] = func(ctx context.Context, _ func()) error { return do(ctx, workers[i]) }
		}
		return list
	}
	write := func(ctx context.Context, w worker) error { return w.Write(ctx) }
	for i, do := range []func(context.Context, worker) error{
		write,
		func(ctx context.Context, w worker) error { return w.Read(ctx) },
		func(ctx context.Context, w worker) error {
			if err := w.Lock(ctx, own); err != nil {
				return err
			}
			return w.Unlock(ctx, own)
		},
	} {
		if each[i], _, _, err = m.act(ctx, ops(sizingClients, do)); err != nil {
			return most, each, err
		}
	}
	_, most[0], most[1], err = m.act(ctx, ops(mostWriters, write))
	return most, each, err
}

// measureAll fills in what a cell of all replicas shows; alone is what the acts cost in one of one replica.
func (m *sizer) measureAll(ctx context.Context, c *costs, alone [3]act) (err error) {
	size, err := diskOf(m.master)
	if err != nil {
		return err
	}
	seconds := m.idle.took.Seconds()
	c.Base = baseCost{
		Memory: float64(memoryOf(m.pids[0])), Disk: size, Master: m.idle.master.Seconds() / seconds, Follower: m.idle.followers.Seconds() / seconds,
		Replica: m.idle.sent / seconds / float64(members-1),
	}
	most, acts, err := m.acts(ctx)
	if err != nil {
		return fmt.Errorf("writes, reads and locks: %w", err)
	}
	c.MostWrites, c.MostEntries = most[0], most[1]
	c.Write, c.Read, c.Turn = m.share(acts[0], alone[0]), m.share(acts[1], alone[1]), m.share(acts[2], alone[2])
	if err := m.events(ctx, c); err != nil {
		return fmt.Errorf("events: %w", err)
	}
	m.readers, err = connect(ctx, m.cell, sizingClients)
	defer func() { err = errors.Join(err, disconnect(ctx, m.readers)) }()
	if err != nil {
		return err
	}
	if err := m.sessions(ctx, c); err != nil {
		return fmt.Errorf("sessions: %w", err)
	}
	return m.things(ctx, c)
}

// serveReads has the master serve reads until ctx ends, so that it makes garbage.
func (m *sizer) serveReads(ctx context.Context) error {
	return inParallel(len(m.readers), 0, len(m.readers), func(i int) error {
		for ctx.Err() == nil {
			if err := m.readers[i].Read(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
}

// events measures what it takes to tell clients of changes, beyond the changes themselves.
func (m *sizer) events(ctx context.Context, c *costs) (err error) {
	var told atomic.Int64
	watchers := sizingWatchers / m.scale.things
	closeAll, err := openMany(ctx, watchers, func(ctx context.Context) (closer, error) {
		return m.cell.Watch(ctx, func() { told.Add(1) }, func() {})
	})
	defer func() { err = errors.Join(err, closeAll(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	change, closeChanger, err := m.cell.Changer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeChanger(ctx)) }()
	if err := sleep(ctx, m.scale.settle); err != nil {
		return err
	}
	quiet, err := m.read(ctx) // the sessions of the watchers are kept meanwhile
	if err != nil {
		return err
	}
	if err := sleep(ctx, m.scale.measure); err != nil {
		return err
	}
	before, err := m.read(ctx)
	if err != nil {
		return err
	}
	told.Store(0)
	changes := 0
	for end := time.Now().Add(m.scale.measure); time.Now().Before(end); changes++ {
		if err := errors.Join(change(ctx), sleep(ctx, time.Second/sizingChanges)); err != nil {
			return err
		}
	}
	after, err := m.read(ctx)
	if err != nil {
		return err
	}
	used, without, number := after.since(before), before.since(quiet), float64(told.Load())
	if number == 0 {
		return errors.New("nobody was told of anything")
	}
	longer := used.took.Seconds() / without.took.Seconds()
	n := float64(changes)
	c.Event = act{
		Master:   max(0, float64(used.master)-longer*float64(without.master)-n*c.Write.Master) / number,
		Follower: max(0, float64(used.followers)-longer*float64(without.followers)-n*c.Write.Follower) / number,
		Clients:  max(0, used.sent-longer*without.sent-n*(c.Write.Clients+(members-1)*c.Write.Replica)) / number,
	}
	return nil
}

// sessions measures what sessions take that do nothing but stay.
func (m *sizer) sessions(ctx context.Context, c *costs) (err error) {
	number := sizingSessions / m.scale.things
	var k crowd
	c.Session, err = m.thing(ctx, number, func() (err error) {
		k, err = m.cell.OpenCrowd(ctx, number)
		return err
	})
	if k != nil {
		defer k.Close()
	}
	if err != nil {
		return err
	}
	replies := k.Replies()
	before, err := m.read(ctx)
	if err != nil {
		return err
	}
	if err := sleep(ctx, max(4*m.scale.measure, 8*time.Second)); err != nil { // each has one about every seven seconds
		return err
	}
	after, err := m.read(ctx)
	if err != nil {
		return err
	}
	used, number64 := after.since(before), float64(k.Replies()-replies)
	if number64 == 0 {
		return errors.New("no KeepAlive was answered")
	}
	c.Interval = float64(number) / (number64 / used.took.Seconds())
	c.KeepAlive = m.per(used, number64)
	c.KeepAlive.Log = 0 // nothing is written
	if n := k.Lost(); n > 0 {
		return fmt.Errorf("%d sessions were lost", n)
	}
	return nil
}

// programs measures what the connections of programs take, each of which has one session, and connections for itself alone. The cell is
// of one replica and with certificates: what other replicas do is not measured, and buffers of TLS are most of a connection.
func (m *sizer) programs(ctx context.Context, c *costs) (err error) {
	if m.readers, err = connect(ctx, m.cell, sizingClients); err != nil {
		return errors.Join(err, disconnect(ctx, m.readers))
	}
	defer func() { err = errors.Join(err, disconnect(ctx, m.readers)) }()
	number := sizingPrograms / m.scale.things
	closeAll := closer(func(context.Context) error { return nil })
	defer func() { err = errors.Join(err, closeAll(context.WithoutCancel(ctx))) }()
	both, err := m.thing(ctx, number, func() (err error) {
		closeAll, err = openMany(ctx, number, func(ctx context.Context) (closer, error) {
			cl, err := client.New(ctx, m.cell.config())
			if err != nil {
				return nil, err
			}
			return cl.Close, nil
		})
		return err
	})
	c.Program = thing{Memory: max(0, both.Memory-c.Session.Memory)}
	return err
}

// opener is a session that opens many of the nodes.
type opener struct {
	client  *client.Client
	handles []*client.Handle
	locks   []*client.Lock
}

// things measures nodes, and then in turn what can be done with them: handles, locks, contents, copies in caches.
func (m *sizer) things(ctx context.Context, c *costs) (err error) {
	nodes, handles := sizingNodes/m.scale.things, sizingHandles/m.scale.things
	if c.Node, err = m.thing(ctx, nodes, func() error {
		_, err := growNodes(ctx, m.cell, 0, nodes)
		return err
	}); err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	openers := make([]*opener, 2*sizingOpeners) // those of the second half cache
	defer func() {
		for _, one := range openers {
			if one != nil {
				err = errors.Join(err, one.client.Close(context.WithoutCancel(ctx)))
			}
		}
	}()
	for i := range openers {
		config := m.cell.config()
		config.NoCache = i < sizingOpeners
		cl, err := client.New(ctx, config)
		if err != nil {
			return err
		}
		openers[i] = &opener{client: cl}
	}
	each := func(half []*opener, do func(*opener, int) error) error {
		return inParallel(len(half), 0, len(half), func(i int) error {
			for n := range handles {
				if err := do(half[i], (i*handles+n)%nodes); err != nil {
					return err
				}
			}
			return nil
		})
	}
	number, plain, caching := sizingOpeners*handles, openers[:sizingOpeners], openers[sizingOpeners:]
	open := func(o *opener, node int) error {
		h, err := o.client.Open(ctx, path(fmt.Sprintf("d-%d/f-%d", node/nodesOfDirectory, node)), client.OpenOptions{Read: true, Write: true})
		if err == nil {
			o.handles = append(o.handles, h)
		}
		return err
	}
	if c.Handle, err = m.thing(ctx, number, func() error { return each(plain, open) }); err != nil {
		return fmt.Errorf("handles: %w", err)
	}
	next := func(o *opener) *client.Handle { return o.handles[len(o.locks)] }
	if c.Lock, err = m.thing(ctx, number, func() error {
		return each(plain, func(o *opener, _ int) error {
			l, err := next(o).Acquire(ctx, api.Exclusive)
			o.locks = append(o.locks, l)
			return err
		})
	}); err != nil {
		return fmt.Errorf("locks: %w", err)
	}
	value, written := bytes.Repeat([]byte{'x'}, sizingBytes), make([]atomic.Int64, len(plain))
	if c.Byte, err = m.thing(ctx, number*sizingBytes, func() error {
		return inParallel(len(plain), 0, len(plain), func(i int) error {
			for written[i].Load() < int64(handles) {
				if _, err := plain[i].handles[written[i].Load()].SetContents(ctx, value); err != nil {
					return err
				}
				written[i].Add(1)
			}
			return nil
		})
	}); err != nil {
		return fmt.Errorf("contents: %w", err)
	}
	both, err := m.thing(ctx, number, func() error {
		return each(caching, func(o *opener, node int) error {
			if err := open(o, node); err != nil {
				return err
			}
			_, err := o.handles[len(o.handles)-1].Stat(ctx)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("caches: %w", err)
	}
	c.Copy = thing{Memory: max(0, both.Memory-c.Handle.Memory)}
	c.Handle.Snapshot, c.Copy.Snapshot = 0, 0 // only a master knows them
	return nil
}
