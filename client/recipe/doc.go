// Package recipe holds what programs build from files, locks and sessions, once and tested: an election, a
// list of participants that are up, names of services, semaphores (Chubby §2.2, §4.1).
//
// A recipe is a few calls of the exported client. The cell knows no recipes: they leave files and locks
// there, which chubbyctl shows and other programs may use. Each takes an open *client.Client, which stays the
// caller's.
//
//   - Campaign, Observe, Leader: one primary among many, its value and its identity (Chubby §2.4).
//   - Announce, Members: participants that are up.
//   - Publish, Lookup: the addresses of a service; package resolver serves them to gRPC.
//   - Semaphore, RWLock: among processes what their names say.
//   - ConfigFile, Tree, Watch: the newest of a file, of all below a directory, of any node.
//   - AcquireAll: several locks, without a deadlock.
//
// # Sessions
//
// A recipe survives a fail-over of the master: its calls wait, and then it looks again, as events may have
// been lost. It ends with its session, which owns its locks, ephemeral files and handles; the error is then
// SessionExpired. To go on, client.Renew opens the next session and makes the recipe again:
//
//	err := client.Renew(ctx, cfg, func(ctx context.Context, c *client.Client) error {
//		p, err := recipe.Campaign(ctx, c, "/ls/foo/svc/primary", recipe.CampaignOptions{Value: address})
//		if err != nil {
//			return err
//		}
//		serve(ctx, p) // until p.Context() ends, or ctx
//		return p.Resign(ctx)
//	})
//
// # When a holder dies
//
// A participant's files are ephemeral: they go when the cell ends its session, at most a lease and two
// seconds after the cell last heard from it. Its locks become free then, after the lock-delay. The
// participant knows earlier: contexts of locks end a margin before another can hold them (client.Lock). But a
// list of participants may show a dead member for a lease. Do under a lock, with its sequencer, what two must
// never do; each recipe says whether it is such a lock.
//
// # Concurrency
//
// Methods may be called from several goroutines unless they say otherwise. A sequence (iter.Seq2) is for one
// goroutine and closes its handles when the loop ends; another loop begins anew. Functions that start a
// goroutine say which call waits for it. A call is bounded by its context, and without a deadline by the life
// of the session. Calls that give something back (Release, Resign, Withdraw, Leave) have client.CleanupTime
// more when their context was cancelled, even before the call (client.Client.CleanupContext). So they accept
// the context that a signal ends.
package recipe
