package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// checkMasters makes each replica the master in turn, and compares what they tell of the
// cell. The state hash is one of the log and of a few numbers; this sees each field that
// clients can see. It needs a cell in which nobody changes anything, and a client without a
// cache.
func (r *rollingCell) checkMasters(c *client.Client) {
	r.t.Helper()
	began := time.Now()
	var first map[string]string
	for _, id := range rollingIDs {
		tells := r.tells(c, id)
		if first == nil {
			first = tells
		}
		paths := maps.Clone(first)
		maps.Copy(paths, tells)
		differ := 0
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			if first[path] != tells[path] && differ < 3 {
				r.t.Errorf("of %s, %s of %s tells\n%s\nand %s of %s\n%s", path,
					rollingIDs[0], r.has[rollingIDs[0]].name, first[path], id, r.has[id].name, tells[path])
				differ++
			}
		}
	}
	r.stopIfFailed()
	r.t.Logf("each replica as the master tells the same of %d nodes, locks and sessions (in %v)", len(first), time.Since(began).Round(time.Millisecond))
}

// tells is what a replica tells as the master: of each node, each lock and each session.
func (r *rollingCell) tells(c *client.Client, id string) map[string]string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	for range 3 { // another may be elected meanwhile
		r.transfer(id)
		all := map[string]string{}
		err := describe(ctx, c, "/ls/local", all)
		if err != nil {
			r.t.Fatal(err)
		}
		locks, err := c.Cell().Locks(ctx, "/ls/local")
		if err != nil {
			r.t.Fatal(err)
		}
		for _, l := range locks {
			for i := range l.Holders {
				l.Holders[i].LockDelay, l.Holders[i].Checked = 0, false // the release does not tell them
			}
			all["lock "+l.Path] = fmt.Sprintf("%v, generation %d, held by %+v", l.Mode, l.Generation, l.Holders)
		}
		sessions, err := c.Cell().Sessions(ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, s := range sessions {
			all[fmt.Sprintf("session %v", s.Session)] = fmt.Sprintf("%+v, %d locks", s.Holder, s.Locks)
		}
		if s, err := r.status(); err == nil && s.Master == id {
			return all
		}
	}
	r.t.Fatalf("%s does not stay the master", id)
	return nil
}

// describe adds what a client can see of the nodes in a directory, and below it.
func describe(ctx context.Context, c *client.Client, dir string, all map[string]string) error {
	h, err := c.Open(ctx, dir, client.OpenOptions{Read: true})
	if err != nil {
		return err
	}
	list, err := h.ReadDir(ctx)
	if err != nil {
		return err
	}
	for _, stat := range list {
		all[stat.Path.String()] = fmt.Sprintf("%+v", stat)
		if stat.Kind == api.Directory {
			if err := describe(ctx, c, stat.Path.String(), all); err != nil {
				return err
			}
		}
	}
	return h.Close(ctx)
}
