package recipes

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
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
