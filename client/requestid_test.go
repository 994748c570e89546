package client

import (
	"errors"
	"fmt"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// A call has one id in all of its attempts, and its error has it. Another call has another one, and so has another client.
func TestRequestIDs(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, other := f.client(f.config()), f.client(f.config())
		opened := f.heard("CreateSession")
		first, second := opened[0].request.(*chubbypb.CreateSessionRequest).GetRequest(), opened[1].request.(*chubbypb.CreateSessionRequest).GetRequest()
		if first == 0 || second == 0 || first == second {
			t.Errorf("sessions are opened with the requests %x and %x", first, second)
		}
		h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
		if err != nil {
			t.Fatal(err)
		}
		f.script(func(s seen) verb {
			switch {
			case s.method != "SetContents":
			case s.nth <= 2:
				return fail(api.Errorf(api.Unavailable, "not yet"))
			default:
				return fail(api.Errorf(api.GenerationMismatch, "too late"))
			}
			return nil
		})
		told := map[string]bool{}
		for range 2 {
			_, err = h.SetContents(t.Context(), nil, IfGeneration(40))
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.GenerationMismatch || len(e.Request) != 16 || told[e.Request] {
				t.Errorf("%+v", e)
			}
			told[e.Request] = true
		}
		calls := f.heard("SetContents")
		if len(calls) != 4 {
			t.Fatalf("%d attempts, want 3 and 1", len(calls))
		}
		idOf := func(s seen) string {
			return fmt.Sprintf("%016x", s.request.(*chubbypb.SetContentsRequest).GetCaller().GetRequest())
		}
		for i, s := range calls {
			if id := idOf(s); !told[id] || i < 3 != (id == idOf(calls[0])) {
				t.Errorf("attempt %d has the request %s; the errors have %v", i, id, told)
			}
		}
		closeClient(t, c)
		closeClient(t, other)
	})
}
