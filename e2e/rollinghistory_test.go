package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// operation is one that was done with a file: a read, or a write on the condition that the contents have a generation.
type operation struct {
	began, ended time.Duration
	write        bool
	refused      bool           // the contents had another generation
	expected     api.Generation // of a write
	generation   api.Generation // of the contents after it
	contents     string         // which are of one write only
}

// history is what several clients did with one file.
type history struct {
	mu         sync.Mutex // guards operations
	operations []operation
}

// do does an operation, and keeps it if it has an answer.
func (h *history) do(l *traffic, o operation, do func(*operation) error) error {
	o.began = time.Since(l.began)
	if err := do(&o); err != nil {
		return err
	}
	o.ended = time.Since(l.began)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, o)
	return nil
}

// check returns why the history, of a file that began with these contents, is not linearizable. Every write has another
// generation, so the order of the writes is known, and a history is linearizable if the generations never go back in
// real time, each write replaces what it expected to replace, and each read shows what a write wrote. A write is
// refused rightly if another may have come before it.
func (h *history) check(first operation) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := append([]operation{first}, h.operations...)
	writes := map[api.Generation]operation{}
	var order []api.Generation
	for _, o := range all {
		if !o.write || o.refused {
			continue
		}
		if other, ok := writes[o.generation]; ok {
			return fmt.Errorf("two writes have one generation: %+v and %+v", other, o)
		}
		writes[o.generation] = o
		order = append(order, o.generation)
	}
	slices.Sort(order)
	for i, generation := range order[1:] {
		if o := writes[generation]; o.expected != order[i] {
			return fmt.Errorf("a write replaced generation %d, and expected %d: %+v", order[i], o.expected, o)
		}
	}
	for _, o := range all {
		if err := o.checkContents(writes, order); err != nil {
			return err
		}
	}
	return checkRealTime(all)
}

// checkContents compares what an operation saw with the writes, whose generations are in order.
func (o operation) checkContents(writes map[api.Generation]operation, order []api.Generation) error {
	if o.refused {
		at, _ := slices.BinarySearch(order, o.expected)
		if at+1 >= len(order) || writes[order[at+1]].began > o.ended {
			return fmt.Errorf("refused, and nobody had written since: %+v", o)
		}
		return nil
	}
	w, ok := writes[o.generation]
	if !ok || w.contents != o.contents || w.began > o.ended {
		return fmt.Errorf("no write before it was of these contents: %+v; of that generation is %+v", o, w)
	}
	return nil
}

// checkRealTime checks that what began after an operation had ended saw its generation, or
// a later one, and that a write had a later one.
func checkRealTime(all []operation) error {
	all = slices.DeleteFunc(slices.Clone(all), func(o operation) bool { return o.refused })
	byEnd := slices.Clone(all)
	slices.SortFunc(all, func(a, b operation) int { return cmp.Compare(a.began, b.began) })
	slices.SortFunc(byEnd, func(a, b operation) int { return cmp.Compare(a.ended, b.ended) })
	var latest operation // with the highest generation of those that have ended
	for _, o := range all {
		for len(byEnd) > 0 && byEnd[0].ended < o.began {
			if byEnd[0].generation >= latest.generation {
				latest = byEnd[0]
			}
			byEnd = byEnd[1:]
		}
		if o.generation < latest.generation || o.write && o.generation == latest.generation {
			return fmt.Errorf("%+v had ended when this began: %+v", latest, o)
		}
	}
	return nil
}

// compareAndSwap has clients of both versions read and write one file.
func (l *traffic) compareAndSwap(path string) (h *history, first operation) {
	l.cell.t.Helper()
	h, first = l.swapByHandles(path, 40*time.Millisecond)
	n := 0
	l.repeat("a writer of the release", 300*time.Millisecond, func(ctx context.Context) error {
		n++
		return h.swapByCtl(ctx, l, path, fmt.Sprintf("%d of the release", n))
	})
	return h, first
}

// swapByHandles has clients of this version do so, with pauses between what each does.
func (l *traffic) swapByHandles(path string, pause time.Duration) (h *history, first operation) {
	t := l.cell.t
	t.Helper()
	h, first = &history{}, operation{write: true, contents: "first"}
	stat, err := l.cell.handle(t.Context(), l.cell.newClient(client.Config{}), path).SetContents(t.Context(), []byte("first"))
	noErr(t, err)
	first.generation = stat.Content
	for i := range 3 { // two of them read through a cache
		handle := l.cell.handle(t.Context(), l.cell.newClient(client.Config{NoCache: i == 0}), path)
		n := 0
		l.repeat("a writer of one file", pause, func(ctx context.Context) error {
			n++
			return h.swapByHandle(ctx, l, handle, fmt.Sprintf("%d of writer %d", n, i), n%3 == 0)
		})
	}
	return h, first
}

// swapByHandle reads a file and, if it is to write, replaces what it has read.
func (h *history) swapByHandle(ctx context.Context, l *traffic, handle *client.Handle, contents string, write bool) error {
	var has api.Generation
	err := h.do(l, operation{}, func(o *operation) error {
		got, stat, err := handle.Contents(ctx)
		o.contents, o.generation, has = string(got), stat.Content, stat.Content
		return err
	})
	if err != nil || !write {
		return err
	}
	return h.do(l, operation{write: true, expected: has, contents: contents}, func(o *operation) error {
		stat, err := handle.SetContents(ctx, []byte(contents), client.IfGeneration(has))
		if o.generation = stat.Content; errors.Is(err, api.GenerationMismatch) {
			o.refused, err = true, nil
		}
		return err
	})
}

// swapByCtl does the same by the chubbyctl of the release.
func (h *history) swapByCtl(ctx context.Context, l *traffic, path, contents string) error {
	var line struct {
		Contents   string
		Generation api.Generation `json:"content_generation"`
	}
	err := h.do(l, operation{}, func(o *operation) error {
		out, err := l.mustCtl(ctx, "-o", "json", "cat", path)
		err = errors.Join(err, json.Unmarshal([]byte(out), &line))
		o.contents, o.generation = line.Contents, line.Generation
		return err
	})
	if err != nil {
		return err
	}
	return h.do(l, operation{write: true, expected: line.Generation, contents: contents}, func(o *operation) error {
		r, err := l.ctl(ctx, "-o", "json", "put", path, contents, "--if-generation", fmt.Sprint(line.Generation))
		if err != nil {
			return err
		}
		switch r.code {
		case 0:
			err = json.Unmarshal([]byte(r.out), &line)
			o.generation = line.Generation
			return err
		case 3:
			o.refused = true
			return nil
		}
		return fmt.Errorf("put of the release: exit %d: %s", r.code, r.err)
	})
}

// The check of histories finds what is wrong with them.
func TestHistoryCheck(t *testing.T) {
	first := operation{write: true, generation: 10, contents: "first"}
	read := func(began, ended time.Duration, generation api.Generation, contents string) operation {
		return operation{began: began, ended: ended, generation: generation, contents: contents}
	}
	write := func(began, ended time.Duration, expected, generation api.Generation, contents string) operation {
		return operation{began: began, ended: ended, write: true, expected: expected, generation: generation, contents: contents}
	}
	refused := func(began, ended time.Duration, expected api.Generation) operation {
		return operation{began: began, ended: ended, write: true, refused: true, expected: expected}
	}
	for name, c := range map[string]struct {
		operations []operation
		says       string
	}{
		"as it should be":          {[]operation{write(1, 2, 10, 12, "a"), read(3, 4, 12, "a"), refused(3, 5, 10), write(5, 6, 12, 20, "b")}, ""},
		"at the same time":         {[]operation{write(1, 5, 10, 12, "a"), read(2, 3, 12, "a"), read(2, 3, 10, "first"), refused(2, 3, 10)}, ""},
		"a stale read":             {[]operation{write(1, 2, 10, 12, "a"), read(3, 4, 10, "first")}, "had ended when this began"},
		"two reads that go back":   {[]operation{write(1, 9, 10, 12, "a"), read(2, 3, 12, "a"), read(4, 5, 10, "first")}, "had ended when this began"},
		"a lost write":             {[]operation{write(1, 2, 10, 12, "a"), write(3, 4, 10, 14, "b")}, "expected 10"},
		"two writes at once":       {[]operation{write(1, 2, 10, 12, "a"), write(1, 2, 10, 12, "b")}, "one generation"},
		"a write that never was":   {[]operation{read(1, 2, 12, "a")}, "no write before it"},
		"a read of the future":     {[]operation{read(1, 2, 12, "a"), write(3, 4, 10, 12, "a")}, "no write before it"},
		"other contents":           {[]operation{write(1, 2, 10, 12, "a"), read(3, 4, 12, "b")}, "no write before it"},
		"refused without a reason": {[]operation{refused(1, 2, 10), write(3, 4, 10, 12, "a")}, "nobody had written"},
		"generations that go back": {[]operation{write(4, 5, 10, 12, "a"), write(1, 2, 12, 13, "b")}, "had ended when this began"},
	} {
		h := history{operations: c.operations}
		if err := h.check(first); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
