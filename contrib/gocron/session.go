package chubbycron

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// acquire acquires the lock of a file, and creates the directories above it. If the session
// is lost meanwhile, it goes on in another, until ctx ends.
func acquire(ctx context.Context, keeper *client.Keeper, file api.Path, options ...client.LockOption) (l *client.Lock, err error) {
	const maxRounds = 10 // others may delete the directory
	for {
		err := keeper.Do(ctx, func(c *client.Client) (err error) {
			for range maxRounds {
				if l, err = c.Acquire(ctx, file.String(), options...); !errors.Is(err, api.NotFound) {
					return err
				}
				if err = c.MkdirAll(ctx, file.Parent().String()); err != nil {
					return err
				}
			}
			return err
		})
		if !errors.Is(err, api.SessionExpired) || ctx.Err() != nil {
			return l, err
		}
	}
}

// release releases a lock, and returns why it had been lost, if it had.
func release(ctx context.Context, l *client.Lock) error {
	lost := l.Err() // before the release, which ends it
	if err := l.Release(ctx); err != nil || lost == nil {
		return err
	}
	return lost
}

// lockDelay returns the lock-delay that a configuration asks for.
func lockDelay(op, path string, d time.Duration) (time.Duration, error) {
	switch {
	case d > api.MaxLockDelay:
		return 0, &api.Error{Code: api.InvalidArgument, Op: op, Path: path, Message: fmt.Sprintf("LockDelay is %v; at most %v are allowed", d, api.MaxLockDelay)}
	case d == 0:
		return api.DefaultLockDelay, nil
	}
	return max(d, 0), nil
}

// component returns the component of a path that stands for a name, one to one.
func component(name string) string {
	const (
		cutMark = "%." // is in no other: after a "%" come two digits
		cutAt   = 150
	)
	escaped := url.PathEscape(name)
	switch {
	case name == "":
		return cutMark
	case name == ".", name == "..":
		return "%2E" + escaped[1:]
	case len(escaped) > api.MaxComponent:
		sum := sha256.Sum256([]byte(name))
		return escaped[:cutAt] + cutMark + hex.EncodeToString(sum[:])
	}
	return escaped
}
