// Package recipe holds what programs build out of files, locks and sessions, once and tested: an
// election, a list of who is up, names of services, semaphores, and the like (Chubby §2.2,
// §4.1).
//
// A recipe is a few calls of the exported client and nothing else: the cell knows none of them, and
// whatever a recipe leaves in the cell is files and locks that chubbyctl shows and other programs may
// use. Each takes a *client.Client that is open and stays the caller's.
//
//   - Campaign, Observe, Leader: one primary among many, its value, and who it is (Chubby §2.4).
//   - Announce, Members: who is up.
//   - Publish, Lookup: the addresses of a service; package resolver has them for gRPC.
//   - Semaphore, DoubleBarrier, RWLock: among processes what their names say.
//   - ConfigFile: a file that everybody has the newest of; Tree: all that is below a directory; Watch: the
//     versions of any file or directory.
//   - AcquireAll: several locks, without a deadlock; Locked: one that functions under it may take again.
//
// # Sessions
//
// A recipe survives a fail-over of the master: its calls wait, and then it looks again, as events may
// have been lost. It ends with its session, because everything it holds is the session's: locks,
// ephemeral files, handles. What comes then is an error with the code SessionExpired. Who is to go on
// has client.Renew open the next session, and call the function that makes the recipe again:
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
// Files that a recipe makes for a participant are ephemeral: they go when the cell ends its session,
// at the latest a lease and two seconds after it was last heard of. Locks are free at the same moment, but for the
// lock-delay. A participant itself knows earlier: contexts of locks end a margin before anybody else
// can have them (client.Lock). A list of who is up has no such promise: a member may be dead for the
// length of a lease. Whatever must never be done by two is done under a lock, and carries its
// sequencer; each recipe says whether it is one of those.
//
// # Concurrency
//
// Methods may be called from several goroutines, where they do not say otherwise. A sequence
// (iter.Seq2) is for one goroutine, holds its handles while it is ranged over, and closes them when
// the loop ends; ranging again begins anew. Functions that return a value with a goroutine of its own
// say which call waits for that. Every call is bounded by its context, and without a deadline by the
// life of the session; but those that give something back (Release, Resign, Withdraw, Leave) have client.CleanupTime more when their context
// has been cancelled, also before the call, so that they may be given the context that a signal ends
// (client.Client.CleanupContext).
package recipe
