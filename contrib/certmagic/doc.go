// Package chubbystorage keeps the certificates of CertMagic in a Chubby cell: Storage is a
// certmagic.Storage, with its locks. So servers on many machines share the certificates,
// and one of them at a time obtains or renews one.
//
//	keeper, err := client.Keep(ctx, client.Config{})
//	defer keeper.Close(ctx)
//	storage, err := chubbystorage.New(keeper, chubbystorage.Config{Path: "/ls/local/certmagic"})
//	certmagic.Default.Storage = storage
//
// # Keys
//
// A key is a path below Config.Path/keys: each of its components is the name of a node,
// one to one. Letters, digits and punctuation of ASCII stand for themselves, except "%";
// other bytes are written as %XX, and so are the components "." and "..", which are names
// like others. Upper and lower case differ. A key with an empty component is
// InvalidArgument. What is longer or deeper than a path of a cell may be (api.MaxComponent,
// api.MaxPath, api.MaxDepth) is InvalidPath.
//
// As in certmagic.FileStorage a key has a value or is the prefix of others, not both; and a
// directory stays when the last key in it is deleted.
//
// # Values
//
// A value of less than api.MaxContents is in the file of its key, behind a byte that says
// so. A larger one, of at most MaxValue, is in chunks: files in a directory with a name of
// its own, which is new for each Store. When all of them are there, Store replaces the file
// of the key, the head, which names the directory. So others read the old or the new value,
// also if the writer dies in between. If a reader finds a chunk missing, because the value
// has been replaced since it read the head, it reads the head again.
//
// Those who write chunks, and those who remove them, hold a lock, in the session in which
// they write. Chunks that a dead writer has left are removed by the next Store or Delete of
// that key, which waits until the lease of the dead writer's session has ended; readers do
// not wait.
//
// # Locks
//
// Lock waits in the queue of a Chubby lock until it has it, or its context ends. Unlock may
// be called by any goroutine; it fails with LockLost or SessionExpired if the lock was lost
// since, because others may have had it: what CertMagic did under it may have been done
// twice. Between two attempts at a certificate, CertMagic has a lock that was lost acquired
// again (RenewLockLease). CertMagic knows no tokens, so nothing refuses a write of a holder
// that was paused and has been replaced; Config.LockDelay gives it time to notice.
//
// Each name of a lock leaves an empty file below Config.Path/locks.
//
// # Failures
//
// Calls go on through the failure of a master, and through the loss of a session, until
// they have an answer or their context ends; then the error wraps that of the context, and
// a Store may have been done (Uncertain). Errors are of type *api.Error; those that say
// that a key does not exist are also fs.ErrNotExist.
package chubbystorage
