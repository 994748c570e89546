package recipes

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

const (
	// verify is how often what is waited for is looked at although no event tells of it: a lease, since the session that has it may have
	// been dead for so long already.
	verify = api.DefaultLease
	// together is how soon what another does just now is looked at again.
	together = 5 * time.Millisecond
)

// leaveTime bounds how long the end of a recipe waits for handles to be closed while the cell does not answer. What is not
// done by then goes on in the background.
const leaveTime = 2 * time.Second

// leave closes handles, all at once, which releases the locks that are held through them. It does so also when ctx has ended
// (client.Client.CleanupContext), and waits leaveTime at most.
func leave(ctx context.Context, handles ...*client.Handle) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	var all sync.WaitGroup
	for _, h := range handles {
		all.Go(func() { _ = h.Close(ctx) }) // what cannot be closed ends with the session
	}
	all.Wait()
}

// gone reports whether an error says that a node is not there any more.
func gone(err error) bool { return errors.Is(err, api.HandleClosed) || errors.Is(err, api.NotFound) }

// ended returns the error of a call of a recipe: that it was given up, if that is what has happened, whatever the call under it
// may have left uncertain.
func ended(ctx context.Context, err error, op, path string) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	e := &api.Error{Code: api.ContextCode(ctx.Err()), Op: op, Path: path, Err: err, Message: "its time was over"}
	if said := (*api.Error)(nil); errors.As(err, &said) && said.Code == e.Code && said.Op == op && said.Path == path {
		return err // it says so already
	}
	if e.Code == api.Cancelled {
		e.Message = "it was given up"
	}
	return e
}

// unusable reports whether an error is about one file of a directory and says nothing of the others: it is gone, or being removed
// (Exists), or is a stranger's that this program may not use, or no file at all. Such a file holds up nobody: it is passed over.
func unusable(err error) bool {
	return gone(err) || slices.Contains([]api.Code{api.Exists, api.PermissionDenied, api.IsDirectory, api.NotDirectory}, api.CodeOf(err))
}

// openIn opens a file of a recipe's directory, which is made if it is absent. The one that it is in must be there.
func openIn(ctx context.Context, c *client.Client, dir, name string, o client.OpenOptions) (*client.Handle, error) {
	h, err := c.Open(ctx, dir+"/"+name, o)
	if !errors.Is(err, api.NotFound) {
		return h, err
	}
	d, err := c.Open(ctx, dir, client.OpenOptions{Read: true, Create: client.Directory})
	if err != nil {
		return nil, err
	}
	leave(ctx, d)
	return c.Open(ctx, dir+"/"+name, o)
}
