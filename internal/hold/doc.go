// Package hold is the core of recipes, those of client/recipe and of contrib/recipes: something is held, by a
// lock or a file, in a session that may end, and is given back once. The invariants:
//
//  1. A Held lock has a handle of its own, which its end closes: no other lock is held through it.
//  2. An Ending runs once, for all its callers, and to its end: until the cell has answered or the session has
//     ended, also after the deadline of its caller. Each caller gets what came of it, or Uncertain if its own
//     time is over, and may call again to wait on.
//  3. An end goes on after its context was cancelled, for client.CleanupTime (client.Client.CleanupContext).
//     Leave and GiveUp return after LeaveTime at the latest, and go on in the background.
//  4. A wait for a lock that ends with Passing says nothing of the next wait: its caller opens the file again
//     and waits anew. A recipe passes over a file whose error is Unusable, so that no other program's file
//     holds up a recipe.
//  5. A recipe that still waits releases a lock that was taken away from it at once: the cell extends no lease
//     until the holder has let go.
//  6. A Turnstile orders waiters and guards nothing: two who are inside do no harm.
package hold
