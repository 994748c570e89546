package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// hookGrace is the time from SIGTERM to SIGKILL for the CMD of a watch.
const hookGrace = 3 * time.Second

// runHook runs CMD for events, the last of which is in its environment, and waits for it. If CMD fails, it
// notifies the user and returns no error: CMD may need the next event too. With --contents CMD gets each
// event's fields on standard input, which it may ignore.
func (o *watchOptions) runHook(ctx context.Context, due []toldEvent) error {
	if hasEnded(ctx) {
		return nil
	}
	e, kind := due[len(due)-1].Event, due[len(due)-1].fields.Event
	c := exec.CommandContext(ctx, "/bin/sh", "-c", o.exec)
	c.Env = append(os.Environ(), // of duplicate names, the later value counts
		"CHUBBY_EVENT="+kind,
		"CHUBBY_PATH="+e.Path,
		"CHUBBY_CHILD="+e.Child,
		"CHUBBY_GENERATION="+strconv.FormatUint(uint64(e.Generation), 10),
	)
	if o.contents != "" {
		var lines bytes.Buffer
		for _, one := range due {
			if err := term.JSON.Print(&lines, one.fields); err != nil {
				return err
			}
		}
		c.Stdin = &lines
	}
	c.Stdout, c.Stderr = term.Bare(o.out), term.Bare(o.err)
	c.WaitDelay = hookGrace
	finish := endAsGroup(c)
	err := c.Run()
	finish()
	var exit *exec.ExitError
	switch {
	case hasEnded(ctx):
		return nil // it was asked to end
	case errors.Is(err, exec.ErrWaitDelay):
		return nil // CMD has ended, and its leftovers hold its standard input
	case errors.As(err, &exit):
		o.notice(o.err, fmt.Sprintf("CMD for %s of %s failed: %v", kind, e.Path, err))
		return nil
	case err != nil:
		return fmt.Errorf("run CMD: %w", err)
	}
	return nil
}
