package main

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// Of a lock there is a line when it is first seen, when it has changed, and when it is free; time alone changes
// nothing, and a look that broke off does not set anything free.
func TestLockChanges(t *testing.T) {
	var printed []string
	c := newLockChanges(func(f term.Fields) error {
		printed = append(printed, fmt.Sprint(f[1], " ", f[3])) // path and mode
		return nil
	})
	held := func(path string, by api.SessionID) client.LockInfo {
		return client.LockInfo{Path: path, Mode: api.Exclusive, Generation: 7, Holders: []api.Holder{{Session: by}}}
	}
	look := func(complete bool, locks ...client.LockInfo) []string {
		printed = nil
		c.look++
		for _, l := range locks {
			c.see(l)
		}
		if complete {
			if err := c.finish(); err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(printed)
		return printed
	}
	waiting := held("/a", 1)
	waiting.Waiters = []client.Waiter{{Holder: api.Holder{Session: 2}, Place: 1, Waiting: time.Second}}
	longer := held("/a", 1)
	longer.Waiters = []client.Waiter{{Holder: api.Holder{Session: 2}, Place: 1, Waiting: time.Minute, Estimate: time.Hour}}
	for i, step := range []struct {
		got, want []string
	}{
		{look(true, held("/a", 1), held("/b", 2)), []string{"/a exclusive", "/b exclusive"}},
		{look(true, held("/a", 1), held("/b", 2)), nil},
		{look(true, held("/a", 3), held("/b", 2)), []string{"/a exclusive"}},
		{look(true, waiting, held("/b", 2)), []string{"/a exclusive"}},
		{look(true, longer, held("/b", 2)), nil},
		{look(false, longer), nil},
		{look(true, longer), []string{"/b free"}},
		{look(true), []string{"/a free"}},
		{look(true), nil},
	} {
		if !reflect.DeepEqual(step.got, step.want) {
			t.Errorf("look %d printed %v, want %v", i, step.got, step.want)
		}
	}
	if len(c.known) != 0 {
		t.Errorf("it remembers %d locks that nobody holds", len(c.known))
	}
	full := errors.New("full")
	c.show = func(term.Fields) error { return full }
	c.see(held("/a", 1))
	if err := c.finish(); !errors.Is(err, full) {
		t.Errorf("nothing could be written, and it went on: %v", err)
	}
}

// On a terminal the screen is not longer than the terminal.
func TestLocksScreen(t *testing.T) {
	var locks []client.LockInfo
	for range 100 {
		locks = append(locks, client.LockInfo{Path: "/ls/local/a", Mode: api.Exclusive, Holders: []api.Holder{{Session: 1}}})
	}
	for height, want := range map[int]int{0: 102, 24: 23, 200: 102} {
		text := drawLocks("", term.Style{Terminal: true, Width: 80, Height: height}, locks, true)
		if got := strings.Count(text, "\n"); got != want {
			t.Errorf("on %d lines it draws %d; want %d", height, got, want)
		}
		if !strings.Contains(text, "a PATH shows") {
			t.Errorf("on %d lines it does not say that there are more:\n%s", height, text)
		}
	}
}
