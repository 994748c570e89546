package chubbykv

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A lease is an ephemeral file that a Store keeps open: the cell deletes it with the session. No two leases
// ever have the same name, so what names one that is gone never exists again.
type lease struct {
	name    string
	session api.SessionID
	handle  *client.Handle
}

// leaseLength is that of the name of a lease: 128 random bits in hexadecimal digits.
const leaseLength = 32

// leaseFile returns the path of the file of a lease.
func (s *Store) leaseFile(name string) string { return s.leases() + "/" + name }

// leaseOf returns the lease of a session, and makes it if there is none.
func (s *Store) leaseOf(ctx context.Context, c *client.Client) (*lease, error) {
	s.mu.Lock()
	l := s.lease
	s.mu.Unlock()
	if l != nil && l.session == c.Session() {
		return l, nil
	}
	var id [leaseLength / 2]byte
	_, _ = rand.Read(id[:]) // it never fails
	l = &lease{name: hex.EncodeToString(id[:]), session: c.Session()}
	o := client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true}
	var err error
	for range maxRounds {
		if l.handle, err = c.Open(ctx, s.leaseFile(l.name), o); !errors.Is(err, api.NotFound) {
			break
		}
		if err = c.MkdirAll(ctx, s.leases()); err != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make a lease: %w", err)
	}
	s.mu.Lock()
	other := s.lease
	if other == nil || other.session != l.session {
		s.lease, other = l, nil
	}
	s.mu.Unlock()
	if other != nil { // another call was faster
		_ = l.handle.Close(ctx) // in the background, if there is no answer
		return other, nil
	}
	return l, nil
}

// drop forgets a lease that somebody may have deleted.
func (s *Store) drop(ctx context.Context, l *lease) {
	s.mu.Lock()
	dropped := s.lease == l
	if dropped {
		s.lease = nil
	}
	s.mu.Unlock()
	if dropped {
		_ = l.handle.Close(ctx) // in the background, if there is no answer
	}
}

// maxExpiring is how many keys with a TTL a Store counts at the same time.
const maxExpiring = 10_000

// expiry is the end of a key with a TTL.
type expiry struct{ cancel context.CancelFunc }

// mayExpire returns an error if no further TTL can be counted. (Calls at the same time may make a few more.)
func (s *Store) mayExpire(e entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expiry[e.key] == nil && len(s.expiry) >= maxExpiring {
		return &api.Error{Code: api.QuotaExceeded, Op: "put", Path: s.file(e),
			Message: fmt.Sprintf("this store counts the TTLs of %d keys already; write longer-lived keys with KeepAlive, or without a TTL", maxExpiring)}
	}
	return nil
}

// expire deletes a key when its TTL has passed, unless it has been written again.
func (s *Store) expire(e entry, at api.Generation, ttl time.Duration) {
	ctx, cancel := context.WithTimeout(s.life, ttl)
	own := &expiry{cancel}
	s.mu.Lock()
	before := s.expiry[e.key]
	s.expiry[e.key] = own
	s.mu.Unlock()
	if before != nil {
		before.cancel()
	}
	forget := func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.expiry[e.key] == own {
			delete(s.expiry, e.key)
		}
	}
	err := s.start(func(life context.Context) {
		defer forget()
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return // it has been written again; or the Store was closed, and the lease goes with it
		}
		_ = s.repeat(life, func(c *client.Client) error { // it fails if the key was written since, or went with the session
			_, err := c.Txn().Delete(s.file(e), client.IfGeneration(at)).Commit(life)
			return err
		})
	})
	if err != nil {
		forget()
	}
}
