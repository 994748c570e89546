package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// What befalls the hosts, and what is looked at that no page tells the reader to look at.

// diskLost kills the replica of a host and takes what its disk had. The unit has it started again, on nothing: it refuses.
func diskLost(name string) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		if err := wipe(ctx, w, name); err != nil {
			return err
		}
		return w.until(ctx, name, "journalctl --unit chubbyd | tail -n 1 | grep -F 'main process exited, status=78'")
	}
}

func wipe(ctx context.Context, w *world, name string) error {
	_, err := w.shows(ctx, name, "kill -9 $(cat /var/lib/systemctl/chubbyd.main); rm -r /var/lib/chubby/data/*")
	return err
}

// disksLost takes the disks of a whole cell.
func disksLost(ctx context.Context, w *world) error {
	var errs []error
	for name := range strings.FieldsSeq(replaced) {
		errs = append(errs, wipe(ctx, w, name))
	}
	return errors.Join(errs...)
}

// ownBackup waits for the backup of the master, on its host.
func ownBackup(ctx context.Context, w *world) error {
	err := w.wait(ctx, func() error {
		found, err := filepath.Glob(filepath.Join(w.dir, "chubby?", "var/lib/chubby/backups/main-*.backup"))
		if err == nil && len(found) == 0 {
			err = errors.New("no host has a file in /var/lib/chubby/backups")
		}
		return err
	})
	if err != nil {
		for name := range strings.FieldsSeq(replicas) {
			out, _ := w.shows(ctx, name, "journalctl --unit chubbyd | grep backup")
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	return err
}

func newer(ctx context.Context, w *world) error {
	_, err := w.shows(ctx, desk, "chubbyctl put /ls/main/newer 'than every backup'")
	return err
}

func newerIsThere(ctx context.Context, w *world) error {
	out, err := w.shows(ctx, desk, "chubbyctl cat /ls/main/newer")
	if err == nil && !strings.Contains(out, "than every backup") {
		err = fmt.Errorf("/ls/main/newer is %q", out)
	}
	return err
}

// audited looks for the restores, which the master of that time has recorded.
func audited(ctx context.Context, w *world) error {
	found := 0
	for name := range strings.FieldsSeq(replaced) {
		out, err := w.shows(ctx, name, "cat /var/log/chubby/audit.log")
		if err != nil {
			return err
		}
		found += strings.Count(out, `"call":"Restore"`)
	}
	if found < 3 {
		return fmt.Errorf("the audit logs have %d records of restores; there were three", found)
	}
	return nil
}

// shows runs a command that is not of a page.
func (w *world) shows(ctx context.Context, name, script string) (string, error) {
	out, err := w.typed(ctx, name, script, false, nil)
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", script, err, out)
	}
	return out, nil
}

func (w *world) until(ctx context.Context, name, script string) error {
	return w.wait(ctx, func() error {
		_, err := w.shows(ctx, name, script)
		return err
	})
}

// wait asks again until there is no error, for a while.
func (w *world) wait(ctx context.Context, ask func() error) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(250 * time.Millisecond) {
		err := ask()
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
	}
}
