// Election is the paper's primary election in six steps (Chubby §2.6).
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

func main() {
	me, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := campaign(ctx, fmt.Sprintf("%s/%d", me, os.Getpid())); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func campaign(ctx context.Context, me string) error {
	c, err := client.New(ctx, client.Config{}) // a session with the cell
	if err != nil {
		return err
	}
	defer c.Close(ctx) // which gives the lock to the next, also when ctx has ended
	// 1: Everybody who could be the primary opens the lock file.
	h, err := c.Open(ctx, "/ls/local/primary", client.OpenOptions{
		Read: true, Write: true, Create: client.File, LockDelay: api.DefaultLockDelay,
	})
	if err != nil {
		return err
	}
	// 2: They try to have its lock: one succeeds, the others wait their turn.
	lock, err := h.Acquire(ctx, api.Exclusive)
	if err != nil {
		return err
	}
	// 3: The primary writes into the file who it is.
	if _, err := h.SetContents(ctx, []byte(me), client.IfSequencer(lock.Sequencer())); err != nil {
		return err
	}
	// 4: Others read the file (Contents), again at each event of it, and know the primary.
	// 5: The primary sends its sequencer with every request to the servers it uses.
	fmt.Printf("primary: %s, sequencer: %s\n", me, lock.Sequencer())
	// 6: They check it (sequencer.Guard, CheckSequencer); work ends with the lock.
	select {
	case <-lock.Context().Done():
		return lock.Err()
	case <-ctx.Done():
		return nil
	}
}
