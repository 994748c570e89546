package e2e

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/chubbylock/chubby/client"
)

// holdCaches is a child's task: some clients that have files, or directories, in their caches and read them again
// and again.
func holdCaches(k task, over <-chan struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var handles []*client.Handle
	for range k.Clients {
		c, err := client.New(ctx, k.config())
		if err != nil {
			return err
		}
		for _, path := range k.Files {
			h, err := c.Open(ctx, path, client.OpenOptions{Read: true})
			if err != nil {
				return err
			}
			handles = append(handles, h)
		}
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for round := 0; ; round++ {
		for _, h := range handles {
			if err := k.look(ctx, h); err != nil {
				return err
			}
		}
		if round == 0 {
			if err := json.NewEncoder(os.Stdout).Encode(note{What: "ready"}); err != nil {
				return err
			}
		}
		select {
		case <-over:
			return nil
		case <-tick.C:
		}
	}
}

// look reads a file, or lists a directory.
func (k task) look(ctx context.Context, h *client.Handle) (err error) {
	if k.Watch == "list" {
		_, err = h.ReadDir(ctx)
	} else {
		_, _, err = h.Contents(ctx)
	}
	return err
}
