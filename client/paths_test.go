package client

import (
	"context"
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// answering is a verb that answers without asking the cell.
func answering(reply any) verb {
	return func(context.Context, func() (any, error)) (any, error) { return reply, nil }
}

// A directory that is deleted while those below it are made is made again, and not for ever.
func TestMkdirAllIsBounded(t *testing.T) {
	for _, deletions := range []int{0, 3, 1000} {
		inBubble(t, func(t *testing.T, f *fake) {
			c := f.client(f.config())
			missing, above := true, 0
			f.script(func(s seen) verb {
				if s.method != "Open" {
					return nil
				}
				if s.request.(*chubbypb.OpenRequest).GetPath() == "/ls/foo/a" {
					above++
					missing = above <= deletions
					return nil
				}
				if missing {
					return fail(api.Errorf(api.NotFound, "there is no directory /a"))
				}
				return nil
			})
			err := c.MkdirAll(t.Context(), "/ls/foo/a/b")
			if gaveUp := deletions > maxReopen; gaveUp != errors.Is(err, api.NotFound) || !gaveUp && err != nil || above > maxReopen {
				t.Errorf("after %d deletions: %v, and the directory above was made %d times", deletions, err, above)
			}
			closeClient(t, c)
		})
	}
}

// A directory in which others create files while it is emptied is emptied again, and not for ever.
func TestRemoveAllIsBounded(t *testing.T) {
	for _, creations := range []int{0, 3, 1000} {
		inBubble(t, func(t *testing.T, f *fake) {
			c := f.client(f.config())
			deletes := 0
			f.script(func(s seen) verb {
				switch s.method {
				case "ReadDir":
					return answering(&chubbypb.ReadDirReply{})
				case "Delete":
					if deletes++; deletes <= creations {
						return fail(api.Errorf(api.NotEmpty, "there is a child"))
					}
				}
				return nil
			})
			err := c.RemoveAll(t.Context(), "/ls/foo/a")
			if gaveUp := creations > maxReopen; gaveUp != errors.Is(err, api.NotEmpty) || !gaveUp && err != nil || deletes > maxReopen+1 {
				t.Errorf("after %d creations: %v, %d deletes", creations, err, deletes)
			}
			closeClient(t, c)
		})
	}
}

// A node that is deleted between the Open and the call is opened again, and not for ever.
func TestDeletedAfterTheOpen(t *testing.T) {
	for _, deletions := range []int{0, 3, 1000} {
		inBubble(t, func(t *testing.T, f *fake) {
			c := f.client(f.config())
			reads := 0
			f.script(func(s seen) verb {
				if s.method != "GetContentsAndStat" {
					return nil
				}
				if reads++; reads <= deletions {
					return fail(api.Errorf(api.HandleClosed, "the node was deleted"))
				}
				return answering(&chubbypb.GetContentsAndStatReply{Contents: []byte("new"), Stat: f.stat()})
			})
			text, _, err := c.Get(t.Context(), "/ls/foo/a")
			if gaveUp := deletions >= maxReopen; gaveUp != errors.Is(err, api.HandleClosed) || !gaveUp && string(text) != "new" || reads > maxReopen {
				t.Errorf("after %d deletions: %q %v, %d reads", deletions, text, err, reads)
			}
			closeClient(t, c)
		})
	}
}
