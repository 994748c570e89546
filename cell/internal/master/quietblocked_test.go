package master

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// askingFor is a claim with a reason.
func (c *soloClient) askingFor(h Handle, mode api.LockMode, reason string) raftfsm.Claim {
	claim := c.claim(h, mode)
	claim.Reason = reason
	return claim
}

// Who is not quiet and stands behind one who is waits for the same holders, though its own mode would go together with theirs:
// they are told of it, in whichever order they came, and by whichever call.
func TestWhoIsBehindAQuietRequestAsks(t *testing.T) {
	for name, test := range map[string]struct {
		waits, quiet, first bool // in the queue; the reader who comes last is quiet, too; the holder came first
		want                []string
	}{
		"it waits":                   {waits: true, first: true, want: []string{"report"}},
		"it tries":                   {first: true, want: []string{"report"}},
		"it waits, quiet":            {waits: true, quiet: true, first: true},
		"it tries, quiet":            {quiet: true, first: true},
		"it waited before the grant": {waits: true, want: []string{"report"}},
	} {
		t.Run(name, func(t *testing.T) {
			inSolo(t, nil, func(t *testing.T, m *soloMaster) {
				c, h := lockers(t, m)
				holder := c[0].listening(t, "/ls/local/f", false)
				var release func()
				if test.first {
					c[0].try(t, holder, api.Shared)
					release = func() {}
				} else { // another has the lock, and gives it to the holder while the two wait
					got := c[2].try(t, h[2], api.Exclusive)
					c[0].wait(t.Context(), holder, c[0].claim(holder, api.Shared))
					release = func() {
						if err := m.Locks.Release(t.Context(), c[2].mutation(), h[2], got.Generation); err != nil {
							t.Fatal(err)
						}
					}
				}
				c[1].waitQuietly(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
				last := c[2].listening(t, "/ls/local/f", false)
				claim := c[2].askingFor(last, api.Shared, "report")
				switch {
				case !test.waits:
					if _, err := m.Locks.TryAcquire(t.Context(), requestFor(claim, last).quietIf(test.quiet)); !errors.Is(err, api.LockHeld) {
						t.Fatal(err)
					}
				case test.quiet:
					c[2].waitQuietly(t.Context(), last, claim)
				default:
					c[2].wait(t.Context(), last, claim)
				}
				release()
				if told := conflictsOf(c[0]); !slices.Equal(told, test.want) {
					t.Errorf("the holder was told %q, want %q", told, test.want)
				}
			})
		})
	}
}

// The same after a Close of its handle that did not come to the log: it was skipped meanwhile.
func TestWhoIsBehindAQuietRequestAsksAfterAClose(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		c[0].try(t, c[0].listening(t, "/ls/local/f", false), api.Shared)
		c[1].waitQuietly(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
		ctx, cancel := context.WithCancel(t.Context())
		waits := c[2].wait(ctx, h[2], c[2].askingFor(h[2], api.Shared, "report"))
		m.epoch.mu.Lock()
		by := namespace.Owner{Session: c[2].who.Session, Handle: h[2].Owner.Handle}
		m.tables.queues.closing[by]++
		m.Locks.offers.handleClosed(by)
		m.epoch.mu.Unlock()
		if told := conflictsOf(c[0]); !slices.Equal(told, []string{"report", "report"}) {
			t.Errorf("the holder was told %q", told)
		}
		cancel()
		answered(t, waits)
	})
}

// A TryAcquire whose client gives up while the lock is asked back has asked all the same: the recall is told to no program.
func TestTryThatIsGivenUpIsTold(t *testing.T) {
	for quiet, want := range map[bool][]string{false: {"recall", "backup"}, true: {"recall"}} {
		inSolo(t, nil, func(t *testing.T, m *soloMaster) {
			c, h := lockers(t, m)
			silent := m.client(t, 9) // it acknowledges nothing
			silent.try(t, silent.listening(t, "/ls/local/f", true), api.Exclusive)
			ctx, cancel := context.WithTimeout(t.Context(), maxRecall/2)
			defer cancel()
			if _, err := m.Locks.TryAcquire(ctx, requestFor(c[0].askingFor(h[0], api.Exclusive, "backup"), h[0]).quietIf(quiet)); err == nil {
				t.Error("it has the lock")
			}
			for _, e := range silent.hear(t) {
				silent.note(e)
			}
			if told := conflictsOf(silent); !slices.Equal(told, want) {
				t.Errorf("quiet %t: told %q, want %q", quiet, told, want)
			}
		})
	}
}

// A quiet TryAcquire has a lock given back also if more keep it than are waited for.
func TestQuietTryRecallsOfVeryMany(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		var keeping []Handle
		for range maxRecalled + 1 {
			one := c[0].listening(t, "/ls/local/f", true)
			c[0].try(t, one, api.Shared)
			keeping = append(keeping, one)
		}
		began := time.Now()
		if _, err := m.Locks.TryAcquire(t.Context(), requestFor(c[1].claim(h[1], api.Exclusive), h[1]).quietIf(true)); !errors.Is(err, api.LockHeld) || time.Since(began) > maxRecall/2 {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
		if told := conflictsOf(c[0]); len(told) != len(keeping) || slices.Contains(told, "") {
			t.Errorf("%d of %d were asked: %q", len(told), len(keeping), told)
		}
	})
}
