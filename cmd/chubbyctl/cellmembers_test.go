package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// A change of the replicas says each step once, and what a step waits for when it takes long, every few seconds.
func TestMemberProgress(t *testing.T) {
	var out strings.Builder
	var now []client.Member
	var passed time.Duration
	progress := memberProgress(&out, &now, func() time.Duration { return passed })
	for _, c := range []struct {
		after time.Duration
		one   client.Member
		want  string
	}{
		{0, client.Member{ID: "r6", Phase: "joining", Waits: "it does not answer"}, "chubbyctl: r6 catches up\n"},
		{4 * time.Second, client.Member{ID: "r6", Phase: "joining", Waits: "it does not answer"}, ""},
		{time.Second, client.Member{ID: "r6", Phase: "joining", Waits: "it does not answer"}, "chubbyctl: r6 waits: it does not answer\n"},
		{time.Second, client.Member{ID: "r6", Phase: "joining", Waits: "it does not answer"}, ""},
		{9 * time.Second, client.Member{ID: "r6", Phase: "joining"}, ""},
		{0, client.Member{ID: "r6", Phase: "joining", Voter: true}, "chubbyctl: r6 has a vote\n"},
		{time.Second, client.Member{ID: "r6", Voter: true}, ""},
	} {
		passed += c.after
		out.Reset()
		if progress([]client.Member{c.one}); out.String() != c.want || len(now) != 1 || now[0] != c.one {
			t.Errorf("after %v, %+v: %q, want %q", passed, c.one, out.String(), c.want)
		}
	}
}

func TestPrintMembers(t *testing.T) {
	g := &globals{}
	var out strings.Builder
	list := []client.Member{{ID: "r1", Voter: true}, {ID: "r6", Phase: "joining", Waits: "it does not answer"}}
	if err := printMembers(g.output, &out, list); err != nil || !strings.HasSuffix(out.String(), "\nr6 is joining, and waits: it does not answer\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// A change that is decided is followed for as long as it takes, whatever --timeout is; nothing says that it is given up. Once the cell does
// not answer for --timeout, the command ends, and says that the change goes on.
func TestMemberChangeOutlastsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 3)
		s := &stage{t: t, cell: c, ctx: t.Context()}
		joining, give := context.WithCancel(t.Context())
		s.beside.Go(func() { _ = c.Join(joining, "r4") }) // which it does not, as it is cut off first
		time.Sleep(time.Second)
		watcher := c.Client("watcher")
		var text string
		ended := make(chan struct{})
		s.beside.Go(func() {
			defer close(ended)
			text = s.run("cell add r4 r4:7431 --timeout 3s")
		})
		for joins := false; !joins; time.Sleep(time.Millisecond) {
			list, err := watcher.Cell().Members(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			joins = slices.ContainsFunc(list, func(m client.Member) bool { return m.ID == "r4" })
		}
		c.Cut("r4")
		time.Sleep(time.Minute)
		select {
		case <-ended:
			t.Fatalf("it ended while r4 joins:\n%s", text)
		default:
		}
		for _, id := range []string{"r1", "r2", "r3"} {
			c.Kill(id)
		}
		<-ended
		give()
		s.beside.Wait()
		for _, want := range []string{"r4 catches up", "the cell did not answer within 3s", "the change was decided, and goes on", "[exit 76]"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		if strings.Contains(text, "gives up in") {
			t.Errorf("it says that it gives up:\n%s", text)
		}
	})
}

// If the cell is away after a change was decided, the command says that the change goes on, and not that nothing was changed.
func TestMemberChangeIsDecidedOnce(t *testing.T) {
	for _, one := range []struct {
		line    string
		answers int64 // to the question how far the change is, before the cell is away
	}{
		{"cell remove %", 0},
		{"cell remove %", 1},
		{"cell remove % --no-wait", 0},
	} {
		t.Run(fmt.Sprintf("%s, %d answers", one.line, one.answers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := celltest.Start(t, 3)
				time.Sleep(5 * time.Second)
				id := "r1"
				if c.Master() == id {
					id = "r2"
				}
				var decided atomic.Bool
				var answers atomic.Int64
				printed, code := runOver(t, c, c.Lossy("client", func(method string) bool {
					if strings.HasSuffix(method, "/ChangeMembers") {
						decided.Store(true)
					}
					return decided.Load() && strings.HasSuffix(method, "/Members") && answers.Add(1) > one.answers
				}), strings.Replace(one.line, "%", id, 1), "")
				time.Sleep(time.Minute)
				list, err := c.Client("author").Cell().Members(t.Context())
				if err != nil || len(list) != 2 {
					t.Fatalf("%+v, %v", list, err)
				}
				if code != exitUncertain || !strings.Contains(printed, "the change was decided, and goes on") {
					t.Errorf("exit code %d: %s", code, printed)
				}
			})
		})
	}
}
