package client

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

// refuse is what the system says where nothing listens.
func refuse(context.Context, string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// Where nothing listens, waiting seldom helps; Config.RefusedFor bounds it. A
// server that is silent is another matter, and so is a cell that was reached.
func TestNothingListens(t *testing.T) {
	const limit = 1500 * time.Millisecond
	t.Run("nowhere", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fake) {
			cfg := f.config()
			cfg.RefusedFor, cfg.Dialer = limit, refuse
			_, err := New(t.Context(), cfg)
			if !errors.Is(err, NothingListens) || !errors.Is(err, api.Unavailable) || !strings.Contains(err.Error(), "a:1, b:1, c:1") {
				t.Errorf("New: %v", err)
			}
			if took := time.Since(f.began); took < limit || took > limit+time.Second {
				t.Errorf("it took %v", took)
			}
		})
	})
	for name, dial := range map[string]func(context.Context, string) (net.Conn, error){
		"no such host: nobody": func(ctx context.Context, address string) (net.Conn, error) {
			if address == "a:1" {
				return refuse(ctx, address)
			}
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "nobody", IsNotFound: true}}
		},
		"the port for clients is 7421 by default, and that of HTTP 7441": func(context.Context, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				_, _ = theirs.Read(make([]byte, 100))
				_, _ = io.WriteString(theirs, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
				_ = theirs.Close()
			}()
			return ours, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				cfg := f.config()
				cfg.RefusedFor, cfg.Dialer = limit, dial
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := New(ctx, cfg)
				why, _, _ := strings.Cut(name, ":")
				if took := time.Since(f.began); !errors.Is(err, NothingListens) || !strings.Contains(err.Error(), why) || took > limit+5*time.Second {
					t.Errorf("New: %v after %v", err, took)
				}
			})
		})
	}
	t.Run("one is silent", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fake) {
			cfg := f.config()
			cfg.RefusedFor = limit
			cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
				if address == "b:1" {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return refuse(ctx, address)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := New(ctx, cfg)
			if took := time.Since(f.began); errors.Is(err, NothingListens) || took < 10*time.Second {
				t.Errorf("New: %v after %v", err, took)
			}
		})
	})
	t.Run("a restart", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fake) {
			cfg := f.config()
			cfg.RefusedFor = limit
			down := func() bool { return time.Since(f.began) < time.Second }
			cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
				if down() {
					return refuse(ctx, address)
				}
				return f.dial(ctx, address)
			}
			c := f.client(cfg)
			synctest.Wait() // both connections have been made, or the second would not be cut
			began := time.Now()
			down = func() bool { return time.Since(began) < 5*time.Second }
			f.cut(addresses()...)
			f.heal()
			if _, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Read: true}); err != nil {
				t.Errorf("Open in a cell that was reached before: %v", err)
			}
			closeClient(t, c)
		})
	})
}

// What asks the replicas themselves says at once that nothing listens.
func TestStatusWhereNothingListens(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.Dialer = refuse
		cell, err := Dial(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cell.Status(t.Context()); !errors.Is(err, NothingListens) || time.Since(f.began) > 100*time.Millisecond {
			t.Errorf("Status: %v after %v", err, time.Since(f.began))
		}
		if err := cell.Close(); err != nil {
			t.Error(err)
		}
	})
}
